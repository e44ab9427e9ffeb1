/* lam_store_add: what lies elsewhere becomes blobs and a manifest with a name. */
#include "base/alloc.h"
#include "base/os.h"
#include "lamina/cache.h"
#include "store/active.h"
#include "store/make.h"
#include "store/naming.h"
#include "store/resolve.h"

#include <stdio.h>
#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

/* One call. */
struct adding {
    struct lam_store *store;
    struct lam_work work;
    const char *source;
    const lam_store_add_options *options;
    char name[132];
    struct lam_piece piece;       /* of a base or an adapter */
    struct lam_recipe *recipe;    /* owned; of a manifest, else NULL */
    struct lam_cached base;       /* the base of an adapter, where it is a file */
    char *base_path;              /* owned */
    bool recorded;                /* the records tell of it */
};

/* ---- an adapter's base ---- */

static lam_code path_of_layer(struct lam_store *s, const struct lam_artifact *a, char **out, lam_error *err)
{
    const struct lam_descriptor *layer = lam_artifact_layer(a, LAM_TYPE_BASE_SLM, NULL);
    if (!layer) return LAM_RAISE(err, LAM_E_ARGUMENT, "%s has no base", a->digest);
    LAM_TRY(lam_blob_check(s, layer->digest, layer->size, err));
    return lam_blob_path(s, layer->digest, out, err);
}

/* The base that is meant if none is named: the active composition's, else the only one that has a name. */
static lam_code default_base(struct lam_store *s, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_active active;
    struct lam_index index;
    size_t n = 0;
    LAM_TRY(lam_active_read(s, &active, err));
    memcpy(digest, active.manifest, LAM_DIGEST_TEXT);
    if (active.generation) return LAM_OK;
    LAM_TRY(lam_index_read(s, &index, err));
    for (size_t i = 0; i < index.n; i++) {
        struct lam_artifact a;
        const struct lam_descriptor *d = &index.entries[i].manifest;
        if (lam_artifact_open(s, d->digest, d->size, &a, NULL) != LAM_OK) continue;
        if (a.kind == LAM_STORE_BASE && strcmp(digest, a.digest) != 0) {
            memcpy(digest, a.digest, LAM_DIGEST_TEXT);
            n++;
        }
        lam_artifact_release(&a);
    }
    lam_index_release(&index);
    if (n == 1) return LAM_OK;
    return LAM_RAISE(err, LAM_E_ARGUMENT, "an adapter is imported for a base, and the store has %zu; name one with -m", n);
}

static lam_code find_base(struct adding *a, lam_error *err)
{
    const char *named = a->options->base;
    struct lam_artifact artifact;
    char digest[LAM_DIGEST_TEXT];
    if (named && lam_path_exists(named)) {
        struct lam_cache_options cache = {.progress = a->store->progress, .progress_context = a->store->progress_context};
        LAM_TRY(lam_cache_open_base(named, &cache, &a->base, err));
        a->base_path = lam_strdup(a->base.path);
        return a->base_path ? LAM_OK : no_memory(err);
    }
    LAM_TRY(named ? lam_store_resolve(a->store, named, digest, err) : default_base(a->store, digest, err));
    LAM_TRY(lam_artifact_open(a->store, digest, UINT64_MAX, &artifact, err));
    lam_code code = path_of_layer(a->store, &artifact, &a->base_path, err);
    lam_artifact_release(&artifact);
    return code;
}

/* ---- bases and adapters ---- */

static lam_code stage_piece(struct adding *a, lam_error *err)
{
    lam_source_kind kind;
    LAM_TRY(lam_source_detect(a->source, &kind, err));
    if (kind == LAM_SOURCE_GGUF_ADAPTER || kind == LAM_SOURCE_PEFT_ADAPTER) LAM_TRY(find_base(a, err));
    struct lam_piece_source source = {.path = a->source, .base_path = a->base_path, .want = LAM_STORE_FOREIGN,
                                      .accept_tokenizer = a->options->accept_tokenizer, .report = a->options->report};
    return lam_piece_stage(a->store, &a->work, &source, &a->piece, err);
}

static lam_code place_piece(struct adding *a, char digest[LAM_DIGEST_TEXT], uint64_t *size, lam_error *err)
{
    struct lam_str text = {0};
    char empty[LAM_DIGEST_TEXT];
    struct lam_descriptor layer = lam_piece_layer(&a->piece);
    lam_code code = lam_artifact_write(a->piece.kind, a->piece.meaning, NULL, &layer, 1, &text, err);
    if (code == LAM_OK) code = lam_piece_place(a->store, &a->piece, err);
    if (code == LAM_OK) code = lam_blob_put(a->store, &a->work, LAM_EMPTY_CONFIG, sizeof LAM_EMPTY_CONFIG - 1, empty, err);
    if (code == LAM_OK) code = lam_blob_put(a->store, &a->work, text.data, text.len, digest, err);
    *size = text.len;
    lam_str_release(&text);
    return code;
}

/* ---- manifests ---- */

