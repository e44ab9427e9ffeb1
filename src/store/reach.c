#include "store/reach.h"
#include "base/alloc.h"
#include "store/resolve.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 4 /* of indices that other tools nest */

struct walk {
    const struct lam_store *store;
    struct lam_reach *reach;
    lam_unreadable_fn unreadable;
    void *context;
};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct lam_reached *)a)->digest, ((const struct lam_reached *)b)->digest);
}

/* *fresh: it was not there before. */
static lam_code add(struct lam_reach *r, const struct lam_descriptor *d, bool *fresh, lam_error *err)
{
    *fresh = false;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->items[i].digest, d->digest) == 0) return LAM_OK;
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 32;
        struct lam_reached *more = lam_realloc(r->items, room, sizeof *more);
        if (!more) return no_memory(err);
        r->items = more;
        r->room = room;
    }
    struct lam_reached *item = &r->items[r->n++];
    bool base = d->media_type && strcmp(d->media_type, LAM_TYPE_BASE_SLM) == 0, adapter = d->media_type && strcmp(d->media_type, LAM_TYPE_ADAPTER_SLM) == 0;
    bool manifest = d->media_type && strcmp(d->media_type, LAM_TYPE_MANIFEST) == 0;
    *item = (struct lam_reached){.size = d->size, .is_manifest = manifest, .slm = base ? LAM_STORE_BASE : adapter ? LAM_STORE_ADAPTER : LAM_STORE_FOREIGN};
    memcpy(item->digest, d->digest, LAM_DIGEST_TEXT);
    if (d->file_root && strlen(d->file_root) < LAM_DIGEST_TEXT) strcpy(item->file_root, d->file_root);
    *fresh = true;
    return LAM_OK;
}

static lam_code walk_manifest(struct walk *w, const struct lam_descriptor *manifest, int depth, lam_error *err);

/* An index within the store: of other tools, for several platforms. */
static lam_code walk_index(struct walk *w, const json_t *list, const char *digest, int depth, lam_error *err)
{
    if (depth == 0) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "%s: indices are nested too deep", digest);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct lam_descriptor d;
        LAM_TRY(lam_descriptor_read(json_array_get(list, i), digest, &d, err));
        LAM_TRY(walk_manifest(w, &d, depth - 1, err));
    }
    return LAM_OK;
}

static lam_code walk_text(struct walk *w, const struct lam_str *text, const char *digest, int depth, lam_error *err)
{
    struct lam_artifact a;
    json_t *root = NULL;
    bool fresh;
    lam_code code = lam_json_parse(text->data, text->len, digest, &root, err);
    if (code == LAM_OK && json_is_array(json_object_get(root, "manifests"))) {
        code = walk_index(w, json_object_get(root, "manifests"), digest, depth, err);
        json_decref(root);
        return code;
    }
    json_decref(root);
    LAM_TRY(lam_artifact_parse(text->data, text->len, digest, &a, err));
    code = add(w->reach, &a.config, &fresh, err);
    for (size_t i = 0; code == LAM_OK && i < a.n_layers; i++) code = add(w->reach, &a.layers[i], &fresh, err);
    lam_artifact_release(&a);
    return code;
}

static lam_code walk_manifest(struct walk *w, const struct lam_descriptor *manifest, int depth, lam_error *err)
{
    struct lam_str text = {0};
    lam_error why;
    bool fresh;
    LAM_TRY(add(w->reach, manifest, &fresh, err));
    if (!fresh) return LAM_OK;
    lam_code code = lam_blob_read(w->store, manifest->digest, manifest->size, &text, &why);
    if (code == LAM_E_STORE_BLOB_MISSING) code = LAM_RAISE(&why, LAM_E_STORE_DANGLING, "manifest %s is not there", manifest->digest);
    if (code == LAM_OK) code = walk_text(w, &text, manifest->digest, depth, &why);
    lam_str_release(&text);
    if (code == LAM_OK) return LAM_OK;
    if (w->unreadable && code != LAM_E_NO_MEMORY) return w->unreadable(w->context, manifest->digest, &why, err);
    if (err) *err = why;
    return code;
}

static lam_code finish(struct lam_reach *r, lam_code code)
{
    if (code != LAM_OK) lam_reach_release(r);
    else if (r->n) qsort(r->items, r->n, sizeof *r->items, compare);
    return code;
}

lam_code lam_reach_read(const struct lam_store *s, lam_unreadable_fn unreadable, void *context, struct lam_reach *out, lam_error *err)
{
    struct lam_roots roots;
    struct walk w = {s, out, unreadable, context};
    *out = (struct lam_reach){0};
    LAM_TRY(lam_roots_read(s, &roots, err));
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < roots.n; i++) {
        struct lam_descriptor d = {.media_type = LAM_TYPE_MANIFEST, .digest = roots.digests[i], .size = roots.sizes[i]};
        code = walk_manifest(&w, &d, MOST_DEPTH, err);
    }
    lam_roots_release(&roots);
    return finish(out, code);
}

lam_code lam_reach_from(const struct lam_store *s, const char *digest, struct lam_reach *out, lam_error *err)
{
    struct walk w = {.store = s, .reach = out};
    struct lam_descriptor d = {.media_type = LAM_TYPE_MANIFEST, .digest = digest, .size = UINT64_MAX};
    *out = (struct lam_reach){0};
    return finish(out, walk_manifest(&w, &d, MOST_DEPTH, err));
}

void lam_reach_release(struct lam_reach *r)
{
    lam_free(r->items);
    *r = (struct lam_reach){0};
}

const struct lam_reached *lam_reach_find(const struct lam_reach *r, const char *digest)
{
    struct lam_reached key;
    if (strlen(digest) >= sizeof key.digest || r->n == 0) return NULL;
    strcpy(key.digest, digest);
    return bsearch(&key, r->items, r->n, sizeof *r->items, compare);
}
