#include "run/lease.h"
#include "adapter/staged.h"
#include "base/alloc.h"
#include "compose/activation.h"
#include "run/publication.h"
#include "run/session.h"

#include <string.h>

struct lam_runtime {
    struct lam_generations generations;
    atomic_size_t holders;
    lam_engine *engine;               /* held */
    lam_base *base;                   /* held; NULL before it is loaded */
    lam_verify verify;
    struct lam_mutex *lock;           /* of what follows, and of loading */
    lam_composition *previous;        /* held, or NULL: what the last change replaced */
    uint64_t previous_of;             /* the catalogue's generation that replaced it */
};

struct lam_lease {
    atomic_size_t holders;
    lam_runtime *runtime;             /* held */
    struct lam_handle handle;
    lam_composition *composition;     /* the generation's */
};

/* ---- the runtime ---- */

lam_code lam_runtime_new(lam_engine *engine, lam_runtime **out, lam_error *err)
{
    lam_runtime *r = *out = lam_alloc_aligned(sizeof *r);
    if (!r) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a runtime");
    atomic_init(&r->holders, 1);
    lam_code code = lam_generations_init(&r->generations, err);
    if (code == LAM_OK) code = lam_mutex_new(&r->lock, err);
    if (code == LAM_OK) {
        atomic_fetch_add(&engine->holders, 1);
        r->engine = engine;
        return LAM_OK;
    }
    lam_runtime_free(r);
    *out = NULL;
    return code;
}

void lam_runtime_free(lam_runtime *r)
{
    if (!r || atomic_fetch_sub(&r->holders, 1) != 1) return;
    lam_generations_release(&r->generations);
    lam_composition_free(r->previous);
    lam_mutex_free(r->lock);
    lam_base_free(r->base);
    lam_engine_free(r->engine);
    lam_free_aligned(r);
}

lam_base *lam_runtime_base(const lam_runtime *r) { return r->base; }

static void describe(const struct lam_handle *h, uint64_t catalogue, lam_generation *out)
{
    *out = (lam_generation){.catalogue = catalogue, .slot = h->slot, .slot_generation = h->slot_generation,
                            .pointer_generation = h->pointer_generation};
    memcpy(out->composition_id, h->digest, sizeof out->composition_id);
}

lam_code lam_runtime_current(lam_runtime *r, lam_generation *out, lam_error *err)
{
    struct lam_generations *g = &r->generations;
    lam_mutex_lock(g->lock);
    describe(&g->current, g->catalogue, out);
    lam_mutex_unlock(g->lock);
    return out->slot == LAM_NO_SLOT ? LAM_RAISE(err, LAM_E_GEN_NONE, "nothing is published") : LAM_OK;
}

/* ---- leases ---- */

lam_code lam_runtime_lease(lam_runtime *r, lam_lease **out, lam_error *err)
{
    *out = NULL;
    lam_lease *l = lam_alloc(1, sizeof *l);
    if (!l) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a lease");
    lam_code code = lam_generations_acquire(&r->generations, &l->handle, err);
    if (code != LAM_OK) {
        lam_free(l);
        return code;
    }
    atomic_init(&l->holders, 1);
    atomic_fetch_add(&r->holders, 1);
    l->runtime = r;
    l->composition = lam_generations_payload(&r->generations, &l->handle);
    *out = l;
    return LAM_OK;
}

lam_lease *lam_lease_hold(lam_lease *l)
{
    atomic_fetch_add(&l->holders, 1);
    return l;
}

void lam_lease_release(lam_lease *l)
{
    if (!l || atomic_fetch_sub(&l->holders, 1) != 1) return;
    (void)lam_generations_give_back(&l->runtime->generations, &l->handle, NULL); /* refused, it stays: better than freed too early */
    lam_runtime_free(l->runtime);
    lam_free(l);
}

lam_composition *lam_lease_composition(const lam_lease *l) { return l->composition; }
void lam_lease_generation(const lam_lease *l, lam_generation *out) { describe(&l->handle, 0, out); }

lam_code lam_lease_session(lam_lease *l, size_t context, lam_session **out, lam_error *err)
{
    LAM_TRY(lam_session_new(l->composition, context, out, err));
    (*out)->lease = lam_lease_hold(l);
    return LAM_OK;
}

lam_code lam_lease_begin(lam_session *const sessions[], size_t n, lam_error *err)
{
    for (size_t i = 0; i < n; i++) {
        lam_lease *l = sessions[i]->lease;
        lam_code code = l ? lam_generations_use_begin(&l->runtime->generations, &l->handle, err) : LAM_OK;
        if (code == LAM_OK) continue;
        lam_lease_end(sessions, i);
        return code;
    }
    return LAM_OK;
}

void lam_lease_end(lam_session *const sessions[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        lam_lease *l = sessions[i]->lease;
        if (l) lam_generations_use_end(&l->runtime->generations, &l->handle);
    }
}

/* ---- what is staged ---- */