/* One base or adapter of a manifest: from its file, or by its digest from the store. */
static lam_code obtain(struct adding *a, const char *file, const char *digest, lam_store_kind kind, bool accept, struct lam_piece *out,
                       lam_error *err)
{
    struct lam_artifact artifact;
    const struct lam_descriptor *layer = NULL;
    const char *type = kind == LAM_STORE_BASE ? LAM_TYPE_BASE_SLM : LAM_TYPE_ADAPTER_SLM;
    *out = (struct lam_piece){.kind = LAM_STORE_FOREIGN};
    if (digest) LAM_TRY(lam_find_layer(a->store, type, digest, &artifact, &layer, err));
    if (layer) {
        lam_code code = lam_piece_of_layer(a->store, layer, out, err);
        lam_artifact_release(&artifact);
        if (code == LAM_OK || code == LAM_E_NO_MEMORY || !file) return code;
    }
    if (!file)
        return LAM_RAISE(err, LAM_E_NOT_FOUND, "%s names no file of %s %s, and the store does not have it", a->source, lam_store_kind_name(kind),
                         digest ? digest : "?");
    struct lam_piece_source source = {.path = file, .base_path = kind == LAM_STORE_BASE ? NULL : a->recipe->base.path, .want = kind,
                                      .accept_tokenizer = accept, .report = a->options->report};
    LAM_TRY(lam_piece_stage(a->store, &a->work, &source, out, err));
    if (!digest || strcmp(digest, out->meaning) == 0) return LAM_OK;
    lam_code code = LAM_RAISE(err, kind == LAM_STORE_BASE ? LAM_E_WRONG_BASE : LAM_E_DIGEST, "%.200s is %s %s, the manifest names %s", file,
                              lam_store_kind_name(kind), out->meaning, digest);
    lam_piece_release(out);
    return code;
}

static lam_code stage_manifest(struct adding *a, lam_error *err)
{
    lam_fault_list faults = {0};
    struct lam_recipe *r = a->recipe = lam_recipe_new();
    if (!r) return no_memory(err);
    lam_code code = lam_manifest_read(a->source, &r->read, &faults, err);
    lam_fault_list_release(&faults);
    if (code != LAM_OK) return code;
    const lam_manifest *m = r->read;
    r->manifest = *m;
    LAM_TRY(obtain(a, m->base_file, m->base_digest, LAM_STORE_BASE, false, &r->base, err));
    for (size_t i = 0; i < m->n_adapters; i++) {
        const lam_manifest_adapter *from = &m->adapters[i];
        LAM_TRY(obtain(a, from->file, from->digest, LAM_STORE_ADAPTER, from->accept_tokenizer, &r->adapters[i], err));
        r->stack[r->n_adapters++] = (lam_manifest_adapter){.weight = from->weight, .rule = from->rule, .waived = from->waived};
    }
    return LAM_OK;
}

/* ---- both ---- */

static lam_code place(struct adding *a, lam_store_result *out, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    uint64_t size = 0;
    if (a->recipe) {
        LAM_TRY(lam_recipe_make(a->store, &a->work, a->recipe, digest, out->id, &size, err));
    } else {
        LAM_TRY(place_piece(a, digest, &size, err));
        memcpy(out->id, a->piece.meaning, LAM_DIGEST_TEXT);
    }
    struct lam_naming naming = {.op = "add", .name = a->name, .may_move = a->options->name != NULL, .digest = digest, .size = size,
                                .kind = a->recipe ? LAM_STORE_COMPOSITION : a->piece.kind};
    lam_code code = lam_name_manifest(a->store, &naming, out, err);
    a->recorded = naming.recorded;
    return code;
}

static lam_code choose_name(struct adding *a, lam_error *err)
{
    if (a->options->name) {
        LAM_TRY(lam_name_check(a->options->name, err));
        snprintf(a->name, sizeof a->name, "%s", a->options->name);
        return LAM_OK;
    }
    if (lam_name_of_file(a->source, a->name) && lam_name_check(a->name, NULL) == LAM_OK) return LAM_OK;
    return LAM_RAISE(err, LAM_E_STORE_NAME, "%s: its name makes no name for the store; give one with --name", a->source);
}

static lam_code add(struct adding *a, lam_store_result *out, lam_error *err)
{
    LAM_TRY(choose_name(a, err));
    LAM_TRY(lam_work_open(a->store, &a->work, err));
    LAM_TRY(lam_manifest_detect(a->source) ? stage_manifest(a, err) : stage_piece(a, err));
    LAM_TRY(lam_store_lock(a->store, err));
    lam_code code = place(a, out, err);
    lam_store_unlock(a->store);
    return code;
}

lam_code lam_store_add(lam_store *s, const char *source, const lam_store_add_options *options, lam_store_result *out, lam_error *err)
{
    const lam_store_add_options none = {0};
    struct adding a = {.store = s, .source = source, .options = options ? options : &none, .piece = {.kind = LAM_STORE_FOREIGN}};
    lam_error why = {0};
    *out = (lam_store_result){.kind = LAM_STORE_FOREIGN};
    lam_code code = add(&a, out, &why);
    lam_recipe_free(a.recipe);
    lam_piece_release(&a.piece);
    lam_cache_release(&a.base);
    lam_free(a.base_path);
    lam_work_close(&a.work);
    if (code == LAM_OK) return LAM_OK;
    struct lam_change change = {.op = "add", .name = a.name[0] ? a.name : NULL};
    if (!a.recorded) lam_change_failed(s, &change, &why);
    *out = (lam_store_result){.kind = LAM_STORE_FOREIGN};
    if (err) *err = why;
    return code;
}
