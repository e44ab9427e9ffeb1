/* Looking for everything that is wrong with a store. */
#include "store/fsck.h"
#include "base/alloc.h"
#include "base/os.h"
#include "compose/faults.h"
#include "compose/manifest.h"
#include "store/active.h"
#include "store/config.h"
#include "store/history.h"
#include "store/index.h"
#include "store/known.h"
#include "store/reach.h"
#include "store/records.h"

#include <stdio.h>
#include <string.h>

#define BLOB_MODE 0444
#define SUBJECT 200

struct look {
    struct lam_store *store;
    lam_fault_list *found;
    struct lam_reach reach;
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

/* A failure is a fault, unless it is one of this machine now. */
static lam_code keep(struct look *l, const char *subject, lam_code code, const lam_error *why, lam_error *err)
{
    if (code == LAM_OK) return LAM_OK;
    if (code == LAM_E_NO_MEMORY || code == LAM_E_CANCELLED) {
        if (err) *err = *why;
        return code;
    }
    lam_fault_list_add_error(l->found, subject, why);
    return LAM_OK;
}

/* ---- the folder ---- */

static bool is_known(const char *name)
{
    static const char *const known[] = {"blobs", LAM_STORE_LAYOUT, LAM_STORE_INDEX, LAM_STORE_ACTIVE, LAM_STORE_USED, LAM_STORE_JOURNAL, LAM_STORE_AUDIT,
                                        LAM_STORE_LOCK, LAM_STORE_TMP, LAM_STORE_PARTIAL, LAM_STORE_LOST, LAM_STORE_KNOWN};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0) return true;
    return false;
}

static bool is_folder_name(const char *name)
{
    for (size_t i = 0; i < sizeof lam_store_folders / sizeof *lam_store_folders; i++)
        if (strcmp(name, lam_store_folders[i]) == 0) return true;
    return false;
}

/* Whether a folder is told as a link: what it leads to is not looked at. */
static bool is_link(const struct look *l, const char *folder)
{
    for (size_t i = 0; i < l->found->n; i++)
        if (l->found->items[i].code == LAM_E_STORE_LINK && strcmp(l->found->items[i].subject, folder) == 0) return true;
    return false;
}

static bool is_held(const char *path)
{
    struct lam_lock *lock = NULL;
    bool held = lam_lock_try(path, LAM_LOCK_EXCLUSIVE, &lock, NULL) == LAM_OK && !lock;
    lam_unlock(lock);
    return held;
}

static lam_code look_at_entry(struct look *l, const char *name, lam_error *err)
{
    char *path;
    struct lam_file_info info;
    LAM_TRY(lam_store_path(l->store, name, &path, err));
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && lam_store_is_leftover(name)) {
        if (!is_held(path)) lam_fault_list_add(l->found, LAM_E_STORE_TEMPORARY, name, "was left half written");
    } else if (code == LAM_OK && !is_known(name)) {
        lam_fault_list_add(l->found, LAM_E_STORE_STRAY, name, "does not belong to a store");
    } else if (code == LAM_OK && !(is_folder_name(name) ? info.is_dir : info.is_plain)) {
        lam_fault_list_add(l->found, LAM_E_STORE_LINK, name, "is a link, or no %s", is_folder_name(name) ? "folder" : "plain file");
    }
    lam_free(path);
    return code;
}

static lam_code look_at_root(struct look *l, lam_error *err)
{
    char **names;
    size_t n;
    LAM_TRY(lam_list_dir(l->store->folder, &names, &n, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) code = look_at_entry(l, names[i], err);
    lam_free_names(names, n);
    return code;
}

/* A folder in a folder. */
static lam_code look_at_folder(struct look *l, const char *name, lam_error *err)
{
    char *path;
    struct lam_file_info info;
    LAM_TRY(lam_store_path(l->store, name, &path, err));
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && !info.is_dir) lam_fault_list_add(l->found, LAM_E_STORE_LINK, name, "is a link, or no folder");
    lam_free(path);
    return code;
}

