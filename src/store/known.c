#include "store/known.h"
#include "base/alloc.h"
#include "base/os.h"

#include <string.h>

#define ROOT_CHARS (LAM_DIGEST_TEXT - 1) /* "sha256:" and its digits */

/* Calls each with every line, url[len]. */
typedef bool (*line_fn)(void *context, const char *root, const char *url, size_t len);

/* False if each said so, for lack of memory. */
static bool walk(const char *text, size_t size, line_fn each, void *context)
{
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = stop ? (size_t)(stop - at) : (size_t)(end - at);
        if (len > ROOT_CHARS + 1 && at[ROOT_CHARS] == ' ' && !each(context, at, at + ROOT_CHARS + 1, len - ROOT_CHARS - 1))
            return false;
        at += len + 1;
    }
    return true;
}

/* Over the file, or over nothing if it is not there. */
static lam_code walk_file(const struct lam_store *s, line_fn each, void *context, lam_error *err)
{
    struct lam_mapping file;
    char *path;
    LAM_TRY(lam_store_path(s, LAM_STORE_KNOWN, &path, err));
    lam_code code = lam_path_exists(path) ? lam_map_file(path, &file, err) : LAM_E_NOT_FOUND;
    lam_free(path);
    if (code == LAM_E_NOT_FOUND) return LAM_OK;
    if (code != LAM_OK) return code;
    if (!walk((const char *)file.data, file.size, each, context)) code = LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    lam_unmap_file(&file);
    return code;
}

struct search {
    const char *url;
    char *root; /* [LAM_DIGEST_TEXT] */
};

static bool find(void *context, const char *root, const char *url, size_t len)
{
    struct search *f = context;
    if (strlen(f->url) != len || memcmp(f->url, url, len) != 0) return true;
    memcpy(f->root, root, ROOT_CHARS);
    f->root[ROOT_CHARS] = 0;
    return true;
}

lam_code lam_known_find(const struct lam_store *s, const char *url, char root[LAM_DIGEST_TEXT], lam_error *err)
{
    struct search f = {url, root};
    root[0] = 0;
    return walk_file(s, find, &f, err);
}

struct rewrite {
    const char *url;
    struct lam_str text;
};

static bool keep_other(void *context, const char *root, const char *url, size_t len)
{
    struct rewrite *r = context;
    if (strlen(r->url) == len && memcmp(r->url, url, len) == 0) return true;
    return lam_str_append(&r->text, root, ROOT_CHARS + 1 + len) && lam_str_putc(&r->text, '\n');
}

static lam_code replace_file(const struct lam_store *s, const struct lam_str *text, lam_error *err)
{
    struct lam_writer *w;
    char *path;
    LAM_TRY(lam_store_path(s, LAM_STORE_KNOWN, &path, err));
    lam_code code = lam_writer_open(path, &w, err);
    if (code == LAM_OK) {
        code = lam_writer_write(w, text->data, text->len, err);
        if (code == LAM_OK) code = lam_writer_commit(w, err);
        else lam_writer_abort(w);
    }
    lam_free(path);
    return code;
}

lam_code lam_known_set(struct lam_store *s, const char *url, const char *root, lam_error *err)
{
    char before[LAM_DIGEST_TEXT];
    struct rewrite r = {.url = url};
    LAM_TRY(lam_known_find(s, url, before, err));
    if (strcmp(before, root) == 0) return LAM_OK;
    lam_code code = walk_file(s, keep_other, &r, err);
    if (code == LAM_OK && !lam_str_printf(&r.text, "%s %s\n", root, url))
        code = LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    if (code == LAM_OK) code = replace_file(s, &r.text, err);
    lam_str_release(&r.text);
    return code;
}

struct listing {
    const char *root;
    struct lam_str *out;
};

static bool list(void *context, const char *root, const char *url, size_t len)
{
    struct listing *l = context;
    if (memcmp(root, l->root, ROOT_CHARS) != 0) return true;
    return lam_str_append(l->out, url, len) && lam_str_putc(l->out, '\n');
}

lam_code lam_known_urls(const struct lam_store *s, const char *root, struct lam_str *out, lam_error *err)
{
    struct listing l = {root, out};
    return walk_file(s, list, &l, err);
}
