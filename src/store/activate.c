/* What can be made active: a composition, one with other adapters, the one before. */
#include "base/alloc.h"
#include "base/os.h"
#include "store/active.h"
#include "store/change.h"
#include "store/make.h"
#include "store/resolve.h"
#include "store/switch.h"

#include <stdlib.h>
#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

/* ---- recipes ---- */

/* A base alone, or a composition as it stands. */
static lam_code begin_recipe(const struct lam_store *s, const struct lam_artifact *a, struct lam_recipe *r, lam_error *err)
{
    if (a->kind == LAM_STORE_COMPOSITION) return lam_recipe_of_artifact(s, a, r, err);
    if (a->kind == LAM_STORE_BASE) return lam_piece_of_layer(s, lam_artifact_layer(a, LAM_TYPE_BASE_SLM, NULL), &r->base, err);
    return LAM_RAISE(err, LAM_E_ARGUMENT, "%s is of kind %s; a base or a composition can be active, an adapter is laid over it with -a", a->digest,
                     lam_store_kind_name(a->kind));
}

/* An adapter by its name in the store, or from a file. */
static lam_code find_adapter(struct lam_store *s, struct lam_work *w, const lam_store_adapter *from, const char *base_path, struct lam_piece *out,
                             lam_error *err)
{
    struct lam_artifact a;
    if (lam_path_exists(from->source)) {
        struct lam_piece_source source = {.path = from->source, .base_path = base_path, .want = LAM_STORE_ADAPTER,
                                          .accept_tokenizer = from->accept_tokenizer};
        return lam_piece_stage(s, w, &source, out, err);
    }
    LAM_TRY(lam_resolve_open(s, from->source, &a, err));
    lam_code code = a.kind == LAM_STORE_ADAPTER
                        ? lam_piece_of_layer(s, lam_artifact_layer(&a, LAM_TYPE_ADAPTER_SLM, NULL), out, err)
                        : LAM_RAISE(err, LAM_E_ARGUMENT, "%s is of kind %s, an adapter is needed", from->source, lam_store_kind_name(a.kind));
    lam_artifact_release(&a);
    return code;
}

static lam_code add_adapters(struct lam_store *s, struct lam_work *w, const lam_store_adapter *adapters, size_t n, struct lam_recipe *r,
                             lam_error *err)
{
    if (n > LAM_MANIFEST_MAX_ADAPTERS - r->n_adapters)
        return LAM_RAISE(err, LAM_E_LIMIT, "%zu adapters, %d at most", r->n_adapters + n, LAM_MANIFEST_MAX_ADAPTERS);
    for (size_t i = 0; i < n; i++) {
        LAM_TRY(find_adapter(s, w, &adapters[i], r->base.path, &r->adapters[r->n_adapters], err));
        r->stack[r->n_adapters++] = (lam_manifest_adapter){.weight = adapters[i].weight, .rule = adapters[i].rule, .waived = adapters[i].waive};
    }
    return LAM_OK;
}

/* Receipts are about the composition that they came with. */
static void make_other(struct lam_recipe *r)
{
    r->manifest.receipts = NULL;
    r->manifest.n_receipts = 0;
}

/* ---- changes ---- */

/* Runs one change under the lock; what fails before the switch records itself is recorded here. */
struct request {
    const char *op, *reference, *adapter;
    const lam_store_adapter *adapters;
    size_t n;
};
typedef lam_code (*work_fn)(struct lam_store *s, struct lam_work *w, const struct request *q, char digest[LAM_DIGEST_TEXT], lam_error *err);

static lam_code change(struct lam_store *s, const struct request *q, work_fn prepare, lam_store_result *out, lam_error *err)
{
    struct lam_work w = {0};
    char digest[LAM_DIGEST_TEXT] = "";
    lam_error why = {0};
    *out = (lam_store_result){.kind = LAM_STORE_FOREIGN};
    LAM_TRY(lam_store_lock(s, err));
    lam_code code = lam_work_open(s, &w, &why);
    if (code == LAM_OK) code = prepare(s, &w, q, digest, &why);
    bool prepared = code == LAM_OK;
    if (prepared) code = lam_store_switch(s, q->op, digest, out, err);
    struct lam_change record = {.op = q->op, .name = q->reference ? q->reference : q->adapter};
    if (!prepared) lam_change_failed(s, &record, &why);
    if (!prepared && err) *err = why;
    lam_work_close(&w);
    lam_store_unlock(s);
    return code;
}

