/* Giving a manifest a name: the change that lam_store_add and imports end with. */
#ifndef LAM_STORE_NAMING_H
#define LAM_STORE_NAMING_H

#include "store/change.h"
#include "store/index.h"

struct lam_naming {
    const char *op;      /* for the records */
    const char *name;    /* checked by lam_name_check */
    bool may_move;       /* false: LAM_E_CONFLICT if the name is another one's */
    lam_store_kind kind;
    const char *digest;  /* of the manifest, whose blob is in its place */
    uint64_t size;
    bool recorded;       /* set: the records tell how it went */
};
/* Fills *out but for its id. The store must be locked. */
lam_code lam_name_manifest(struct lam_store *s, struct lam_naming *n, lam_store_result *out, lam_error *err);

/* A name made of what a file is called: without folder and ending, with '-' for what no name has. false without memory for it, or if nothing is
 * left. */
bool lam_name_of_file(const char *path, char out[132]);

#endif