/* What lies in partial/ is a plain file. */
static lam_code look_at_partial(struct look *l, lam_error *err)
{
    char *folder, **names = NULL;
    size_t n = 0;
    LAM_TRY(lam_store_path(l->store, LAM_STORE_PARTIAL, &folder, err));
    lam_code code = lam_list_dir(folder, &names, &n, err);
    if (code == LAM_E_NOT_FOUND) code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        char subject[SUBJECT], *path = lam_path_join(folder, names[i]);
        struct lam_file_info info;
        snprintf(subject, sizeof subject, LAM_STORE_PARTIAL "/%.150s", names[i]);
        code = path ? lam_link_info(path, &info, err) : no_memory(err);
        if (code == LAM_OK && !info.is_plain) lam_fault_list_add(l->found, LAM_E_STORE_LINK, subject, "is a link, or no plain file");
        if (code == LAM_E_NOT_FOUND) code = LAM_OK; /* ended meanwhile */
        lam_free(path);
    }
    lam_free_names(names, n);
    lam_free(folder);
    return code;
}

/* blobs/ has one folder. */
static lam_code look_at_blobs_folder(struct look *l, lam_error *err)
{
    char *path, **names, subject[SUBJECT];
    size_t n;
    LAM_TRY(lam_store_path(l->store, "blobs", &path, err));
    lam_code code = lam_list_dir(path, &names, &n, err);
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        snprintf(subject, sizeof subject, "blobs/%.150s", names[i]);
        if (strcmp(names[i], "sha256") == 0) code = look_at_folder(l, subject, err);
        else lam_fault_list_add(l->found, LAM_E_STORE_STRAY, subject, "does not belong to a store");
    }
    lam_free_names(names, n);
    lam_free(path);
    return code;
}

static lam_code add_work(void *context, const char *path, lam_error *err)
{
    struct look *l = context;
    char subject[SUBJECT];
    (void)err;
    snprintf(subject, sizeof subject, LAM_STORE_TMP "/%.150s", lam_path_base(path));
    lam_fault_list_add(l->found, LAM_E_STORE_TEMPORARY, subject, "was left by a process that is gone");
    return LAM_OK;
}

/* ---- what is named ---- */

static lam_code look_at_layout(struct look *l, lam_error *err)
{
    lam_error why;
    return keep(l, LAM_STORE_LAYOUT, lam_store_check_layout(l->store, &why), &why, err);
}

/* A manifest and, of a composition, its configuration; what its blobs lack is told with the blobs. */
static lam_code look_at_manifest(struct look *l, const char *subject, const char *digest, uint64_t size, lam_error *err)
{
    struct lam_artifact a;
    lam_manifest *m = NULL;
    lam_error why;
    lam_code code = lam_artifact_open(l->store, digest, size, &a, &why);
    if (code == LAM_E_STORE_BLOB_BYTES || code == LAM_E_STORE_BLOB_SIZE || code == LAM_E_STORE_LINK) return LAM_OK;
    if (code != LAM_OK) return keep(l, subject, code, &why, err);
    if (a.kind == LAM_STORE_COMPOSITION) code = lam_config_open(l->store, &a, &m, &why);
    lam_manifest_free(m);
    lam_artifact_release(&a);
    bool of_blob = code >= LAM_E_STORE_BLOB_MISSING && code <= LAM_E_STORE_LINK;
    return of_blob ? LAM_OK : keep(l, subject, code, &why, err);
}

