/* Copying artefacts from one store to another. */
#ifndef LAM_STORE_TRANSFER_H
#define LAM_STORE_TRANSFER_H

#include "store/make.h"

/* Every .slm of the artefact is what its layer says, by header and tree, and a composition composes to its id: what is due when its blobs came
 * from elsewhere, before it gets a name. */
lam_code lam_artifact_verify(const struct lam_store *s, const struct lam_artifact *a, lam_error *err);

/* Copies the manifest `digest` and all that it names; blobs that are there and good stay. `to` must be locked. */
lam_code lam_transfer(const struct lam_store *from, struct lam_store *to, struct lam_work *w, const char *digest, lam_error *err);

#endif
