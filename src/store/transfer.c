#include "store/transfer.h"
#include "base/alloc.h"
#include "base/os.h"
#include "store/active.h"
#include "store/naming.h"
#include "store/reach.h"
#include "store/resolve.h"

#include <stdio.h>
#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

/* Copied, hashed on the way, and placed only if it is what it is called. */
static lam_code copy_blob(const struct lam_store *from, struct lam_store *to, struct lam_work *w, const struct lam_reached *blob, lam_error *err)
{
    char *path;
    struct lam_staged staged;
    LAM_TRY(lam_blob_check(from, blob->digest, blob->size, err));
    LAM_TRY(lam_blob_path(from, blob->digest, &path, err));
    lam_code code = lam_blob_stage_copy(to, w, path, &staged, err);
    lam_free(path);
    if (code != LAM_OK) return code;
    if (strcmp(staged.digest, blob->digest) == 0) code = lam_blob_place(to, &staged, err);
    else code = LAM_RAISE(err, LAM_E_STORE_BLOB_BYTES, "%s: the blob's bytes hash to %s", blob->digest, staged.digest);
    lam_staged_release(&staged);
    return code;
}

lam_code lam_transfer(const struct lam_store *from, struct lam_store *to, struct lam_work *w, const char *digest, lam_error *err)
{
    struct lam_reach reach;
    LAM_TRY(lam_reach_from(from, digest, &reach, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < reach.n; i++) code = copy_blob(from, to, w, &reach.items[i], err);
    lam_reach_release(&reach);
    return code;
}

lam_code lam_artifact_verify(const struct lam_store *s, const struct lam_artifact *a, lam_error *err)
{
    LAM_TRY(lam_layers_verify(s, a, err));
    return a->kind == LAM_STORE_COMPOSITION ? lam_recipe_check(s, a, err) : LAM_OK;
}

/* ---- between two folders ---- */

/* One artefact gets into `to`, checked, under a name. */
static lam_code take(const struct lam_store *from, struct lam_store *to, struct lam_work *w, const char *digest, const char *op, const char *name,
                     bool may_move, lam_store_result *out, lam_error *err)
{
    struct lam_artifact a;
    *out = (lam_store_result){.kind = LAM_STORE_FOREIGN};
    LAM_TRY(lam_transfer(from, to, w, digest, err));
    LAM_TRY(lam_artifact_open(to, digest, UINT64_MAX, &a, err));
    lam_code code = lam_artifact_verify(to, &a, err);
    if (code == LAM_OK) {
        struct lam_naming naming = {.op = op, .name = name, .may_move = may_move, .kind = a.kind, .digest = a.digest, .size = a.size};
        code = lam_name_manifest(to, &naming, out, err);
        if (a.id) memcpy(out->id, a.id, LAM_DIGEST_TEXT);
    }
    lam_artifact_release(&a);
    return code;
}

/* The name that reference is, or one that some index entry has for the digest, or its first digits. */
static lam_code name_for(const struct lam_store *s, const char *reference, const char *digest, char out[132], lam_error *err)
{
    struct lam_index index;
    LAM_TRY(lam_index_read(s, &index, err));
    const char *name = lam_index_find(&index, reference) ? reference : NULL;
    for (size_t i = 0; !name && i < index.n; i++)
        if (strcmp(index.entries[i].manifest.digest, digest) == 0) name = index.entries[i].name;
    if (name) snprintf(out, 132, "%s", name);
    else snprintf(out, 132, "%.12s", digest + 7);
    lam_index_release(&index);
    return LAM_OK;
}

static lam_code export_to(struct lam_store *s, struct lam_store *to, const char *reference, lam_store_result *out, lam_error *err)
{
    struct lam_work w;
    char digest[LAM_DIGEST_TEXT], name[132];
    LAM_TRY(lam_store_resolve(s, reference, digest, err));
    LAM_TRY(name_for(s, reference, digest, name, err));
    LAM_TRY(lam_work_open(to, &w, err));
    lam_code code = lam_store_lock(to, err);
    if (code == LAM_OK) {
        code = take(s, to, &w, digest, "export", name, true, out, err);
        lam_store_unlock(to);
    }
    lam_work_close(&w);
    return code;
}

lam_code lam_store_export(lam_store *s, const char *reference, const char *folder, lam_store_result *out, lam_error *err)
{
    lam_store_options options = {.folder = folder, .reason = s->reason, .progress = s->progress, .progress_context = s->progress_context};
    struct lam_store *to;
    *out = (lam_store_result){.kind = LAM_STORE_FOREIGN};
    LAM_TRY(lam_store_open(&options, true, &to, err));
    lam_code code = export_to(s, to, reference, out, err);
    lam_store_close(to);
    return code;
}

/* The index's artefacts of ours. */
static lam_code import_all(struct lam_store *s, const struct lam_store *from, const struct lam_index *index, const char *name,
                           lam_store_result *results, size_t *n, lam_error *err)
{
    struct lam_work w;
    LAM_TRY(lam_work_open(s, &w, err));
    lam_code code = lam_store_lock(s, err);
    bool locked = code == LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < index->n; i++) {
        const struct lam_index_entry *e = &index->entries[i];
        struct lam_artifact a;
        char digits[132];
        code = lam_artifact_open(from, e->manifest.digest, e->manifest.size, &a, err);
        if (code != LAM_OK) break;
        lam_store_kind kind = a.kind;
        lam_artifact_release(&a);
        if (kind == LAM_STORE_FOREIGN) continue;
        snprintf(digits, sizeof digits, "%.12s", e->manifest.digest + 7);
        code = take(from, s, &w, e->manifest.digest, "import", name ? name : e->name ? e->name : digits, name != NULL, &results[*n], err);
        *n += code == LAM_OK;
    }
    if (locked) lam_store_unlock(s);
    lam_work_close(&w);
    return code;
}

lam_code lam_store_import(lam_store *s, const char *folder, const char *name, lam_store_result **results, size_t *n, lam_error *err)
{
    lam_store_options options = {.folder = folder};
    struct lam_store *from;
    struct lam_index index;
    lam_error why = {0};
    *results = NULL;
    *n = 0;
    LAM_TRY(lam_store_open(&options, false, &from, err));
    lam_code code = lam_index_read(from, &index, &why);
    if (code == LAM_OK) {
        lam_store_result *list = lam_alloc(index.n, sizeof *list);
        if (!list) code = no_memory(&why);
        else if (name && index.n != 1) code = LAM_RAISE(&why, LAM_E_ARGUMENT, "%s holds %zu things; one name fits one", folder, index.n);
        else code = import_all(s, from, &index, name, list, n, &why);
        if (code == LAM_OK && *n == 0) code = LAM_RAISE(&why, LAM_E_NOT_FOUND, "%s holds no base, adapter or composition", folder);
        if (code == LAM_OK) *results = list;
        else lam_free(list), *n = 0;
        lam_index_release(&index);
    }
    lam_store_close(from);
    if (code == LAM_OK) return LAM_OK;
    struct lam_change change = {.op = "import", .name = name};
    lam_change_failed(s, &change, &why);
    if (err) *err = why;
    return code;
}
