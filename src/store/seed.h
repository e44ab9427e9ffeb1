/* A seed's index, seed.json: a sealed statement (compose/sealed.h)
 *   { "type": "lamina.seed.v0", "default": NAME, "models": { NAME: { "kind", "id", "manifest": FILE, "files": [FILE…] } } }
 * where FILE is { "path", "digest", "size", "file_root"? }, the path being the digest's below the index, "blobs/sha256/HEX". */
#ifndef LAM_STORE_SEED_H
#define LAM_STORE_SEED_H

#include "base/json.h"
#include "compose/sealed.h"
#include "store/artifact.h"

struct lam_seed {
    json_t *root;        /* owned; the texts' */
    const json_t *models;/* of the root */
    const char *first;   /* the default */
    struct lam_seal seal;
};

/* text[len], with everything in it checked. LAM_E_FORMAT, LAM_E_UNKNOWN_FIELD, LAM_E_VERSION, LAM_E_DIGEST, LAM_E_SIGNATURE,
 * LAM_E_NO_MEMORY. */
lam_code lam_seed_parse(const char *text, size_t len, const lam_trust *trust, struct lam_seed *out, lam_error *err);
void lam_seed_release(struct lam_seed *s);

/* The manifest of one of its models: *digest is borrowed. LAM_E_NOT_FOUND, naming what there is. */
lam_code lam_seed_find(const struct lam_seed *s, const char *name, const char **digest, uint64_t *size, lam_error *err);

#endif
