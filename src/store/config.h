/* A composition's configuration: its manifest (docs/manifest.md) without files, which the artefact's layers take the place of. */
#ifndef LAM_STORE_CONFIG_H
#define LAM_STORE_CONFIG_H

#include "store/artifact.h"

/* The configuration of a composition, checked: it names no file (LAM_E_STORE_PATH), and every base and adapter that it names is a layer
 * (LAM_E_STORE_ARTIFACT). Each gets the layer's blob as its file. Errors of lam_blob_read and lam_manifest_read. */
lam_code lam_config_open(const struct lam_store *s, const struct lam_artifact *a, lam_manifest **out, lam_error *err);

#endif
