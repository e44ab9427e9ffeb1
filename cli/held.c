#define _POSIX_C_SOURCE 200809L

#include "held.h"

#include "report.h"
#include "suggest.h"

#include "lamina/store.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct held {
    lam_store_item item;
};

/* Says behind a damaged store's error what mends it. Returns code. */
static lam_code advise(lam_code code, lam_error *err)
{
    if (code == LAM_E_STORE_LAYOUT || code == LAM_E_STORE_ACTIVE || code == LAM_E_STORE_LINK)
        hint(err, "`lamina store fsck --repair` mends it, and -m takes a file all the same");
    return code;
}

/* The store that the options mean; *store is NULL if there is none, or no place for one. */
static lam_code open_store(const struct options *o, lam_store **store, lam_error *err)
{
    lam_store_options options = {.folder = o->store};
    lam_code code = lam_store_open(&options, false, store, err);
    return code == LAM_E_NOT_FOUND || code == LAM_E_ARGUMENT ? LAM_OK : advise(code, err);
}

/* The name of this kind that was probably meant. */
static void suggest(lam_store *store, const char *text, enum held_kind kind, lam_error *err)
{
    lam_store_entry *entries;
    size_t n;
    const char *near = NULL;
    char help[200];
    if (lam_store_list(store, &entries, &n, NULL) != LAM_OK) return;
    for (size_t i = 0; i < n; i++)
        if (entries[i].name && (entries[i].kind == LAM_STORE_ADAPTER) == (kind == HELD_ADAPTER)) near = nearer_word(text, near, entries[i].name);
    snprintf(help, sizeof help, "did you mean %.128s, which the store has?", near ? near : "");
    if (near) hint(err, help);
    lam_store_free_list(entries, n);
}

static lam_code find(lam_store *store, const char *text, enum held_kind kind, struct held *h, lam_error *err)
{
    lam_code code = lam_store_open_item(store, text, &h->item, err);
    if (code == LAM_E_NOT_FOUND) {
        fail(err, code, "%.200s: no such file, and no such name in the store %.200s", text, lam_store_where(store));
        suggest(store, text, kind, err);
        return code;
    }
    if (code == LAM_OK && (h->item.kind == LAM_STORE_ADAPTER) != (kind == HELD_ADAPTER))
        code = fail(err, LAM_E_ARGUMENT, "%.200s is of kind %s in the store; %s is needed", text, lam_store_kind_name(h->item.kind),
                    kind == HELD_ADAPTER ? "an adapter" : "a base or a composition");
    return code;
}

lam_code held_open(const struct options *o, const char *text, enum held_kind kind, struct held **out, lam_error *err)
{
    lam_store *store = NULL;
    *out = NULL;
    lam_code code = access(text, F_OK) == 0 ? LAM_OK : open_store(o, &store, err);
    if (!store) return code;
    struct held *h = calloc(1, sizeof *h);
    code = h ? find(store, text, kind, h, err) : fail_memory(err);
    lam_store_close(store);
    if (code == LAM_OK) *out = h;
    else held_close(h);
    return code;
}

const char *held_path(const struct held *h)
{
    if (!h) return NULL;
    return h->item.manifest ? h->item.manifest->base_file : h->item.path;
}

const lam_manifest *held_manifest(const struct held *h) { return h ? h->item.manifest : NULL; }

void held_note_used(const struct options *o, const struct held *h)
{
    lam_store *store = NULL;
    if (h) (void)open_store(o, &store, NULL);
    if (store) lam_store_note_used(store, h->item.digest, NULL);
    lam_store_close(store);
}

void held_close(struct held *h)
{
    if (h) lam_store_release_item(&h->item);
    free(h);
}

lam_code held_active(const struct options *o, char digest[LAM_DIGEST_TEXT], uint64_t *generation, lam_error *err)
{
    lam_store_state state = {0};
    lam_store *store = NULL;
    lam_code code = open_store(o, &store, err);
    if (store) code = advise(lam_store_active(store, &state, err), err);
    lam_store_close(store);
    memcpy(digest, state.manifest, LAM_DIGEST_TEXT);
    *generation = state.generation;
    return code;
}
