/* base_digest: what the base computes (docs/format.md "Identities"). */
#ifndef LAM_MODEL_IDENTITY_H
#define LAM_MODEL_IDENTITY_H

#include "format/slm.h"

/* SHA-256 over the canonical JSON of weights_root, the directory (name, dtype, dims, layout, role, layer), the configuration
 * and the map from Hugging Face's module names to matrices. LAM_E_FORMAT if the file is not a base. */
lam_code lam_base_digest(const struct lam_slm *base, char out[LAM_DIGEST_TEXT], lam_error *err);

/* What base_digest is made of, each by a digest of its own: to tell in what two bases differ. */
struct lam_base_parts {
    char weights[LAM_DIGEST_TEXT], layout[LAM_DIGEST_TEXT], config[LAM_DIGEST_TEXT], targets[LAM_DIGEST_TEXT];
};
lam_code lam_base_parts(const struct lam_slm *base, struct lam_base_parts *out, lam_error *err);

#endif
