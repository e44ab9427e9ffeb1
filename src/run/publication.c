#include "run/publication.h"

#include <string.h>

static const char *const step_names[LAM_PUBLICATION_STEPS] = {
    "resolve", "check the artefact", "reserve", "clear", "copy", "verify", "record copies", "wait for copies", "freeze", "publish", "activate",
    "retire",
};

const char *lam_publication_step_name(enum lam_publication_step step)
{
    return (unsigned)step < LAM_PUBLICATION_STEPS ? step_names[step] : "?";
}

/* What leaving a step out is called. */
static lam_code left_out(int step)
{
    switch (step) {
    case LAM_PUBLICATION_ARTEFACT: return LAM_E_GEN_STEP_ARTEFACT;
    case LAM_PUBLICATION_CLEAR: return LAM_E_GEN_STEP_TAIL;
    case LAM_PUBLICATION_COPY: return LAM_E_GEN_STEP_COPY;
    case LAM_PUBLICATION_VERIFY: return LAM_E_GEN_STEP_VERIFY;
    case LAM_PUBLICATION_WAIT: return LAM_E_GEN_STEP_WAIT;
    default: return LAM_E_GEN_STEP_ORDER;
    }
}

lam_code lam_publication_step(struct lam_publication *p, enum lam_publication_step step, lam_error *err)
{
    if (p->n_steps < LAM_PUBLICATION_STEPS && (int)step == p->n_steps) {
        p->n_steps++;
        return LAM_OK;
    }
    if (p->n_steps == LAM_PUBLICATION_STEPS || (int)step < p->n_steps)
        return LAM_RAISE(err, LAM_E_GEN_STEP_ORDER, "publication: \"%s\" was done already", lam_publication_step_name(step));
    return LAM_RAISE(err, left_out(p->n_steps), "publication: \"%s\" comes before \"%s\"", lam_publication_step_name(step),
                     lam_publication_step_name((enum lam_publication_step)p->n_steps));
}

lam_code lam_publication_begin(struct lam_generations *g, struct lam_publication *p, lam_error *err)
{
    *p = (struct lam_publication){.table = g, .shadow = LAM_NO_SLOT};
    lam_mutex_lock(g->lock);
    lam_code code = lam_generations_check_current(g, err);
    p->expected = g->current;
    p->catalogue = g->catalogue + 1;
    lam_mutex_unlock(g->lock);
    return code == LAM_OK ? lam_publication_step(p, LAM_PUBLICATION_RESOLVE, err) : code;
}

lam_code lam_publication_reserve(struct lam_publication *p, lam_error *err)
{
    struct lam_generations *g = p->table;
    LAM_TRY(lam_publication_step(p, LAM_PUBLICATION_RESERVE, err));
    lam_mutex_lock(g->lock);
    lam_code code = lam_generations_reserve(g, &p->shadow, err);
    if (code == LAM_OK) {
        p->shadow_state = LAM_SLOT_FREE;
        p->shadow_slot_generation = lam_slot_generation(&g->slots[p->shadow]) - 1;
        p->shadow_pointer_generation = atomic_load(&g->slots[p->shadow].pointer_generation);
    }
    lam_mutex_unlock(g->lock);
    if (code != LAM_OK) p->shadow = LAM_NO_SLOT;
    return code;
}

lam_code lam_publication_freeze(struct lam_publication *p, const char *digest, void *payload, void (*free_payload)(void *), lam_error *err)
{
    LAM_TRY(lam_publication_step(p, LAM_PUBLICATION_FREEZE, err));
    struct lam_slot *s = &p->table->slots[p->shadow]; /* staged: nobody else's */
    size_t n = strlen(digest);
    if (n >= sizeof s->digest) return LAM_RAISE(err, LAM_E_ARGUMENT, "a digest of %zu characters", n);
    memcpy(s->digest, digest, n + 1);
    s->payload = payload;
    s->free_payload = free_payload;
    p->handle = (struct lam_handle){.slot = p->shadow, .slot_generation = lam_slot_generation(s),
                                    .pointer_generation = atomic_load(&s->pointer_generation) + 1};
    memcpy(p->handle.digest, digest, n + 1);
    return LAM_OK;
}

/* ---- what must hold before the store ---- */

