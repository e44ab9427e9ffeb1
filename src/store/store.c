/* Opening a store, making one, and its lock. */
#include "store/store.h"
#include "base/alloc.h"
#include "base/durable.h"
#include "base/os.h"
#include "base/str.h"
#include "store/known.h"
#include "store/recover.h"

#include <stdlib.h>
#include <string.h>

#define WAIT 0.1 /* seconds between two looks at the lock */
#define LAYOUT_VERSION "1.0.0"

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

lam_code lam_store_folder(const char *folder, char **out, lam_error *err)
{
    const char *own = folder ? folder : getenv("LAMINA_STORE"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (own && *own) *out = lam_strdup(own);
    else if (xdg && *xdg) *out = lam_path_join(xdg, "lamina");
    else if (home && *home) *out = lam_path_join(home, ".local/share/lamina");
    else return LAM_RAISE(err, LAM_E_ARGUMENT, "store: none of LAMINA_STORE, XDG_DATA_HOME and HOME is set");
    return *out ? LAM_OK : no_memory(err);
}

lam_code lam_store_path(const struct lam_store *s, const char *name, char **out, lam_error *err)
{
    *out = lam_path_join(s->folder, name);
    return *out ? LAM_OK : no_memory(err);
}

lam_code lam_store_progress(const struct lam_store *s, const char *stage, uint64_t done, uint64_t total, lam_error *err)
{
    if (!s->progress || s->progress(s->progress_context, stage, done, total)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_CANCELLED, "store: cancelled");
}

/* ---- small files ---- */

static lam_code parse_file(const char *path, lam_code damaged, json_t **out, lam_error *err)
{
    struct lam_file_info info;
    struct lam_mapping file;
    LAM_TRY(lam_link_info(path, &info, err));
    if (!info.is_plain) return LAM_RAISE(err, LAM_E_STORE_LINK, "%s is no plain file", path);
    if (info.size > LAM_STORE_SMALL_MAX)
        return LAM_RAISE(err, damaged, "%s: %llu bytes, %llu at most", path, (unsigned long long)info.size,
                         (unsigned long long)LAM_STORE_SMALL_MAX);
    LAM_TRY(lam_map_file(path, &file, err));
    lam_code code = lam_json_parse(file.data ? (const char *)file.data : "", file.size, path, out, err);
    lam_unmap_file(&file);
    if (code == LAM_E_FORMAT || code == LAM_E_DUPLICATE) {
        if (err) err->code = damaged;
        code = damaged;
    }
    if (code == LAM_OK && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        code = LAM_RAISE(err, damaged, "%s is no JSON object", path);
    }
    return code;
}

lam_code lam_store_read_json(const struct lam_store *s, const char *name, lam_code damaged, json_t **out, lam_error *err)
{
    char *path;
    *out = NULL;
    LAM_TRY(lam_store_path(s, name, &path, err));
    lam_code code = parse_file(path, damaged, out, err);
    lam_free(path);
    return code;
}

lam_code lam_store_stage_json(const struct lam_store *s, const char *name, const json_t *value, struct lam_writer **out, lam_error *err)
{
    char *path;
    struct lam_str text = {0};
    *out = NULL;
    LAM_TRY(lam_store_path(s, name, &path, err));
    lam_code code = lam_json_canonical(value, &text, err);
    if (code == LAM_OK && !lam_str_putc(&text, '\n')) code = no_memory(err);
    if (code == LAM_OK) code = lam_writer_open(path, out, err);
    if (code == LAM_OK) code = lam_writer_write(*out, text.data, text.len, err);
    if (code != LAM_OK) {
        lam_writer_abort(*out);
        *out = NULL;
    }
    lam_str_release(&text);
    lam_free(path);
    return code;
}

lam_code lam_store_write_json(const struct lam_store *s, const char *name, const json_t *value, lam_error *err)
{
    struct lam_writer *w;
    LAM_TRY(lam_store_stage_json(s, name, value, &w, err));
    return lam_writer_commit(w, err);
}

/* ---- folders ---- */

const char *const lam_store_folders[5] = {"blobs", LAM_STORE_BLOBS, LAM_STORE_TMP, LAM_STORE_PARTIAL, LAM_STORE_LOST};

lam_code lam_store_check_folders(const struct lam_store *s, lam_error *err)
{
    for (size_t i = 0; i < 5; i++) {
        char *path;
        struct lam_file_info info;
        LAM_TRY(lam_store_path(s, lam_store_folders[i], &path, err));
        lam_code code = lam_link_info(path, &info, err);
        if (code == LAM_OK && !info.is_dir)
            code = LAM_RAISE(err, LAM_E_STORE_LINK, "%s is a link, or no folder: it would lead out of the store", path);
        lam_free(path);
        if (code != LAM_OK && code != LAM_E_NOT_FOUND) return code;
    }
    return LAM_OK;
}

/* ---- the lock ---- */

static lam_code wait_for_lock(struct lam_store *s, const char *path, lam_error *err)
{
    if (!lam_path_exists(path)) LAM_TRY(lam_append_file(path, "", 0, err)); /* made by another OCI tool, or removed */
    for (;;) {
        LAM_TRY(lam_lock_try(path, LAM_LOCK_EXCLUSIVE, &s->writer, err));
        if (s->writer) return LAM_OK;
        LAM_TRY(lam_store_progress(s, "wait", 0, 0, err));
        lam_sleep(WAIT);
    }
}

lam_code lam_store_lock_as_is(struct lam_store *s, lam_error *err)
{
    char *path;
    LAM_TRY(lam_store_path(s, LAM_STORE_LOCK, &path, err));
    lam_code code = wait_for_lock(s, path, err);
    lam_free(path);
    s->depth = code == LAM_OK;
    return code;
}

lam_code lam_store_lock(struct lam_store *s, lam_error *err)
{
    if (s->depth) {
        s->depth++;
        return LAM_OK;
    }
    LAM_TRY(lam_store_lock_as_is(s, err));
    lam_code code = lam_store_check_folders(s, err);
    if (code == LAM_OK) code = lam_store_recover(s, err);
    if (code != LAM_OK) lam_store_unlock(s);
    return code;
}

void lam_store_unlock(struct lam_store *s)
{
    if (!s->depth || --s->depth) return;
    lam_unlock(s->writer);
    s->writer = NULL;
}

/* ---- opening ---- */

lam_code lam_store_check_layout(const struct lam_store *s, lam_error *err)
{
    json_t *layout = NULL;
    LAM_TRY(lam_store_read_json(s, LAM_STORE_LAYOUT, LAM_E_STORE_LAYOUT, &layout, err));
    const char *version = json_string_value(json_object_get(layout, "imageLayoutVersion"));
    lam_code code = version && strcmp(version, LAYOUT_VERSION) == 0 ? LAM_OK
                  : LAM_RAISE(err, LAM_E_STORE_LAYOUT, "%s/" LAM_STORE_LAYOUT ": version %.40s; this reads " LAYOUT_VERSION, s->folder,
                              version ? version : "unknown");
    json_decref(layout);
    return code;
}

lam_code lam_store_write_layout(const struct lam_store *s, lam_error *err)
{
    json_t *layout = json_pack("{s:s}", "imageLayoutVersion", LAYOUT_VERSION);
    if (!layout) return no_memory(err);
    lam_code code = lam_store_write_json(s, LAM_STORE_LAYOUT, layout, err);
    json_decref(layout);
    return code;
}

bool lam_store_is_leftover(const char *name)
{
    static const char *const files[] = {LAM_STORE_LAYOUT ".", LAM_STORE_INDEX ".", LAM_STORE_ACTIVE ".", LAM_STORE_USED ".", LAM_STORE_KNOWN "."};
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strncmp(name, files[i], strlen(files[i])) == 0 && len > 5 && strcmp(name + len - 5, ".part") == 0) return true;
    return false;
}