static lam_code look_at_index(struct look *l, lam_error *err)
{
    struct lam_index index;
    lam_error why;
    lam_code code = lam_index_read(l->store, &index, &why);
    if (code == LAM_E_STORE_LINK) return LAM_OK; /* told with the folder */
    if (code != LAM_OK) return keep(l, LAM_STORE_INDEX, code, &why, err);
    for (size_t i = 0; code == LAM_OK && i < index.n; i++) {
        char subject[SUBJECT];
        const struct lam_index_entry *e = &index.entries[i];
        if (e->name && lam_name_check(e->name, &why) != LAM_OK) lam_fault_list_add_error(l->found, LAM_STORE_INDEX, &why);
        if (strcmp(e->manifest.media_type, LAM_TYPE_MANIFEST) != 0) continue;
        snprintf(subject, sizeof subject, LAM_STORE_INDEX ": %.150s", e->name ? e->name : e->manifest.digest);
        code = look_at_manifest(l, subject, e->manifest.digest, e->manifest.size, err);
    }
    lam_index_release(&index);
    return code;
}

static lam_code look_at_active(struct look *l, lam_error *err)
{
    struct lam_active active;
    struct lam_artifact a;
    lam_error why;
    lam_code code = lam_active_read(l->store, &active, &why);
    if (code == LAM_E_STORE_LINK) return LAM_OK;
    if (code != LAM_OK) return keep(l, LAM_STORE_ACTIVE, code, &why, err);
    if (!active.generation) return LAM_OK;
    LAM_TRY(look_at_manifest(l, LAM_STORE_ACTIVE, active.manifest, UINT64_MAX, err));
    if (active.previous[0]) LAM_TRY(look_at_manifest(l, LAM_STORE_ACTIVE ": previous", active.previous, UINT64_MAX, err));
    if (lam_artifact_open(l->store, active.manifest, UINT64_MAX, &a, NULL) != LAM_OK) return LAM_OK;
    if (a.kind != LAM_STORE_COMPOSITION || strcmp(a.id, active.composition) != 0)
        lam_fault_list_add(l->found, LAM_E_STORE_ACTIVE, LAM_STORE_ACTIVE, "says composition %s, manifest %s is another", active.composition,
                           active.manifest);
    lam_artifact_release(&a);
    return LAM_OK;
}

/* ---- blobs ---- */

static void tell_bytes(struct look *l, const char *subject, const char *path, const char *found, const struct lam_reached *r)
{
    struct lam_bad_pieces bad;
    char pieces[100] = "";
    lam_error why;
    if (r && r->slm != LAM_STORE_FOREIGN && r->file_root[0]) {
        if (lam_bad_pieces_find(path, r->file_root, &bad, &why) == LAM_OK) {
            snprintf(pieces, sizeof pieces, "; %zu of %zu pieces are bad, the first is %zu", bad.n, bad.n_pieces, bad.n ? bad.list[0] : 0);
            lam_bad_pieces_release(&bad);
        } else {
            snprintf(pieces, sizeof pieces, "; what lies before its pieces is damaged");
        }
    }
    lam_fault_list_add(l->found, LAM_E_STORE_BLOB_BYTES, subject, "hashes to %s%s%s", found, pieces, r ? "" : "; nothing needs it");
}

static lam_code look_into_blob(struct look *l, const char *subject, const char *path, const char *digest, const struct lam_reached *r, lam_error *err)
{
    char found[LAM_DIGEST_TEXT];
    uint64_t size;
    lam_error why;
    lam_code code = lam_blob_hash(l->store, path, "check", found, &size, &why);
    if (code != LAM_OK) return keep(l, subject, code, &why, err);
    if (r && r->size != UINT64_MAX && r->size != size)
        lam_fault_list_add(l->found, LAM_E_STORE_BLOB_SIZE, subject, "has %llu bytes, %llu are expected", (unsigned long long)size,
                           (unsigned long long)r->size);
    else if (strcmp(found, digest) != 0) tell_bytes(l, subject, path, found, r);
    return LAM_OK;
}

