#include "store/naming.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

bool lam_name_of_file(const char *path, char out[132])
{
    size_t len = strlen(path), n = 0;
    while (len > 1 && path[len - 1] == '/') len--;
    size_t start = len;
    while (start && path[start - 1] != '/') start--;
    const char *base = path + start, *dot = NULL;
    for (size_t i = 1; i < len - start; i++)
        if (base[i] == '.') dot = base + i;
    bool ending = dot && (strncmp(dot, ".slm", 4) == 0 || strncmp(dot, ".gguf", 5) == 0 || strncmp(dot, ".json", 5) == 0);
    size_t end = ending ? (size_t)(dot - base) : len - start;
    for (size_t i = 0; i < end && n < 120; i++) {
        char c = base[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (plain) out[n++] = c;
        else if (n && (out[n - 1] >= '0')) out[n++] = c == '.' || c == '_' ? c : '-';
    }
    while (n && (out[n - 1] == '-' || out[n - 1] == '.' || out[n - 1] == '_')) n--;
    out[n] = 0;
    return n > 0;
}

/* What the name means now; "": nothing. */
static lam_code read_name(const struct lam_store *s, const char *name, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_index index;
    out[0] = 0;
    LAM_TRY(lam_index_read(s, &index, err));
    const struct lam_index_entry *e = lam_index_find(&index, name);
    if (e) memcpy(out, e->manifest.digest, LAM_DIGEST_TEXT);
    lam_index_release(&index);
    return LAM_OK;
}

lam_code lam_name_manifest(struct lam_store *s, struct lam_naming *n, lam_store_result *out, lam_error *err)
{
    lam_error why;
    LAM_TRY(lam_name_check(n->name, err));
    LAM_TRY(read_name(s, n->name, out->from, err));
    out->kind = n->kind;
    memcpy(out->digest, n->digest, LAM_DIGEST_TEXT);
    snprintf(out->name, sizeof out->name, "%s", n->name);
    out->changed = strcmp(out->from, n->digest) != 0;
    if (!out->changed) return LAM_OK;
    if (out->from[0] && !n->may_move)
        return LAM_RAISE(err, LAM_E_CONFLICT, "the name %s is in use for %s; say which name with --name, which moves it", n->name, out->from);
    struct lam_change change = {.op = n->op, .name = n->name, .from = out->from[0] ? out->from : NULL, .to = n->digest};
    LAM_TRY(lam_change_begin(s, &change, err));
    n->recorded = true;
    lam_code code = lam_index_set(s, n->name, lam_artifact_type(n->kind), n->digest, n->size, &why);
    if (code == LAM_OK) return lam_change_end(s, &change, "done", NULL, err);
    if (err) *err = why;
    return lam_change_failed(s, &change, &why);
}

lam_code lam_store_remove_name(lam_store *s, const char *name, lam_error *err)
{
    char from[LAM_DIGEST_TEXT];
    lam_error why;
    LAM_TRY(lam_store_lock(s, err));
    lam_code code = read_name(s, name, from, err);
    if (code == LAM_OK && !from[0]) code = LAM_RAISE(err, LAM_E_NOT_FOUND, "no name \"%.140s\" in the store", name);
    struct lam_change change = {.op = "remove", .name = name, .from = from};
    if (code == LAM_OK) code = lam_change_begin(s, &change, err);
    if (code == LAM_OK) {
        code = lam_index_remove(s, name, &why);
        if (code == LAM_OK) code = lam_change_end(s, &change, "done", NULL, err);
        else {
            if (err) *err = why;
            lam_change_failed(s, &change, &why);
        }
    }
    lam_store_unlock(s);
    return code;
}