/* A folder that holds something else is not turned into a store. */
static lam_code check_ours(const char *folder, lam_error *err)
{
    static const char *const known[] = {"blobs", LAM_STORE_INDEX, LAM_STORE_LOCK, LAM_STORE_TMP, LAM_STORE_PARTIAL};
    char **names;
    size_t n;
    lam_code code = lam_list_dir(folder, &names, &n, err);
    if (code != LAM_OK) return code == LAM_E_NOT_FOUND ? LAM_OK : code;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        bool ours = lam_store_is_leftover(names[i]);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) ours |= strcmp(names[i], known[k]) == 0;
        if (!ours) code = LAM_RAISE(err, LAM_E_STORE_LAYOUT, "%s is no store, and holds %.100s: a store wants a folder of its own", folder, names[i]);
    }
    lam_free_names(names, n);
    return code;
}

static lam_code make_folder(const struct lam_store *s, const char *name, lam_error *err)
{
    char *path;
    LAM_TRY(lam_store_path(s, name, &path, err));
    lam_code code = lam_make_dirs(path, err);
    lam_free(path);
    return code;
}

/* oci-layout comes last: with it the store is there. */
static lam_code make_store(struct lam_store *s, lam_error *err)
{
    char *path;
    LAM_TRY(check_ours(s->folder, err));
    LAM_TRY(lam_store_check_folders(s, err));
    LAM_TRY(make_folder(s, LAM_STORE_BLOBS, err));
    LAM_TRY(make_folder(s, LAM_STORE_TMP, err));
    LAM_TRY(lam_store_lock_as_is(s, err));
    lam_code code = LAM_OK;
    json_t *index = json_pack("{s:i,s:s,s:[]}", "schemaVersion", 2, "mediaType", "application/vnd.oci.image.index.v1+json", "manifests");
    if (!index) code = no_memory(err);
    if (code == LAM_OK) code = lam_store_path(s, LAM_STORE_INDEX, &path, err);
    if (code == LAM_OK) {
        if (!lam_path_exists(path)) code = lam_store_write_json(s, LAM_STORE_INDEX, index, err);
        lam_free(path);
    }
    if (code == LAM_OK) code = lam_store_write_layout(s, err);
    json_decref(index);
    lam_store_unlock(s);
    return code;
}

lam_code lam_store_open(const lam_store_options *options, bool create, lam_store **out, lam_error *err)
{
    const lam_store_options none = {0}, *o = options ? options : &none;
    *out = NULL;
    struct lam_store *s = lam_alloc(1, sizeof *s);
    if (!s) return no_memory(err);
    s->progress = o->progress;
    s->progress_context = o->progress_context;
    lam_code code = lam_store_folder(o->folder, &s->folder, err);
    if (code == LAM_OK && o->reason && !(s->reason = lam_strdup(o->reason))) code = no_memory(err);
    if (s->reason) lam_clean_line(s->reason);
    if (code == LAM_OK && !(o->damaged && lam_path_is_dir(s->folder))) code = lam_store_check_layout(s, err);
    if (code == LAM_E_NOT_FOUND) code = create ? make_store(s, err) : LAM_RAISE(err, LAM_E_NOT_FOUND, "%s: there is no store here", s->folder);
    if (code == LAM_OK) *out = s;
    else lam_store_close(s);
    return code;
}

void lam_store_close(lam_store *s)
{
    if (!s) return;
    lam_unlock(s->writer);
    lam_free(s->folder);
    lam_free(s->reason);
    lam_free(s);
}

const char *lam_store_where(const lam_store *s) { return s->folder; }