static lam_code look_at_blob(struct look *l, const char *folder, const char *name, lam_error *err)
{
    struct lam_file_info info;
    char digest[LAM_DIGEST_TEXT], subject[SUBJECT];
    size_t len = strlen(name);
    snprintf(digest, sizeof digest, "sha256:%.64s", name);
    snprintf(subject, sizeof subject, LAM_STORE_BLOBS "/%.150s", name);
    if (len != 64 || !lam_is_digest(digest)) {
        bool part = len > 5 && strcmp(name + len - 5, ".part") == 0;
        lam_fault_list_add(l->found, part ? LAM_E_STORE_TEMPORARY : LAM_E_STORE_STRAY, subject, "is no blob");
        return LAM_OK;
    }
    char *path = lam_path_join(folder, name);
    if (!path) return no_memory(err);
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && !info.is_plain) {
        lam_fault_list_add(l->found, LAM_E_STORE_LINK, subject, "is a link, or no plain file");
    } else if (code == LAM_OK) {
        if (info.mode != BLOB_MODE)
            lam_fault_list_add(l->found, LAM_E_STORE_BLOB_MODE, subject, "has permissions %o, a blob has 444", info.mode);
        code = look_into_blob(l, subject, path, digest, lam_reach_find(&l->reach, digest), err);
    }
    lam_free(path);
    return code == LAM_E_NOT_FOUND ? LAM_OK : code;
}

static lam_code look_at_blobs(struct look *l, lam_error *err)
{
    char *folder, **names;
    size_t n;
    LAM_TRY(lam_store_path(l->store, LAM_STORE_BLOBS, &folder, err));
    lam_code code = lam_list_dir(folder, &names, &n, err);
    for (size_t i = 0; code == LAM_OK && i < n; i++) code = look_at_blob(l, folder, names[i], err);
    lam_free_names(names, n);
    lam_free(folder);
    return code;
}

static lam_code look_for_missing(struct look *l, lam_error *err)
{
    for (size_t i = 0; i < l->reach.n; i++) {
        const struct lam_reached *r = &l->reach.items[i];
        char subject[SUBJECT];
        lam_error why;
        if (r->is_manifest) continue; /* told as dangling, where it is named */
        snprintf(subject, sizeof subject, LAM_STORE_BLOBS "/%s", r->digest + 7);
        lam_code code = lam_blob_check(l->store, r->digest, UINT64_MAX, &why);
        if (code == LAM_E_STORE_BLOB_MISSING) LAM_TRY(keep(l, subject, code, &why, err));
    }
    return LAM_OK;
}

/* Manifests that cannot be read are told where they are named. */
static lam_code pass_over(void *context, const char *digest, const lam_error *why, lam_error *err)
{
    (void)context, (void)digest, (void)why, (void)err;
    return LAM_OK;
}

/* ---- records ---- */

/* Walks a record file; what is broken is told. */
static lam_code look_at_records(struct look *l, const struct lam_record_file *file, lam_record_fn each, void *context, lam_error *err)
{
    uint64_t n, torn = 0;
    lam_error why;
    lam_code code = lam_record_walk(l->store, file, each, context, &n, &torn, &why);
    if (code == LAM_E_STORE_LINK) return LAM_OK;
    if (code == LAM_OK && torn)
        lam_fault_list_add(l->found, LAM_E_STORE_TEMPORARY, file->name, "ends with %llu bytes of a line that was not finished", (unsigned long long)torn);
    return keep(l, file->name, code, &why, err);
}

/* A change that was begun, while its end has not come. */
struct open_change {
    struct look *look;
    json_int_t seq;   /* 0: none */
    char op[40];
};

static void tell_open(const struct open_change *c)
{
    if (c->seq)
        lam_fault_list_add(c->look->found, LAM_E_STORE_UNFINISHED, LAM_STORE_JOURNAL, "line %lld: %s was begun and not ended", (long long)c->seq, c->op);
}

static lam_code follow_change(void *context, const json_t *line, lam_error *err)
{
    struct open_change *c = context;
    const char *phase = json_string_value(json_object_get(line, "phase")), *op = json_string_value(json_object_get(line, "op"));
    (void)err;
    if (phase && strcmp(phase, "begin") == 0) {
        tell_open(c);
        c->seq = json_integer_value(json_object_get(line, "seq"));
        snprintf(c->op, sizeof c->op, "%.39s", op ? op : "a change");
    } else if (json_integer_value(json_object_get(line, "begin")) == c->seq) {
        c->seq = 0;
    }
    return LAM_OK;
}