/* Looks at the adapters of c in memory: at all of them, or at those that nobody has looked at yet. */
static void inspect(const lam_composition *c, lam_verify verify, bool previous, struct lam_staged *out)
{
    struct lam_inspection now;
    *out = (struct lam_staged){.previous = previous};
    for (size_t i = 0; i < c->n_adapters && verify != LAM_VERIFY_OFF; i++) {
        const struct lam_adapter *a = c->adapters[i]->staged;
        if (verify == LAM_VERIFY_LAZY && atomic_load(&c->adapters[i]->inspected)) continue;
        out->n_begun++;
        lam_adapter_inspect(a, &now);
        out->wrong |= now.wrong | lam_seal_differences(&a->seal, &now.seal);
        out->n_modules += a->n_modules;
        out->n_copied += now.n_staged;
        if (out->n_missing == 0) memcpy(out->missing, now.missing, sizeof out->missing);
        out->n_missing += now.n_missing;
        out->n_ended++;
    }
}

static lam_code verify_staged(const lam_composition *c, lam_verify verify, bool previous, struct lam_staged *out, lam_error *err)
{
    inspect(c, verify, previous, out);
    LAM_TRY(lam_staged_check(out, err));
    for (size_t i = 0; i < c->n_adapters && verify != LAM_VERIFY_OFF; i++) atomic_store(&c->adapters[i]->inspected, true);
    return LAM_OK;
}

static bool same_bytes(const lam_composition *a, const lam_composition *b)
{
    bool same = a == b || a->n_adapters == b->n_adapters;
    for (size_t i = 0; a != b && same && i < a->n_adapters; i++)
        same = memcmp(&a->adapters[i]->staged->seal, &b->adapters[i]->staged->seal, sizeof a->adapters[i]->staged->seal) == 0;
    return same;
}

lam_code lam_runtime_compose(lam_runtime *r, lam_adapter *const adapters[], const double weights[], size_t n, const lam_compose_options *options,
                             lam_composition **out, lam_error *err)
{
    struct lam_staged staged;
    *out = NULL;
    if (!r->base) return LAM_RAISE(err, LAM_E_CONFLICT, "the runtime has no base yet");
    LAM_TRY(lam_compose(r->base, adapters, weights, n, options, out, err));
    lam_code code = verify_staged(*out, r->verify, false, &staged, err);
    if (code == LAM_OK) return LAM_OK;
    lam_composition_free(*out);
    *out = NULL;
    return code;
}

/* ---- activation ---- */

struct activating {
    lam_runtime *runtime;
    lam_composition *composition;
    const lam_generation *expected;
    struct lam_publication publication;
    lam_lease *replaced;              /* what was current when it began; NULL: nothing */
    bool is_active;                   /* already: nothing is to be done */
    bool is_back;                     /* to what was active before */
};

static bool is_expected(const struct lam_handle *h, const lam_generation *g)
{
    return h->slot == g->slot && h->slot_generation == g->slot_generation && h->pointer_generation == g->pointer_generation;
}

/* Notes what is current, with a lease of it: its composition is the way back. */
static lam_code resolve(struct activating *a, lam_error *err)
{
    struct lam_publication *p = &a->publication;
    lam_code code = lam_runtime_lease(a->runtime, &a->replaced, err);
    if (code != LAM_OK && code != LAM_E_GEN_NONE) return code;
    LAM_TRY(lam_publication_begin(&a->runtime->generations, p, err));
    if (a->replaced ? !lam_handle_same(&p->expected, &a->replaced->handle) : p->expected.slot != LAM_NO_SLOT)
        return LAM_RAISE(err, LAM_E_GEN_STALE, "slot %u was published just now", p->expected.slot);
    if (a->expected && !is_expected(&p->expected, a->expected))
        return LAM_RAISE(err, LAM_E_GEN_STALE, "slot %u generation %llu was expected to be active, slot %u generation %llu is", a->expected->slot,
                         (unsigned long long)a->expected->slot_generation, p->expected.slot, (unsigned long long)p->expected.slot_generation);
    a->is_active = a->replaced && strcmp(a->replaced->handle.digest, a->composition->id) == 0 &&
                   same_bytes(a->replaced->composition, a->composition);
    return LAM_OK;
}

static lam_code validate(void *self, lam_error *err)
{
    struct activating *a = self;
    lam_base *base = a->runtime->base;
    if (a->composition->base != base) return LAM_RAISE(err, LAM_E_WRONG_BASE, "the composition has another base than the runtime");
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    return lam_publication_step(&a->publication, LAM_PUBLICATION_ARTEFACT, err);
}

static lam_code reserve(void *self, lam_error *err) { return lam_publication_reserve(&((struct activating *)self)->publication, err); }
static void unreserve(void *self) { lam_publication_abort(&((struct activating *)self)->publication); }

/* Factors were staged when adapters were loaded, into memory that was zero, and what rows are computed with was made when they were
 * composed: nothing here waits for a pass that is under way. */
