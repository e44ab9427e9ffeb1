/* A composition's configuration: its manifest (docs/manifest.md) without files and contents, which the artefact's layers take the place of: base and
 * adapters, and where it has them its template, system prompt and sampling defaults. */
#ifndef LAM_STORE_CONFIG_H
#define LAM_STORE_CONFIG_H

#include "store/artifact.h"

/* What a manifest may carry besides: each a layer of its own, so that compositions share it. */
enum lam_content { LAM_CONTENT_TEMPLATE, LAM_CONTENT_PROMPT, LAM_CONTENT_SAMPLING, LAM_N_CONTENTS };
struct lam_contents {
    struct lam_str texts[LAM_N_CONTENTS]; /* data NULL: the composition has none */
};
/* The layer's media type, and the file's name for who pulls it with other tools. */
const char *lam_content_type(enum lam_content which);
const char *lam_content_title(enum lam_content which);

/* Parts the canonical JSON of a manifest, which names no file, into the configuration's and the contents. Both are to be released whatever the
 * outcome. */
lam_code lam_config_split(const char *json, struct lam_str *config, struct lam_contents *contents, lam_error *err);
void lam_contents_release(struct lam_contents *contents);

/* The configuration of a composition, checked: it names no file (LAM_E_STORE_PATH), and every base and adapter that it names is a layer
 * (LAM_E_STORE_ARTIFACT). Each gets the layer's blob as its file, and contents come from theirs. Errors of lam_blob_read and lam_manifest_read. */
lam_code lam_config_open(const struct lam_store *s, const struct lam_artifact *a, lam_manifest **out, lam_error *err);

#endif
