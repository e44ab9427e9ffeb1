/* Opening what a reference means, once: the blobs are held, and a name that moves later changes nothing. */
#include "base/alloc.h"
#include "store/active.h"
#include "store/config.h"
#include "store/resolve.h"

#include <string.h>

#define TRIES 3 /* gc may take something away between the look at the name and the hold; the name then means something else, too */

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

void lam_store_release_item(lam_store_item *item)
{
    for (size_t i = 0; i < item->n_holds; i++) lam_unlock(item->holds[i]);
    lam_free(item->holds);
    lam_free(item->path);
    lam_manifest_free(item->manifest);
    *item = (lam_store_item){.kind = LAM_STORE_FOREIGN};
}

static lam_code hold(const struct lam_store *s, const struct lam_descriptor *blob, lam_store_item *item, lam_error *err)
{
    LAM_TRY(lam_blob_hold(s, blob->digest, &item->holds[item->n_holds], err));
    if (!item->holds[item->n_holds]) return LAM_RAISE(err, LAM_E_STORE_BLOB_MISSING, "%s: the blob is being removed", blob->digest);
    item->n_holds++;
    return lam_blob_check(s, blob->digest, blob->size, err);
}

static lam_code hold_layers(const struct lam_store *s, const struct lam_artifact *a, lam_store_item *item, lam_error *err)
{
    item->holds = lam_alloc(a->n_layers, sizeof *item->holds);
    if (!item->holds) return no_memory(err);
    for (size_t i = 0; i < a->n_layers; i++) LAM_TRY(hold(s, &a->layers[i], item, err));
    return LAM_OK;
}

static lam_code open_artifact(const struct lam_store *s, const struct lam_artifact *a, lam_store_item *out, lam_error *err)
{
    *out = (lam_store_item){.kind = a->kind};
    memcpy(out->digest, a->digest, LAM_DIGEST_TEXT);
    if (a->kind == LAM_STORE_FOREIGN) return LAM_RAISE(err, LAM_E_STORE_ARTIFACT, "manifest %s is no base, adapter or composition", a->digest);
    LAM_TRY(hold_layers(s, a, out, err));
    if (a->kind == LAM_STORE_COMPOSITION) return lam_config_open(s, a, &out->manifest, err);
    const char *type = a->kind == LAM_STORE_BASE ? LAM_TYPE_BASE_SLM : LAM_TYPE_ADAPTER_SLM;
    return lam_blob_path(s, lam_artifact_layer(a, type, NULL)->digest, &out->path, err);
}

static lam_code active_digest(const struct lam_store *s, char digest[LAM_DIGEST_TEXT], lam_error *err)
{
    struct lam_active active;
    LAM_TRY(lam_active_read(s, &active, err));
    if (!active.generation) return LAM_RAISE(err, LAM_E_NOT_FOUND, "no composition is active in the store %s", s->folder);
    memcpy(digest, active.manifest, LAM_DIGEST_TEXT);
    return LAM_OK;
}

lam_code lam_store_open_item(lam_store *s, const char *reference, lam_store_item *out, lam_error *err)
{
    lam_code code = LAM_OK;
    *out = (lam_store_item){.kind = LAM_STORE_FOREIGN};
    for (int i = 0; i < TRIES; i++) {
        struct lam_artifact a;
        char digest[LAM_DIGEST_TEXT];
        LAM_TRY(reference ? lam_store_resolve(s, reference, digest, err) : active_digest(s, digest, err));
        code = lam_artifact_open(s, digest, UINT64_MAX, &a, err);
        if (code == LAM_OK) {
            code = open_artifact(s, &a, out, err);
            lam_artifact_release(&a);
            if (code == LAM_OK) return LAM_OK;
            lam_store_release_item(out);
        }
        if (code != LAM_E_STORE_DANGLING && code != LAM_E_STORE_BLOB_MISSING) break;
    }
    return code;
}
