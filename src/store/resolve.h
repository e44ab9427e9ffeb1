/* From what people write to a digest. */
#ifndef LAM_STORE_RESOLVE_H
#define LAM_STORE_RESOLVE_H

#include "store/artifact.h"

/* lam_store_resolve, and the manifest. */
lam_code lam_resolve_open(struct lam_store *s, const char *reference, struct lam_artifact *out, lam_error *err);

/* The manifests that the store keeps for themselves: those of the index, the active composition, the previous one. Each once, in this order. */
struct lam_roots {
    char (*digests)[LAM_DIGEST_TEXT]; /* [n], owned */
    uint64_t *sizes;                  /* [n], owned; UINT64_MAX: not told */
    size_t n;
};
lam_code lam_roots_read(const struct lam_store *s, struct lam_roots *out, lam_error *err);
void lam_roots_release(struct lam_roots *roots);

/* Looks for a layer of this media type that means `meaning` (base_digest, adapter_digest) in all roots: its artefact in *out, and the layer,
 * borrowed from it; NULL, and nothing to release, if there is none. */
lam_code lam_find_layer(const struct lam_store *s, const char *media_type, const char *meaning, struct lam_artifact *out,
                        const struct lam_descriptor **layer, lam_error *err);

#endif