static lam_code prepare_activate(struct lam_store *s, struct lam_work *w, const struct request *q, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_artifact a;
    char id[LAM_DIGEST_TEXT];
    uint64_t size;
    LAM_TRY(lam_resolve_open(s, q->reference, &a, err));
    memcpy(digest, a.digest, LAM_DIGEST_TEXT);
    struct lam_recipe *r = NULL;
    lam_code code = LAM_OK;
    if (q->n || a.kind != LAM_STORE_COMPOSITION) {
        r = lam_recipe_new();
        code = r ? begin_recipe(s, &a, r, err) : no_memory(err);
        if (code == LAM_OK) code = add_adapters(s, w, q->adapters, q->n, r, err);
        if (code == LAM_OK && q->n) make_other(r);
        if (code == LAM_OK) code = lam_recipe_make(s, w, r, digest, id, &size, err);
        lam_recipe_free(r);
    }
    lam_artifact_release(&a);
    return code;
}

lam_code lam_store_activate(lam_store *s, const char *reference, const lam_store_adapter *adapters, size_t n, lam_store_result *out,
                            lam_error *err)
{
    struct request q = {.op = "activate", .reference = reference, .adapters = adapters, .n = n};
    return change(s, &q, prepare_activate, out, err);
}

static lam_code prepare_rollback(struct lam_store *s, struct lam_work *w, const struct request *q, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_active active;
    (void)w, (void)q;
    LAM_TRY(lam_active_read(s, &active, err));
    if (!active.previous[0]) return LAM_RAISE(err, LAM_E_NOT_FOUND, "there is no composition to go back to in the store %s", s->folder);
    memcpy(digest, active.previous, LAM_DIGEST_TEXT);
    return LAM_OK;
}

lam_code lam_store_rollback(lam_store *s, lam_store_result *out, lam_error *err)
{
    struct request q = {.op = "rollback"};
    return change(s, &q, prepare_rollback, out, err);
}

/* The place of the adapter that text means in r; n_adapters if there is none or several. */
static size_t find_place(const struct lam_recipe *r, const char *text)
{
    size_t found = r->n_adapters, matches = 0, len = strlen(text);
    char *end;
    const char *digits = strncmp(text, "sha256:", 7) == 0 ? text + 7 : text;
    for (size_t i = 0; i < r->n_adapters; i++) {
        bool named = r->stack[i].name && strcmp(r->stack[i].name, text) == 0;
        bool begins = strlen(digits) >= 6 && strncmp(r->adapters[i].meaning + 7, digits, strlen(digits)) == 0;
        if (!named && !begins) continue;
        found = i;
        matches++;
    }
    if (matches > 1) return r->n_adapters;
    unsigned long place = strtoul(text, &end, 10);
    if (!matches && len && *text >= '1' && *text <= '9' && !*end && place <= r->n_adapters) return place - 1;
    return found;
}

/* A name of the store may be meant, too. */
static size_t find_in_stack(struct lam_store *s, const struct lam_recipe *r, const char *text)
{
    struct lam_artifact a;
    size_t place = find_place(r, text);
    if (place < r->n_adapters || lam_resolve_open(s, text, &a, NULL) != LAM_OK) return place;
    if (a.kind == LAM_STORE_ADAPTER) place = find_place(r, a.id);
    lam_artifact_release(&a);
    return place;
}

static lam_code drop_adapters(struct lam_store *s, struct lam_recipe *r, const char *adapter, lam_error *err)
{
    if (!adapter) {
        while (r->n_adapters) lam_recipe_drop(r, r->n_adapters - 1);
        return LAM_OK;
    }
    size_t place = find_in_stack(s, r, adapter);
    if (place == r->n_adapters) return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: none, or more than one, of the %zu active adapters is called so", adapter, r->n_adapters);
    lam_recipe_drop(r, place);
    return LAM_OK;
}

static lam_code prepare_deactivate(struct lam_store *s, struct lam_work *w, const struct request *q, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_active active;
    struct lam_artifact a = {.kind = LAM_STORE_FOREIGN};
    char id[LAM_DIGEST_TEXT];
    uint64_t size;
    LAM_TRY(lam_active_read(s, &active, err));
    if (!active.generation) return LAM_RAISE(err, LAM_E_NOT_FOUND, "no composition is active in the store %s", s->folder);
    struct lam_recipe *r = lam_recipe_new();
    lam_code code = r ? lam_artifact_open(s, active.manifest, UINT64_MAX, &a, err) : no_memory(err);
    if (code == LAM_OK) code = lam_recipe_of_artifact(s, &a, r, err);
    if (code == LAM_OK) code = drop_adapters(s, r, q->adapter, err);
    if (code == LAM_OK) make_other(r);
    if (code == LAM_OK) code = lam_recipe_make(s, w, r, digest, id, &size, err);
    lam_artifact_release(&a);
    lam_recipe_free(r);
    return code;
}

lam_code lam_store_deactivate(lam_store *s, const char *adapter, lam_store_result *out, lam_error *err)
{
    struct request q = {.op = "deactivate", .adapter = adapter};
    return change(s, &q, prepare_deactivate, out, err);
}
