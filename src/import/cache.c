#include "import/cache.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/os.h"
#include "base/str.h"
#include "format/slm.h"
#include "import/cache_key.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WAIT 0.1 /* seconds between two looks at a lock */

/* One opening: what is sought and where. */
struct request {
    const char *source, *base_path, *base_digest; /* base_* are NULL for a base */
    const struct lam_cache_options *options;
    struct lam_adapter_report *report;            /* may be NULL */
    char *folder, *slm, *json, *lock;             /* owned */
    struct lam_cache_key key;
    uint64_t max_bytes;
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "cache: out of memory"); }

/* folder/key.suffix, or NULL. */
static char *entry_path(const char *folder, const char *key, const char *suffix)
{
    struct lam_str s = {0};
    if (!lam_str_printf(&s, "%s/%s%s", folder, key, suffix)) lam_str_release(&s);
    return s.data;
}

lam_code lam_cache_folder(const struct lam_cache_options *options, char **out, lam_error *err)
{
    const char *own = options && options->folder ? options->folder : getenv("LAMINA_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (own && *own) *out = lam_strdup(own);
    else if (xdg && *xdg) *out = lam_path_join(xdg, "lamina");
    else if (home && *home) *out = lam_path_join(home, ".cache/lamina");
    else return LAM_RAISE(err, LAM_E_ARGUMENT, "cache: none of LAMINA_CACHE, XDG_CACHE_HOME and HOME is set");
    return *out ? LAM_OK : no_memory(err);
}

static lam_code size_limit(const struct lam_cache_options *options, uint64_t *out, lam_error *err)
{
    static const char units[] = "kMGT";
    const char *text = getenv("LAMINA_CACHE_MAX");
    *out = options && options->max_bytes ? options->max_bytes : LAM_CACHE_DEFAULT_MAX;
    if ((options && options->max_bytes) || !text || !*text) return LAM_OK;
    uint64_t value = 0, unit = 1;
    const char *c = text;
    for (; *c >= '0' && *c <= '9' && value < UINT64_MAX / 100; c++) value = value * 10 + (uint64_t)(*c - '0');
    const char *at = *c ? strchr(units, *c == 'K' ? 'k' : *c) : NULL;
    for (const char *u = units; at && u <= at; u++) unit *= 1000;
    if (c == text || (*c && (!at || c[1])) || value > UINT64_MAX / unit || value == 0)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "LAMINA_CACHE_MAX is %.64s: a number of bytes is needed, with k, M, G or T at most", text);
    *out = value * unit;
    return LAM_OK;
}

static bool is_key(const char *text, size_t len)
{
    return len == LAM_CACHE_KEY_TEXT - 1 && strspn(text, "0123456789abcdef") >= len;
}

/* ---- the list ---- */

static void free_entry(struct lam_cache_entry *e)
{
    lam_free(e->key);
    lam_free(e->source);
}

void lam_cache_free_list(struct lam_cache_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) free_entry(&entries[i]);
    lam_free(entries);
}

/* Fills source, kind and last use from the entry's .json, where it is there and readable. */
static lam_code describe_entry(const char *json_path, struct lam_cache_entry *e, lam_error *err)
{
    struct lam_file_info info;
    struct lam_mapping file;
    json_t *about = NULL;
    e->source = lam_strdup("");
    if (!e->source) return no_memory(err);
    if (lam_file_info(json_path, &info, NULL) != LAM_OK) return LAM_OK;
    lam_code code = lam_map_file(json_path, &file, err);
    if (code != LAM_OK) return code == LAM_E_NO_MEMORY ? code : LAM_OK;
    e->last_use = (int64_t)(info.mtime_ns / 1000000000u);
    code = lam_json_parse(file.data ? (const char *)file.data : "", file.size, "cache entry", &about, NULL);
    const char *source = json_string_value(json_object_get(about, "source")), *kind = json_string_value(json_object_get(about, "kind"));
    char *copy = source && kind ? lam_strdup(source) : NULL;
    if (copy) {
        lam_free(e->source);
        e->source = copy;
        e->is_adapter = strcmp(kind, "adapter") == 0;
    }
    bool lacking = code == LAM_E_NO_MEMORY || (source && kind && !copy);
    json_decref(about);
    lam_unmap_file(&file);
    return lacking ? no_memory(err) : LAM_OK;
}