static lam_code look_at_journal(struct look *l, lam_error *err)
{
    struct open_change c = {.look = l};
    LAM_TRY(look_at_records(l, &lam_journal, follow_change, &c, err));
    tell_open(&c);
    return LAM_OK;
}

static bool is_told(const struct look *l, lam_code code)
{
    for (size_t i = 0; i < l->found->n; i++)
        if (l->found->items[i].code == code) return true;
    return false;
}

/* Files that are well each by itself, next to one another. */
static lam_code look_at_history(struct look *l, lam_error *err)
{
    lam_error why;
    if (is_told(l, LAM_E_STORE_AUDIT) || is_told(l, LAM_E_STORE_JOURNAL) || is_link(l, LAM_STORE_AUDIT) || is_link(l, LAM_STORE_JOURNAL)) return LAM_OK;
    lam_code code = lam_history_check_records(l->store, &why);
    LAM_TRY(keep(l, code == LAM_E_STORE_JOURNAL ? LAM_STORE_JOURNAL : LAM_STORE_AUDIT, code, &why, err));
    if (is_told(l, LAM_E_STORE_ACTIVE) || is_link(l, LAM_STORE_ACTIVE)) return LAM_OK;
    return keep(l, LAM_STORE_ACTIVE, lam_history_check_active(l->store, &why), &why, err);
}

static lam_code look(struct look *l, lam_error *err)
{
    LAM_TRY(look_at_root(l, err));
    LAM_TRY(look_at_layout(l, err));
    LAM_TRY(look_at_records(l, &lam_audit, NULL, NULL, err));
    LAM_TRY(look_at_journal(l, err));
    LAM_TRY(look_at_index(l, err));
    LAM_TRY(look_at_active(l, err));
    LAM_TRY(look_at_history(l, err));
    lam_code code = lam_reach_read(l->store, pass_over, NULL, &l->reach, NULL);
    if (code == LAM_E_NO_MEMORY) return no_memory(err);
    if (!is_link(l, "blobs")) LAM_TRY(look_at_blobs_folder(l, err));
    if (!is_link(l, "blobs") && !is_link(l, LAM_STORE_BLOBS)) {
        LAM_TRY(look_at_blobs(l, err));
        LAM_TRY(look_for_missing(l, err));
    }
    if (!is_link(l, LAM_STORE_PARTIAL)) LAM_TRY(look_at_partial(l, err));
    return is_link(l, LAM_STORE_TMP) ? LAM_OK : lam_work_leftovers(l->store, add_work, l, err);
}

lam_code lam_fsck_look(struct lam_store *s, lam_fault_list *found, lam_error *err)
{
    struct look l = {.store = s, .found = found};
    lam_code code = look(&l, err);
    lam_reach_release(&l.reach);
    return code;
}

lam_code lam_store_fsck_from(struct lam_store *s, bool repair, const struct lam_repair_source *source, lam_fault_list *found,
                             lam_fault_list *left, lam_error *err)
{
    LAM_TRY(lam_store_lock_as_is(s, err));
    lam_code code = lam_fsck_look(s, found, err);
    if (code == LAM_OK && repair && found->n) {
        code = lam_fsck_repair(s, found, source, err);
        if (code == LAM_OK) code = lam_fsck_look(s, left, err);
    }
    lam_store_unlock(s);
    return code == LAM_OK ? lam_fault_list_error(repair ? left : found, s->folder, err) : code;
}

lam_code lam_store_fsck(lam_store *s, bool repair, lam_fault_list *found, lam_fault_list *left, lam_error *err)
{
    return lam_store_fsck_from(s, repair, NULL, found, left, err);
}