static lam_code stage(void *self, lam_error *err)
{
    struct lam_publication *p = &((struct activating *)self)->publication;
    LAM_TRY(lam_publication_step(p, LAM_PUBLICATION_CLEAR, err));
    return lam_publication_step(p, LAM_PUBLICATION_COPY, err);
}

static lam_code verify(void *self, lam_error *err)
{
    struct activating *a = self;
    struct lam_publication *p = &a->publication;
    LAM_TRY(verify_staged(a->composition, a->runtime->verify, a->is_back, &p->staged, err));
    LAM_TRY(lam_publication_step(p, LAM_PUBLICATION_VERIFY, err));
    LAM_TRY(lam_publication_step(p, LAM_PUBLICATION_RECORD, err));
    return lam_publication_step(p, LAM_PUBLICATION_WAIT, err);
}

static void free_generation(void *composition) { lam_composition_free(composition); }

static lam_code commit(void *self, lam_error *err)
{
    struct activating *a = self;
    struct lam_publication *p = &a->publication;
    LAM_TRY(lam_publication_freeze(p, a->composition->id, a->composition, free_generation, err));
    atomic_fetch_add(&a->composition->holders, 1); /* the generation's */
    lam_code code = lam_publication_publish(p, err);
    if (code != LAM_OK) lam_composition_free(a->composition);
    return code;
}

/* What was replaced is the way back, unless a later change has left another. */
static void keep_replaced(struct activating *a)
{
    lam_runtime *r = a->runtime;
    lam_composition *old = NULL;
    if (!a->replaced) return;
    lam_mutex_lock(r->lock);
    if (a->publication.catalogue > r->previous_of) {
        old = r->previous;
        r->previous = a->replaced->composition;
        r->previous_of = a->publication.catalogue;
        atomic_fetch_add(&r->previous->holders, 1);
    }
    lam_mutex_unlock(r->lock);
    lam_composition_free(old);
}

static lam_code activate_once(struct activating *a, lam_generation *out, lam_error *err)
{
    static const struct lam_activation_steps steps = {.validate = validate, .reserve = reserve, .stage = stage, .verify = verify,
                                                      .commit = commit, .unreserve = unreserve};
    a->replaced = NULL;
    lam_code code = resolve(a, err);
    if (code == LAM_OK && !a->is_active) code = lam_activation_run(&steps, a, NULL, err);
    if (code == LAM_OK && !a->is_active) keep_replaced(a);
    if (code == LAM_OK && out)
        describe(a->is_active ? &a->publication.expected : &a->publication.handle, a->publication.catalogue - a->is_active, out);
    lam_lease_release(a->replaced);
    return code;
}

static lam_code activate(struct activating *a, lam_generation *out, lam_error *err)
{
    lam_code code;
    do code = activate_once(a, out, err); while (code == LAM_E_GEN_STALE && !a->expected); /* somebody else published meanwhile */
    return code;
}

lam_code lam_runtime_activate(lam_runtime *r, lam_composition *composition, const lam_generation *expected, lam_generation *out, lam_error *err)
{
    struct activating a = {.runtime = r, .composition = composition, .expected = expected};
    return activate(&a, out, err);
}

lam_code lam_runtime_rollback(lam_runtime *r, lam_generation *out, lam_error *err)
{
    lam_mutex_lock(r->lock);
    lam_composition *previous = r->previous;
    if (previous) atomic_fetch_add(&previous->holders, 1);
    lam_mutex_unlock(r->lock);
    if (!previous) return LAM_RAISE(err, LAM_E_NOT_FOUND, "nothing was active before");
    struct activating a = {.runtime = r, .composition = previous, .is_back = true};
    lam_code code = activate(&a, out, err);
    lam_composition_free(previous);
    return code;
}

void lam_runtime_settle(lam_runtime *r)
{
    lam_mutex_lock(r->lock);
    lam_composition *old = r->previous;
    r->previous = NULL;
    lam_mutex_unlock(r->lock);
    lam_composition_free(old);
}

lam_code lam_runtime_load(lam_runtime *r, const char *path, lam_verify verify, lam_error *err)
{
    lam_composition *alone = NULL;
    lam_mutex_lock(r->lock);
    lam_code code = r->base ? LAM_RAISE(err, LAM_E_CONFLICT, "the runtime has a base already") : LAM_OK;
    if (code == LAM_OK) code = lam_base_open(r->engine, path, verify, &r->base, err);
    if (code == LAM_OK) r->verify = verify;
    lam_mutex_unlock(r->lock);
    if (code != LAM_OK) return code;
    code = lam_compose(r->base, NULL, NULL, 0, NULL, &alone, err);
    if (code == LAM_OK) code = lam_runtime_activate(r, alone, NULL, NULL, err);
    lam_composition_free(alone);
    if (code == LAM_OK) return LAM_OK;
    lam_base_free(r->base);
    r->base = NULL;
    return code;
}
