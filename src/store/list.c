/* What the store holds: its names, and one thing in full. */
#include "base/alloc.h"
#include "base/str.h"
#include "store/active.h"
#include "store/index.h"
#include "store/resolve.h"

#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

void lam_store_free_list(lam_store_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) lam_free(entries[i].name);
    lam_free(entries);
}

static lam_code describe(const struct lam_store *s, const char *name, const char *digest, uint64_t size, const struct lam_active *active,
                         lam_store_entry *out, lam_error *err)
{
    struct lam_artifact a;
    *out = (lam_store_entry){.kind = LAM_STORE_FOREIGN, .active = strcmp(digest, active->manifest) == 0};
    memcpy(out->digest, digest, LAM_DIGEST_TEXT);
    if (name && !(out->name = lam_strdup(name))) return no_memory(err);
    if (out->name) lam_clean_line(out->name); /* another tool may have written anything there */
    out->damage = lam_artifact_open(s, digest, size, &a, err);
    if (out->damage != LAM_OK) return out->damage == LAM_E_NO_MEMORY ? LAM_E_NO_MEMORY : LAM_OK;
    out->kind = a.kind;
    if (a.id) memcpy(out->id, a.id, LAM_DIGEST_TEXT);
    out->bytes = a.size + a.config.size;
    for (size_t i = 0; i < a.n_layers; i++) out->bytes += a.layers[i].size;
    lam_artifact_release(&a);
    return LAM_OK;
}

/* The index's entries, then what active.json names besides. */
static lam_code fill(const struct lam_store *s, const struct lam_index *index, const struct lam_active *active, lam_store_entry *list, size_t *n,
                     lam_error *err)
{
    const char *others[] = {active->manifest, active->previous};
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < index->n; i++)
        code = describe(s, index->entries[i].name, index->entries[i].manifest.digest, index->entries[i].manifest.size, active, &list[(*n)++], err);
    for (size_t k = 0; code == LAM_OK && k < 2; k++) {
        bool there = !others[k][0];
        for (size_t i = 0; i < *n; i++) there |= strcmp(list[i].digest, others[k]) == 0;
        if (!there) code = describe(s, NULL, others[k], UINT64_MAX, active, &list[(*n)++], err);
    }
    return code;
}

lam_code lam_store_list(lam_store *s, lam_store_entry **entries, size_t *n, lam_error *err)
{
    struct lam_index index;
    struct lam_active active;
    *entries = NULL;
    *n = 0;
    LAM_TRY(lam_active_read(s, &active, err));
    LAM_TRY(lam_index_read(s, &index, err));
    lam_store_entry *list = lam_alloc(index.n + 2, sizeof *list);
    lam_code code = list ? fill(s, &index, &active, list, n, err) : no_memory(err);
    lam_index_release(&index);
    if (code == LAM_OK) *entries = list;
    else lam_store_free_list(list, *n), *n = 0;
    return code;
}

lam_code lam_store_active(lam_store *s, lam_store_state *out, lam_error *err)
{
    struct lam_active a;
    *out = (lam_store_state){0};
    LAM_TRY(lam_active_read(s, &a, err));
    out->generation = a.generation;
    memcpy(out->manifest, a.manifest, LAM_DIGEST_TEXT);
    memcpy(out->composition_id, a.composition, LAM_DIGEST_TEXT);
    memcpy(out->previous, a.previous, LAM_DIGEST_TEXT);
    return LAM_OK;
}

lam_code lam_store_show(lam_store *s, const char *reference, char **json, lam_error *err)
{
    struct lam_artifact a;
    struct lam_str config = {0}, text = {0};
    json_t *about = NULL, *parsed = NULL;
    *json = NULL;
    LAM_TRY(lam_resolve_open(s, reference, &a, err));
    lam_code code = LAM_OK;
    if (a.kind == LAM_STORE_COMPOSITION) {
        code = lam_blob_read(s, a.config.digest, a.config.size, &config, err);
        if (code == LAM_OK) code = lam_json_parse(config.data, config.len, a.config.digest, &parsed, err);
    }
    if (code == LAM_OK) {
        about = json_pack("{s:s,s:s,s:s*,s:O,s:O*}", "digest", a.digest, "kind", lam_store_kind_name(a.kind), "id", a.id, "manifest", a.root,
                          "composition", parsed);
        code = about ? lam_json_canonical(about, &text, err) : no_memory(err);
    }
    json_decref(about);
    json_decref(parsed);
    lam_str_release(&config);
    lam_artifact_release(&a);
    if (code == LAM_OK) *json = text.data;
    else lam_str_release(&text);
    return code;
}
