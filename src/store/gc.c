/* Removing what nobody needs. */
#include "base/alloc.h"
#include "base/os.h"
#include "compose/manifest.h"
#include "store/change.h"
#include "store/reach.h"
#include "store/recover.h"

#include <stdio.h>
#include <string.h>

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

struct sweep {
    struct lam_store *store;
    struct lam_reach reach;
    char **names;          /* [n_names], owned: the files of the blobs' folder; those that stay have become "" */
    size_t n_names, n_doomed;
    struct lam_change change;
    lam_store_swept *out;
};

/* ---- temporaries ---- */

static lam_code remove_work(void *context, const char *path, lam_error *err)
{
    struct sweep *w = context;
    w->out->n_temporaries++;
    return lam_work_remove(path, err);
}

/* Removes the file, unless a process holds it. A link is removed itself; a folder stays, it is for fsck. */
static lam_code remove_unheld(struct sweep *w, const char *path, bool *removed, lam_error *err)
{
    struct lam_lock *alone = NULL;
    struct lam_file_info info;
    *removed = false;
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && info.is_dir) return LAM_OK;
    if (code == LAM_OK && info.is_plain) code = lam_lock_try(path, LAM_LOCK_EXCLUSIVE, &alone, err);
    if (code == LAM_E_NOT_FOUND) return LAM_OK;
    if (code != LAM_OK) return code;
    if (info.is_plain && !alone) w->out->n_in_use++;
    else code = lam_remove_file(path, err);
    *removed = (alone || !info.is_plain) && code == LAM_OK;
    lam_unlock(alone);
    return code;
}

/* The files of a folder of the store that `is` picks. */
static lam_code remove_files(struct sweep *w, const char *folder, bool (*is)(const char *name), lam_error *err)
{
    char *path, **names;
    size_t n;
    LAM_TRY(lam_store_path(w->store, folder, &path, err));
    lam_code code = lam_list_dir(path, &names, &n, err);
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        char *file = is(names[i]) ? lam_path_join(path, names[i]) : NULL;
        bool removed = false;
        if (is(names[i])) code = file ? remove_unheld(w, file, &removed, err) : no_memory(err);
        w->out->n_temporaries += removed;
        lam_free(file);
    }
    lam_free_names(names, n);
    lam_free(path);
    return code == LAM_E_NOT_FOUND ? LAM_OK : code;
}

static bool any(const char *name) { return *name != 0; }

static lam_code sweep_temporaries(struct sweep *w, lam_error *err)
{
    LAM_TRY(lam_work_leftovers(w->store, remove_work, w, err));
    LAM_TRY(remove_files(w, "", lam_store_is_leftover, err));
    return remove_files(w, LAM_STORE_PARTIAL, any, err);
}

/* ---- blobs ---- */

static lam_code find_doomed(struct sweep *w, lam_error *err)
{
    char *folder;
    LAM_TRY(lam_store_path(w->store, LAM_STORE_BLOBS, &folder, err));
    lam_code code = lam_list_dir(folder, &w->names, &w->n_names, err);
    lam_free(folder);
    for (size_t i = 0; code == LAM_OK && i < w->n_names; i++) {
        char digest[LAM_DIGEST_TEXT];
        snprintf(digest, sizeof digest, "sha256:%.64s", w->names[i]);
        bool blob = strlen(w->names[i]) == 64 && lam_is_digest(digest); /* what is no blob is for fsck */
        if (!blob || lam_reach_find(&w->reach, digest)) w->names[i][0] = 0;
        else w->n_doomed++;
    }
    return code;
}

static lam_code remove_blob(struct sweep *w, const char *name, lam_error *err)
{
    struct lam_file_info info;
    char digest[LAM_DIGEST_TEXT], *path;
    bool removed;
    snprintf(digest, sizeof digest, "sha256:%.64s", name);
    LAM_TRY(lam_blob_path(w->store, digest, &path, err));
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && info.is_plain) {
        code = remove_unheld(w, path, &removed, err);
        w->out->n_blobs += removed;
        if (removed) w->out->bytes += info.size;
    }
    lam_free(path);
    return code == LAM_E_NOT_FOUND ? LAM_OK : code;
}

/* The records tell of it before, unless the disk is full: then there is room for them after it. */
static lam_code begin(struct sweep *w, lam_error *err)
{
    lam_code code = lam_store_recover(w->store, err);
    return code == LAM_OK ? lam_change_begin(w->store, &w->change, err) : code;
}

static lam_code remove_blobs(struct sweep *w, lam_error *err)
{
    char *folder;
    lam_code code = begin(w, err);
    if (code != LAM_OK && code != LAM_E_NO_SPACE) return code;
    code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < w->n_names; i++)
        if (w->names[i][0]) code = remove_blob(w, w->names[i], err);
    if (code == LAM_OK) code = lam_store_path(w->store, LAM_STORE_BLOBS, &folder, err);
    if (code == LAM_OK) {
        code = lam_sync_folder(folder, err);
        lam_free(folder);
    }
    if (code == LAM_OK && !w->change.seq) code = begin(w, err);
    return code;
}

static lam_code sweep(struct sweep *w, lam_error *err)
{
    lam_error why;
    LAM_TRY(lam_reach_read(w->store, NULL, NULL, &w->reach, err));
    LAM_TRY(sweep_temporaries(w, err));
    LAM_TRY(find_doomed(w, err));
    if (w->n_doomed == 0) return lam_store_recover(w->store, err);
    lam_code code = remove_blobs(w, &why);
    if (code == LAM_OK) return lam_change_end(w->store, &w->change, "done", NULL, err);
    if (err) *err = why;
    return lam_change_failed(w->store, &w->change, &why);
}

lam_code lam_store_gc(lam_store *s, lam_store_swept *out, lam_error *err)
{
    struct sweep w = {.store = s, .change = {.op = "gc"}, .out = out};
    *out = (lam_store_swept){0};
    LAM_TRY(lam_store_lock_as_is(s, err));
    lam_code code = lam_store_check_folders(s, err);
    if (code == LAM_OK) code = sweep(&w, err);
    lam_free_names(w.names, w.n_names);
    lam_reach_release(&w.reach);
    lam_store_unlock(s);
    return code;
}