static lam_code read_entry(const char *folder, const char *key, struct lam_cache_entry *e, lam_error *err)
{
    struct lam_file_info info = {0};
    char *slm = entry_path(folder, key, ".slm"), *json = entry_path(folder, key, ".json");
    *e = (struct lam_cache_entry){.key = lam_strdup(key)};
    lam_code code = slm && json && e->key ? lam_file_info(slm, &info, err) : no_memory(err);
    e->bytes = info.size;
    e->last_use = (int64_t)(info.mtime_ns / 1000000000u);
    if (code == LAM_OK) code = describe_entry(json, e, err);
    lam_free(slm);
    lam_free(json);
    if (code != LAM_OK) free_entry(e);
    return code;
}

static int compare_use(const void *a, const void *b)
{
    const struct lam_cache_entry *l = a, *r = b;
    if (l->last_use != r->last_use) return l->last_use < r->last_use ? -1 : 1;
    return strcmp(l->key, r->key);
}

static lam_code list_folder(const char *folder, struct lam_cache_entry **entries, size_t *n, lam_error *err)
{
    char **names = NULL;
    size_t n_names = 0;
    *entries = NULL;
    *n = 0;
    lam_code code = lam_list_dir(folder, &names, &n_names, err);
    if (code != LAM_OK) return code == LAM_E_NOT_FOUND ? LAM_OK : code;
    struct lam_cache_entry *list = lam_alloc(n_names, sizeof *list);
    if (!list) code = no_memory(err);
    for (size_t i = 0; code == LAM_OK && i < n_names; i++) {
        char *dot = strchr(names[i], '.');
        if (!dot || strcmp(dot, ".slm") != 0 || !is_key(names[i], (size_t)(dot - names[i]))) continue;
        *dot = 0;
        code = read_entry(folder, names[i], &list[*n], err);
        if (code == LAM_OK) ++*n;
        else if (code == LAM_E_NOT_FOUND) code = LAM_OK; /* removed meanwhile */
    }
    lam_free_names(names, n_names);
    if (code != LAM_OK) {
        lam_cache_free_list(list, *n);
        *n = 0;
        return code;
    }
    qsort(list, *n, sizeof *list, compare_use);
    *entries = list;
    return LAM_OK;
}

lam_code lam_cache_list(const struct lam_cache_options *options, struct lam_cache_entry **entries, size_t *n, lam_error *err)
{
    char *folder;
    LAM_TRY(lam_cache_folder(options, &folder, err));
    lam_code code = list_folder(folder, entries, n, err);
    lam_free(folder);
    return code;
}

/* ---- removing ---- */

/* key.slm.….part files are left by processes that died; whoever holds the key's lock may remove them. */
static lam_code remove_parts(const char *folder, const char *key, lam_error *err)
{
    char **names;
    size_t n, len = strlen(key);
    LAM_TRY(lam_list_dir(folder, &names, &n, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        size_t name_len = strlen(names[i]);
        if (strncmp(names[i], key, len) != 0 || name_len < 5 || strcmp(names[i] + name_len - 5, ".part") != 0) continue;
        char *path = lam_path_join(folder, names[i]);
        code = path ? lam_remove_file(path, err) : no_memory(err);
        lam_free(path);
    }
    lam_free_names(names, n);
    return code;
}

/* Removes an entry's files, unless it is held. The key's lock is held by the caller. */
static lam_code remove_files(const char *folder, const char *key, bool *removed, lam_error *err)
{
    struct lam_lock *alone = NULL;
    char *slm = entry_path(folder, key, ".slm"), *json = entry_path(folder, key, ".json");
    *removed = false;
    lam_code code = slm && json ? lam_lock_try(slm, LAM_LOCK_EXCLUSIVE, &alone, err) : no_memory(err);
    bool gone = code == LAM_E_NOT_FOUND;
    if (gone) code = LAM_OK;
    if (code == LAM_OK && (alone || gone)) {
        code = lam_remove_file(slm, err);
        if (code == LAM_OK) code = lam_remove_file(json, err);
        if (code == LAM_OK) code = remove_parts(folder, key, err);
        *removed = code == LAM_OK && !gone;
    }
    lam_unlock(alone);
    lam_free(slm);
    lam_free(json);
    return code;
}

/* The same for who does not hold the lock: an entry being made stays. */
static lam_code remove_entry(const char *folder, const char *key, bool *removed, lam_error *err)
{
    struct lam_lock *lock = NULL;
    char *path = entry_path(folder, key, ".lock");
    *removed = false;
    lam_code code = path ? lam_lock_try(path, LAM_LOCK_CREATE, &lock, err) : no_memory(err);
    if (code == LAM_OK && lock) code = remove_files(folder, key, removed, err);
    lam_unlock(lock);
    lam_free(path);
    return code;
}

/* Removes the least recently used until the folder's entries besides keep and `extra` bytes are within max. */
static lam_code make_room(const char *folder, const char *keep, uint64_t extra, uint64_t max, lam_error *err)
{
    struct lam_cache_entry *entries;
    size_t n;
    uint64_t total = extra;
    LAM_TRY(list_folder(folder, &entries, &n, err));
    for (size_t i = 0; i < n; i++)
        if (strcmp(entries[i].key, keep) != 0) total += entries[i].bytes;
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && total > max && i < n; i++) {
        bool removed;
        if (strcmp(entries[i].key, keep) == 0) continue;
        code = remove_entry(folder, entries[i].key, &removed, err);
        if (removed) total -= entries[i].bytes;
    }
    lam_cache_free_list(entries, n);
    return code;
}

