/* active.json: which composition is active. It changes by one rename. */
#ifndef LAM_STORE_ACTIVE_H
#define LAM_STORE_ACTIVE_H

#include "store/store.h"

struct lam_active {
    uint64_t generation;                /* 0: nothing was ever active */
    char manifest[LAM_DIGEST_TEXT];     /* the artefact; "" with generation 0 */
    char composition[LAM_DIGEST_TEXT];  /* its composition_id */
    char previous[LAM_DIGEST_TEXT];     /* the artefact before; "": none */
};

/* A file that is not there is generation 0. LAM_E_STORE_ACTIVE for one that cannot be read. */
lam_code lam_active_read(const struct lam_store *s, struct lam_active *out, lam_error *err);

/* Writes it beside its place; lam_writer_commit (base/os.h) publishes it. */
struct lam_writer;
lam_code lam_active_stage(const struct lam_store *s, const struct lam_active *active, struct lam_writer **out, lam_error *err);

#endif
