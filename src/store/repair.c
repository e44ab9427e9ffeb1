/* Putting right what lam_fsck_look found. */
#include "base/alloc.h"
#include "base/durable.h"
#include "base/os.h"
#include "compose/manifest.h"
#include "store/active.h"
#include "store/change.h"
#include "store/fsck.h"
#include "store/index.h"
#include "store/reach.h"
#include "store/records.h"
#include "store/recover.h"

#include <stdio.h>
#include <string.h>

#define BLOB_MODE 0444

struct repair {
    struct lam_store *store;
    const lam_fault_list *found;
    const struct lam_repair_source *source; /* may be NULL */
    struct lam_work work;
    struct lam_reach reach;
    bool reach_known;
    struct lam_active active; /* what was published; generation 0: nothing was */
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

/* Moves folder/name to lost/, under a name that is free there. */
static lam_code set_aside(const struct lam_store *s, const char *name, lam_error *err)
{
    char *from, *lost, *to = NULL;
    LAM_TRY(lam_store_path(s, name, &from, err));
    lam_code code = lam_store_path(s, LAM_STORE_LOST, &lost, err);
    if (code == LAM_OK) {
        code = lam_make_dirs(lost, err);
        for (unsigned n = 1; code == LAM_OK; n++) {
            struct lam_str path = {0};
            if (!lam_str_printf(&path, "%s/%s-%u", lost, lam_path_base(name), n)) code = no_memory(err);
            to = path.data;
            if (code != LAM_OK || !lam_path_exists(to)) break;
            lam_free(to);
        }
        if (code == LAM_OK) code = lam_move(from, to, err);
        lam_free(to);
        lam_free(lost);
    }
    lam_free(from);
    return code;
}

static bool has(const lam_fault_list *found, lam_code code, const char *subject)
{
    for (size_t i = 0; i < found->n; i++)
        if (found->items[i].code == code && (!subject || strcmp(found->items[i].subject, subject) == 0)) return true;
    return false;
}

/* ---- records ---- */

static lam_code repair_records(struct repair *r, lam_error *err)
{
    const struct lam_record_file *const files[] = {&lam_audit, &lam_journal};
    bool aside = false; /* a journal whose audit is gone would tell of changes that the new one lacks */
    for (size_t i = 0; i < 2; i++) {
        aside |= has(r->found, files[i]->damaged, files[i]->name) || has(r->found, LAM_E_STORE_LINK, files[i]->name);
        lam_code code = aside ? set_aside(r->store, files[i]->name, err) : LAM_OK;
        if (code != LAM_OK && code != LAM_E_NOT_FOUND) return code;
    }
    return LAM_OK;
}

/* ---- index.json from the audit ---- */

struct names {
    json_t *digests; /* name → digest */
};

static bool took_place(const json_t *line)
{
    const char *outcome = json_string_value(json_object_get(line, "outcome"));
    return outcome && (strcmp(outcome, "done") == 0 || strcmp(outcome, "recovered") == 0);
}

static lam_code take_name(void *context, const json_t *line, lam_error *err)
{
    struct names *names = context;
    const char *name = json_string_value(json_object_get(line, "name"));
    json_t *to = json_object_get(line, "to");
    if (!name || json_object_get(line, "generation") || !took_place(line)) return LAM_OK;
    if (!to) json_object_del(names->digests, name);
    else if (json_object_set(names->digests, name, to) != 0) return no_memory(err);
    return LAM_OK;
}

static lam_code rebuild_index(struct repair *r, lam_error *err)
{
    uint64_t n, torn;
    const char *name;
    json_t *digest, *empty = json_pack("{s:i,s:s,s:[]}", "schemaVersion", 2, "mediaType", LAM_TYPE_INDEX, "manifests");
    struct names names = {json_object()};
    lam_code code = empty && names.digests ? lam_record_walk(r->store, &lam_audit, take_name, &names, &n, &torn, err) : no_memory(err);
    if (code == LAM_E_STORE_AUDIT) code = LAM_OK; /* what is before the broken line holds */
    if (code == LAM_OK) code = set_aside(r->store, LAM_STORE_INDEX, err);
    if (code == LAM_E_NOT_FOUND) code = LAM_OK;
    if (code == LAM_OK) code = lam_store_write_json(r->store, LAM_STORE_INDEX, empty, err);
    json_object_foreach(names.digests, name, digest) {
        struct lam_artifact a;
        if (code != LAM_OK || lam_artifact_open(r->store, json_string_value(digest), UINT64_MAX, &a, NULL) != LAM_OK) continue;
        code = lam_index_set(r->store, name, lam_artifact_type(a.kind), a.digest, a.size, err);
        lam_artifact_release(&a);
    }
    json_decref(empty);
    json_decref(names.digests);
    return code;
}

/* Takes away names for manifests that are not there any more; and from the others what is no name, while they stay. */
static lam_code prune_index(struct repair *r, lam_error *err)
{
    struct lam_index index;
    LAM_TRY(lam_index_read(r->store, &index, err));
    json_t *list = json_object_get(index.root, "manifests");
    bool changed = false;
    for (size_t i = index.n; i-- > 0;) {
        if (index.entries[i].name && lam_name_check(index.entries[i].name, NULL) != LAM_OK) {
            json_object_del(json_object_get(json_array_get(list, i), "annotations"), LAM_NOTE_NAME);
            changed = true;
        }
        if (lam_blob_check(r->store, index.entries[i].manifest.digest, UINT64_MAX, NULL) != LAM_E_STORE_BLOB_MISSING) continue;
        json_array_remove(list, i);
        changed = true;
    }
    lam_code code = changed ? lam_store_write_json(r->store, LAM_STORE_INDEX, index.root, err) : LAM_OK;
    lam_index_release(&index);
    return code;
}

static lam_code repair_index(struct repair *r, lam_error *err)
{
    if (has(r->found, LAM_E_STORE_INDEX, NULL) || has(r->found, LAM_E_STORE_LINK, LAM_STORE_INDEX)) LAM_TRY(rebuild_index(r, err));
    return has(r->found, LAM_E_STORE_DANGLING, NULL) || has(r->found, LAM_E_STORE_NAME, LAM_STORE_INDEX) ? prune_index(r, err) : LAM_OK;
}

/* ---- active.json from the audit ---- */

struct history {
    struct lam_store *store;
    struct lam_active best;      /* the last one that is whole */
    uint64_t last;               /* the highest generation that was ever published */
};

/* Whether a composition and all its blobs are there. */
static bool is_whole(const struct lam_store *s, const char *digest, char id[LAM_DIGEST_TEXT])
{
    struct lam_artifact a;
    if (!lam_is_digest(digest) || lam_artifact_open(s, digest, UINT64_MAX, &a, NULL) != LAM_OK) return false;
    bool whole = a.kind == LAM_STORE_COMPOSITION && lam_blob_check(s, a.config.digest, a.config.size, NULL) == LAM_OK;
    for (size_t i = 0; whole && i < a.n_layers; i++) whole = lam_blob_check(s, a.layers[i].digest, a.layers[i].size, NULL) == LAM_OK;
    if (whole) memcpy(id, a.id, LAM_DIGEST_TEXT);
    lam_artifact_release(&a);
    return whole;
}

static lam_code take_active(void *context, const json_t *line, lam_error *err)
{
    struct history *h = context;
    const char *to = json_string_value(json_object_get(line, "to"));
    json_int_t generation = json_integer_value(json_object_get(line, "generation"));
    char id[LAM_DIGEST_TEXT];
    (void)err;
    if (generation <= 0 || !to || !took_place(line)) return LAM_OK;
    if ((uint64_t)generation > h->last) h->last = (uint64_t)generation;
    if (strcmp(h->best.manifest, to) == 0 || !is_whole(h->store, to, id)) return LAM_OK;
    memcpy(h->best.previous, h->best.manifest, LAM_DIGEST_TEXT);
    memcpy(h->best.manifest, to, LAM_DIGEST_TEXT);
    memcpy(h->best.composition, id, LAM_DIGEST_TEXT);
    return LAM_OK;
}

static lam_code publish(struct repair *r, const struct lam_active *active, lam_error *err)
{
    struct lam_writer *w;
    LAM_TRY(lam_active_stage(r->store, active, &w, err));
    return lam_writer_commit(w, err);
}

/* The last composition that was active and is whole, as a new generation; none if there is no such one. */
static lam_code rebuild_active(struct repair *r, lam_error *err)
{
    struct history h = {.store = r->store};
    uint64_t n, torn;
    lam_code code = lam_record_walk(r->store, &lam_audit, take_active, &h, &n, &torn, err);
    if (code != LAM_OK && code != LAM_E_STORE_AUDIT) return code;
    code = set_aside(r->store, LAM_STORE_ACTIVE, err);
    if (code != LAM_OK && code != LAM_E_NOT_FOUND) return code;
    h.best.generation = h.last + 1;
    r->active = h.best;
    return h.best.manifest[0] ? publish(r, &h.best, err) : LAM_OK;
}

static lam_code repair_active(struct repair *r, lam_error *err)
{
    struct lam_active active;
    if (has(r->found, LAM_E_STORE_ACTIVE, NULL) || has(r->found, LAM_E_STORE_LINK, LAM_STORE_ACTIVE) ||
        has(r->found, LAM_E_STORE_DANGLING, LAM_STORE_ACTIVE))
        return rebuild_active(r, err);
    if (!has(r->found, LAM_E_STORE_DANGLING, LAM_STORE_ACTIVE ": previous")) return LAM_OK;
    LAM_TRY(lam_active_read(r->store, &active, err));
    active.previous[0] = 0;
    return publish(r, &active, err);
}

/* ---- blobs and the rest ---- */

/* Good bytes from the source in the place of a blob. */
static lam_code refetch(struct repair *r, const struct lam_reached *blob, const char *path, lam_error *err)
{
    struct lam_bad_pieces bad = {0};
    struct lam_staged staged;
    char *fetched = NULL;
    bool some = blob->slm != LAM_STORE_FOREIGN && blob->file_root[0] && lam_bad_pieces_find(path, blob->file_root, &bad, NULL) == LAM_OK;
    lam_code code = r->source->fetch(r->source->context, r->store, blob, some ? &bad : NULL, &r->work, &fetched, err);
    lam_bad_pieces_release(&bad);
    if (code != LAM_OK) return code;
    LAM_TRY(lam_blob_stage_made(r->store, fetched, &staged, err));
    if (strcmp(staged.digest, blob->digest) == 0) code = lam_blob_place(r->store, &staged, err);
    else code = LAM_RAISE(err, LAM_E_STORE_BLOB_BYTES, "%s: what was fetched hashes to %s", blob->digest, staged.digest);
    lam_staged_release(&staged);
    return code;
}

/* A blob that is damaged or missing: fetched again if it is needed, removed if it is not. What fails is left, and told so. */
static lam_code repair_blob(struct repair *r, const char *subject, const char *path, lam_error *err)
{
    char digest[LAM_DIGEST_TEXT];
    if (!r->reach_known) return LAM_OK;
    snprintf(digest, sizeof digest, "sha256:%.64s", lam_path_base(subject));
    const struct lam_reached *blob = lam_reach_find(&r->reach, digest);
    if (!blob) return lam_remove_file(path, err);
    lam_code code = r->source ? refetch(r, blob, path, err) : LAM_OK;
    return code == LAM_E_NO_MEMORY || code == LAM_E_CANCELLED || code == LAM_E_NO_SPACE ? code : LAM_OK;
}

static lam_code remove_temporary(const char *subject, const char *path, lam_error *err)
{
    if (strcmp(subject, LAM_STORE_JOURNAL) == 0 || strcmp(subject, LAM_STORE_AUDIT) == 0) return LAM_OK; /* recovery cuts it */
    if (strncmp(subject, LAM_STORE_TMP "/", 4) == 0) return lam_work_remove(path, err);
    return lam_remove_file(path, err);
}

static lam_code repair_fault(struct repair *r, const lam_fault *f, lam_error *err)
{
    char *path;
    LAM_TRY(lam_store_path(r->store, f->subject, &path, err));
    lam_code code = LAM_OK;
    switch ((int)f->code) {
    case LAM_E_STORE_BLOB_MODE: code = lam_set_mode(path, BLOB_MODE, err); break;
    case LAM_E_STORE_TEMPORARY: code = remove_temporary(f->subject, path, err); break;
    case LAM_E_STORE_STRAY: code = set_aside(r->store, f->subject, err); break;
    case LAM_E_STORE_LINK:
        if (lam_path_exists(path)) code = set_aside(r->store, f->subject, err);
        if (code == LAM_OK && strncmp(f->subject, LAM_STORE_BLOBS, sizeof LAM_STORE_BLOBS - 1) == 0) code = repair_blob(r, f->subject, path, err);
        break;
    case LAM_E_STORE_BLOB_SIZE: case LAM_E_STORE_BLOB_BYTES: case LAM_E_STORE_BLOB_MISSING: code = repair_blob(r, f->subject, path, err); break;
    case LAM_E_STORE_LAYOUT: case LAM_E_NOT_FOUND:
        if (strcmp(f->subject, LAM_STORE_LAYOUT) == 0) code = lam_store_write_layout(r->store, err);
        break;
    default: break;
    }
    lam_free(path);
    return code;
}

static lam_code run(struct repair *r, lam_error *err)
{
    struct lam_change change = {.op = "repair"};
    LAM_TRY(lam_store_check_folders(r->store, err)); /* what a folder's link leads to is nobody's to put right here */
    LAM_TRY(repair_records(r, err));
    LAM_TRY(repair_index(r, err)); /* before recovery, which reads both */
    LAM_TRY(repair_active(r, err));
    LAM_TRY(lam_store_recover(r->store, err));
    change.generation = r->active.generation; /* the records tell of it as of a switch */
    change.to = r->active.manifest[0] ? r->active.manifest : NULL;
    LAM_TRY(lam_change_begin(r->store, &change, err));
    r->reach_known = lam_reach_read(r->store, NULL, NULL, &r->reach, NULL) == LAM_OK;
    lam_code code = lam_work_open(r->store, &r->work, err);
    for (size_t i = 0; code == LAM_OK && i < r->found->n; i++) code = repair_fault(r, &r->found->items[i], err);
    lam_work_close(&r->work);
    return code == LAM_OK ? lam_change_end(r->store, &change, "done", NULL, err) : code;
}

lam_code lam_fsck_repair(struct lam_store *s, const lam_fault_list *found, const struct lam_repair_source *source, lam_error *err)
{
    struct repair r = {.store = s, .found = found, .source = source};
    lam_code code = run(&r, err);
    lam_reach_release(&r.reach);
    return code;
}