static lam_code check_catalogue(const struct lam_publication *p, lam_error *err)
{
    const struct lam_generations *g = p->table;
    const struct lam_handle *now = &g->current, *then = &p->expected;
    LAM_TRY(lam_generations_check_current(g, err));
    if (!lam_handle_same(now, then))
        return LAM_RAISE(err, LAM_E_GEN_STALE, "slot %u generation %llu/%llu was expected to be current, slot %u generation %llu/%llu is",
                         then->slot, (unsigned long long)then->slot_generation, (unsigned long long)then->pointer_generation, now->slot,
                         (unsigned long long)now->slot_generation, (unsigned long long)now->pointer_generation);
    if (p->catalogue < g->catalogue)
        return LAM_RAISE(err, LAM_E_GEN_REWIND, "the catalogue is at generation %llu and does not go back to %llu",
                         (unsigned long long)g->catalogue, (unsigned long long)p->catalogue);
    if (p->catalogue != g->catalogue + 1)
        return LAM_RAISE(err, LAM_E_GEN_CATALOGUE, "generation %llu of the catalogue is to follow %llu", (unsigned long long)p->catalogue,
                         (unsigned long long)g->catalogue);
    return LAM_OK;
}

static lam_code check_shadow(const struct lam_publication *p, lam_error *err)
{
    const struct lam_handle *h = &p->handle;
    if (p->shadow == p->expected.slot)
        return LAM_RAISE(err, LAM_E_GEN_SHADOW_LIVE, "slot %u was staged, which is the current one", p->shadow);
    if (p->shadow != h->slot || h->slot >= LAM_GENERATION_SLOTS || p->shadow_state != LAM_SLOT_FREE ||
        lam_slot_state(&p->table->slots[h->slot]) != LAM_SLOT_STAGED)
        return LAM_RAISE(err, LAM_E_GEN_SHADOW_USED, "slot %u was staged, which was not free", p->shadow);
    if (h->slot_generation != p->shadow_slot_generation + 1 || h->slot_generation != lam_slot_generation(&p->table->slots[h->slot]))
        return LAM_RAISE(err, LAM_E_GEN_SHADOW_GENERATION, "slot %u was reserved at generation %llu and is to be published as %llu", h->slot,
                         (unsigned long long)p->shadow_slot_generation, (unsigned long long)h->slot_generation);
    if (h->pointer_generation != p->shadow_pointer_generation + 1)
        return LAM_RAISE(err, LAM_E_GEN_SHADOW_POINTER, "slot %u had pointer generation %llu and is to be published as %llu", h->slot,
                         (unsigned long long)p->shadow_pointer_generation, (unsigned long long)h->pointer_generation);
    return LAM_OK;
}

/* The first of the faults from `first` up to `end`. */
static lam_code raise_staged(const struct lam_staged *s, int first, int end, lam_error *err)
{
    static const struct {
        lam_code staged, previous;
        const char *what;
    } faults[LAM_STAGED_FAULTS] = {
        [LAM_STAGED_RANK] = {LAM_E_GEN_STAGED_RANK, LAM_E_GEN_STAGED_RANK, "a rank is less than the rows that are stored for it"},
        [LAM_STAGED_RANK_ABOVE] = {LAM_E_GEN_STAGED_RANK_ABOVE, LAM_E_GEN_STAGED_RANK_ABOVE, "a rank is more than the rows that are stored for it"},
        [LAM_STAGED_EXTENT] = {LAM_E_GEN_STAGED_EXTENT, LAM_E_GEN_STAGED_EXTENT, "a factor has another extent than its rank and matrix give it"},
        [LAM_STAGED_LAYOUT] = {LAM_E_GEN_STAGED_LAYOUT, LAM_E_GEN_STAGED_LAYOUT, "a factor is not laid out as the kernels read it"},
        [LAM_STAGED_TARGETS] = {LAM_E_GEN_STAGED_TARGETS, LAM_E_GEN_STAGED_TARGETS, "a module acts on another matrix than when it was staged"},
        [LAM_STAGED_SCALE] = {LAM_E_GEN_STAGED_SCALE, LAM_E_GEN_PREVIOUS_SCALE, "a scale is another than when it was staged"},
        [LAM_STAGED_TAIL_A] = {LAM_E_GEN_STAGED_TAIL_A, LAM_E_GEN_STAGED_TAIL_A, "the padding of a factor A is not zero"},
        [LAM_STAGED_TAIL_B] = {LAM_E_GEN_STAGED_TAIL_B, LAM_E_GEN_STAGED_TAIL_B, "the padding of a factor B is not zero"},
        [LAM_STAGED_TAIL] = {LAM_E_GEN_STAGED_TAIL, LAM_E_GEN_STAGED_TAIL, "a scale of padding is not zero"},
        [LAM_STAGED_FINITE] = {LAM_E_GEN_STAGED_FINITE, LAM_E_GEN_STAGED_FINITE, "a value is not finite"},
        [LAM_STAGED_A] = {LAM_E_GEN_STAGED_A, LAM_E_GEN_PREVIOUS_A, "a factor A is not what was staged"},
        [LAM_STAGED_B] = {LAM_E_GEN_STAGED_B, LAM_E_GEN_PREVIOUS_B, "a factor B is not what was staged"},
        [LAM_STAGED_BYTES] = {LAM_E_GEN_STAGED_DIGEST, LAM_E_GEN_STAGED_DIGEST, "bytes of no factor are not what was staged"},
    };
    for (int i = first; i < end; i++)
        if (s->wrong >> i & 1)
            return LAM_RAISE(err, s->previous ? faults[i].previous : faults[i].staged, "of what %s: %s",
                             s->previous ? "was active before" : "is to be active", faults[i].what);
    return LAM_OK;
}