static bool is_meant(const struct lam_cache_entry *e, const char *which, const char *real)
{
    if (!which) return true;
    if (real && strcmp(e->source, real) == 0) return true;
    return strcmp(e->source, which) == 0 || (strlen(which) >= 8 && strncmp(e->key, which, strlen(which)) == 0);
}

static lam_code clear_folder(const char *folder, const char *which, const char *real, struct lam_cache_cleared *out, lam_error *err)
{
    struct lam_cache_entry *entries;
    size_t n, meant = 0;
    LAM_TRY(list_folder(folder, &entries, &n, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        bool removed;
        if (!is_meant(&entries[i], which, real)) continue;
        meant++;
        code = remove_entry(folder, entries[i].key, &removed, err);
        if (removed) {
            out->n_removed++;
            out->bytes += entries[i].bytes;
        } else {
            out->n_in_use++;
        }
    }
    lam_cache_free_list(entries, n);
    if (code == LAM_OK && which && meant == 0) code = LAM_RAISE(err, LAM_E_NOT_FOUND, "cache: no entry is %s", which);
    return code;
}

lam_code lam_cache_clear(const struct lam_cache_options *options, const char *which, struct lam_cache_cleared *out, lam_error *err)
{
    char *folder, *real = NULL;
    *out = (struct lam_cache_cleared){0};
    LAM_TRY(lam_cache_folder(options, &folder, err));
    if (which) lam_real_path(which, &real, NULL); /* a source that is gone is found by the text alone */
    lam_code code = clear_folder(folder, which, real, out, err);
    lam_free(real);
    lam_free(folder);
    return code;
}

/* ---- opening ---- */

void lam_cache_release(struct lam_cached *c)
{
    lam_unlock(c->hold);
    lam_free(c->path);
    *c = (struct lam_cached){0};
}

/* Waits for the key's lock; the caller's callback may end it. */
static lam_code take_lock(const struct request *r, struct lam_lock **lock, lam_error *err)
{
    for (;;) {
        LAM_TRY(lam_lock_try(r->lock, LAM_LOCK_CREATE, lock, err));
        if (*lock) return LAM_OK;
        if (r->options && r->options->progress && !r->options->progress(r->options->progress_context, "wait", 0, 0))
            return LAM_RAISE(err, LAM_E_CANCELLED, "%s: another process imports it", r->source);
        lam_sleep(WAIT);
    }
}

static lam_code write_about(const struct request *r, lam_error *err)
{
    char *real = NULL;
    struct lam_str text = {0};
    struct lam_writer *w = NULL;
    LAM_TRY(lam_real_path(r->source, &real, err));
    json_t *about = json_pack("{s:s,s:s,s:s?}", "source", real, "kind", r->base_digest ? "adapter" : "base", "base", r->base_digest);
    lam_code code = about ? lam_json_canonical(about, &text, err) : no_memory(err);
    if (code == LAM_OK) code = lam_writer_open(r->json, &w, err);
    if (code == LAM_OK) {
        code = lam_writer_write(w, text.data, text.len, err);
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_str_release(&text);
    json_decref(about);
    lam_free(real);
    return code;
}

/* *good: the entry is there and sound. LAM_E_NO_MEMORY, LAM_E_IO. */
static lam_code look(const struct request *r, bool *good, lam_error *err)
{
    struct lam_slm *slm = NULL;
    lam_error why;
    lam_code code = lam_slm_open(r->slm, &slm, &why);
    *good = code == LAM_OK && slm->kind == (r->base_digest ? LAM_SLM_ADAPTER : LAM_SLM_BASE);
    if (code == LAM_OK) lam_slm_close(slm);
    return code == LAM_E_NO_MEMORY || code == LAM_E_IO ? LAM_RAISE(err, code, "%s", why.message) : LAM_OK;
}

/* The same; one that is damaged is removed. */
static lam_code check_entry(const struct request *r, bool *good, lam_error *err)
{
    bool removed;
    LAM_TRY(look(r, good, err));
    if (*good || !lam_path_exists(r->slm)) return LAM_OK;
    LAM_TRY(remove_files(r->folder, r->key.text, &removed, err));
    return removed ? LAM_OK : LAM_RAISE(err, LAM_E_CONFLICT, "%s is damaged and in use", r->slm);
}

static lam_code import_entry(const struct request *r, lam_error *err)
{
    struct lam_import_options options = {.max_bytes = r->max_bytes};
    struct lam_cache_key after;
    bool removed;
    if (r->options) {
        options.progress = r->options->progress;
        options.progress_context = r->options->progress_context;
        options.accept_tokenizer = r->options->accept_tokenizer;
    }
    LAM_TRY(remove_parts(r->folder, r->key.text, err));
    LAM_TRY(make_room(r->folder, r->key.text, r->key.source_bytes, r->max_bytes, err));
    if (r->base_digest) LAM_TRY(lam_import_adapter(r->source, r->base_path, r->slm, &options, r->report, err));
    else LAM_TRY(lam_import_base(r->source, r->slm, &options, err));
    LAM_TRY(lam_cache_key(r->source, r->base_digest, r->options && r->options->accept_tokenizer, &after, err));
    if (strcmp(after.text, r->key.text) == 0) return LAM_OK;
    LAM_TRY(remove_files(r->folder, r->key.text, &removed, err));
    return LAM_RAISE(err, LAM_E_CHANGED, "%s: written while it was imported", r->source);
}

/* With the key's lock held. */
static lam_code find_or_import(const struct request *r, struct lam_cached *out, lam_error *err)
{
    struct lam_file_info info;
    LAM_TRY(check_entry(r, &out->was_cached, err));
    if (!out->was_cached) LAM_TRY(import_entry(r, err));
    LAM_TRY(lam_lock_try(r->slm, LAM_LOCK_SHARED, &out->hold, err));
    if (!out->hold) return LAM_RAISE(err, LAM_E_CONFLICT, "%s is being removed", r->slm);
    if (!lam_path_exists(r->json)) LAM_TRY(write_about(r, err));
    else LAM_TRY(lam_touch(r->json, err));
    LAM_TRY(lam_file_info(r->slm, &info, err));
    return out->was_cached ? LAM_OK : make_room(r->folder, r->key.text, info.size, r->max_bytes, err);
}

/* Whether somebody makes the entry, or removes it. */
static bool is_being_made(const struct request *r)
{
    struct lam_lock *lock = NULL;
    lam_code code = lam_lock_try(r->lock, LAM_LOCK_SHARED, &lock, NULL);
    lam_unlock(lock); /* if it is to be had, it was left by a process that died */
    return code != LAM_E_NOT_FOUND && !lock;
}

/* An entry that is there, sound and not at work on is taken as it is: the folder may be one that can only be read. That nobody makes it is
 * looked at when it is there: a source that is written meanwhile takes its entry along before the lock is given back. */
static lam_code find_ready(const struct request *r, struct lam_cached *out, lam_error *err)
{
    bool good;
    LAM_TRY(look(r, &good, err));
    if (!good || is_being_made(r)) return LAM_OK;
    lam_code code = lam_lock_try(r->slm, LAM_LOCK_SHARED, &out->hold, err);
    if (code != LAM_OK || !out->hold) return code == LAM_E_NOT_FOUND ? LAM_OK : code;
    out->was_cached = true;
    if (lam_path_exists(r->json)) lam_touch(r->json, NULL); /* where that cannot be told, it is the older for it */
    else write_about(r, NULL);
    return LAM_OK;
}

/* There is no entry and none can be made: what helps. */
static lam_code explain_folder(const struct request *r, const lam_error *why, lam_error *err)
{
    return LAM_RAISE(err, why->code, "%.120s: not in the cache, to which nothing can be added: %.200s; LAMINA_CACHE names another folder", r->source,
                     why->message);
}

static lam_code make_ready(const struct request *r, struct lam_cached *out, lam_error *err)
{
    struct lam_lock *lock = NULL;
    lam_error why;
    if (lam_make_dirs(r->folder, &why) != LAM_OK) return explain_folder(r, &why, err);
    lam_code code = take_lock(r, &lock, &why);
    if (code == LAM_E_CANCELLED || code == LAM_E_NO_MEMORY) return LAM_RAISE(err, code, "%s", why.message);
    if (code != LAM_OK) return explain_folder(r, &why, err);
    code = find_or_import(r, out, err);
    lam_unlock(lock);
    return code;
}

static lam_code open_request(struct request *r, struct lam_cached *out, lam_error *err)
{
    LAM_TRY(size_limit(r->options, &r->max_bytes, err));
    LAM_TRY(lam_cache_folder(r->options, &r->folder, err));
    LAM_TRY(lam_cache_key(r->source, r->base_digest, r->options && r->options->accept_tokenizer, &r->key, err));
    r->slm = entry_path(r->folder, r->key.text, ".slm");
    r->json = entry_path(r->folder, r->key.text, ".json");
    r->lock = entry_path(r->folder, r->key.text, ".lock");
    if (!r->slm || !r->json || !r->lock) return no_memory(err);
    LAM_TRY(find_ready(r, out, err));
    if (!out->hold) LAM_TRY(make_ready(r, out, err));
    out->path = lam_strdup(r->slm);
    return out->path ? LAM_OK : no_memory(err);
}

static lam_code run_request(struct request *r, struct lam_cached *out, lam_error *err)
{
    lam_code code = open_request(r, out, err);
    if (code != LAM_OK) lam_cache_release(out);
    lam_free(r->folder);
    lam_free(r->slm);
    lam_free(r->json);
    lam_free(r->lock);
    return code;
}

/* A .slm needs no cache; whether it is of the right kind, its reader says. */
static lam_code pass_through(const char *source, struct lam_cached *out, bool *done, lam_error *err)
{
    uint8_t magic[4] = {0};
    size_t len = 0;
    *out = (struct lam_cached){0};
    if (!lam_path_is_dir(source)) LAM_TRY(lam_read_head(source, magic, sizeof magic, &len, err));
    *done = len == 4 && memcmp(magic, "SLM0", 4) == 0;
    if (!*done) return LAM_OK;
    out->was_cached = true;
    out->path = lam_strdup(source);
    return out->path ? LAM_OK : no_memory(err);
}

lam_code lam_cache_open_base(const char *source, const struct lam_cache_options *options, struct lam_cached *out, lam_error *err)
{
    struct request r = {.source = source, .options = options};
    bool done;
    LAM_TRY(pass_through(source, out, &done, err));
    return done ? LAM_OK : run_request(&r, out, err);
}

lam_code lam_cache_open_adapter(const char *source, const char *base_path, const char *base_digest,
                                const struct lam_cache_options *options, struct lam_cached *out,
                                struct lam_adapter_report *report, lam_error *err)
{
    struct request r = {.source = source, .base_path = base_path, .base_digest = base_digest, .options = options, .report = report};
    bool done;
    if (report) *report = (struct lam_adapter_report){0};
    LAM_TRY(pass_through(source, out, &done, err));
    return done ? LAM_OK : run_request(&r, out, err);
}