lam_code lam_staged_check(const struct lam_staged *s, lam_error *err)
{
    if (s->n_begun != s->n_ended)
        return LAM_RAISE(err, LAM_E_GEN_PENDING, "%llu copies were begun, %llu have ended", (unsigned long long)s->n_begun,
                         (unsigned long long)s->n_ended);
    LAM_TRY(raise_staged(s, 0, LAM_STAGED_TARGETS, err));
    if (s->n_missing) return LAM_RAISE(err, LAM_E_GEN_STAGED_MISSING, "%zu staged tensors are missing, first of %s", s->n_missing, s->missing);
    if (s->n_copied != s->n_modules)
        return LAM_RAISE(err, LAM_E_GEN_STAGED_MODULES, "%zu of %zu modules are staged", s->n_copied, s->n_modules);
    return raise_staged(s, LAM_STAGED_TARGETS, LAM_STAGED_FAULTS, err);
}

lam_code lam_publication_check(const struct lam_publication *p, lam_error *err)
{
    if (p->shadow != p->expected.slot && lam_generations_visible(p->table) == p->shadow)
        return LAM_RAISE(err, LAM_E_GEN_SHADOW_EXPOSED, "slot %u could be reached before it was published", p->shadow);
    LAM_TRY(check_catalogue(p, err));
    LAM_TRY(check_shadow(p, err));
    LAM_TRY(lam_staged_check(&p->staged, err));
    if (p->expected.slot != LAM_NO_SLOT && strcmp(p->handle.digest, p->expected.digest) == 0)
        return LAM_RAISE(err, LAM_E_GEN_ALIAS, "%s is current already, as other bytes", p->handle.digest);
    return LAM_OK;
}

lam_code lam_publication_publish(struct lam_publication *p, lam_error *err)
{
    struct lam_generations *g = p->table;
    struct lam_publication next = *p; /* a refused attempt is as before */
    if (p->n_steps > LAM_PUBLICATION_PUBLISH) return LAM_RAISE(err, LAM_E_GEN_PUBLISHED, "%s was published already", p->handle.digest);
    LAM_TRY(lam_publication_step(&next, LAM_PUBLICATION_PUBLISH, err));
    lam_mutex_lock(g->lock);
    lam_code code = lam_publication_check(p, err);
    if (code == LAM_OK) lam_generations_swap(g, &p->handle, p->catalogue);
    lam_mutex_unlock(g->lock);
    if (code != LAM_OK) return code;
    next.shadow = LAM_NO_SLOT;
    *p = next;
    LAM_TRY(lam_publication_step(p, LAM_PUBLICATION_ACTIVE, err));
    return lam_publication_step(p, LAM_PUBLICATION_RETIRE, err);
}

void lam_publication_abort(struct lam_publication *p)
{
    if (p->shadow == LAM_NO_SLOT) return;
    lam_mutex_lock(p->table->lock);
    lam_generations_abandon(p->table, p->shadow);
    lam_mutex_unlock(p->table->lock);
    p->shadow = LAM_NO_SLOT;
}
