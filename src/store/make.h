/* Making a composition of pieces: its id, its configuration, its artefact. */
#ifndef LAM_STORE_MAKE_H
#define LAM_STORE_MAKE_H

#include "store/piece.h"

/* What is to be composed. */
struct lam_recipe {
    struct lam_piece base, adapters[LAM_MANIFEST_MAX_ADAPTERS];
    lam_manifest_adapter stack[LAM_MANIFEST_MAX_ADAPTERS]; /* weight, rule, waived of each */
    size_t n_adapters;
    lam_manifest manifest;        /* owners, policies, kv, budget, receipts, and the id that must come out (NULL: any); the rest is filled
                                   * from the pieces. Texts are borrowed from `read` */
    lam_manifest *read;           /* owned, or NULL */
};

/* On the heap: it is large. NULL without memory. */
struct lam_recipe *lam_recipe_new(void);
void lam_recipe_free(struct lam_recipe *r);

/* The composition a, as it stands in the store. */
lam_code lam_recipe_of_artifact(const struct lam_store *s, const struct lam_artifact *a, struct lam_recipe *r, lam_error *err);
/* Takes the adapter at place i out. */
void lam_recipe_drop(struct lam_recipe *r, size_t i);

/* Composes what stands in the store as a, to see that it is what it says: LAM_E_WRONG_COMPOSITION, and the errors of lam_compose. */
lam_code lam_recipe_check(const struct lam_store *s, const struct lam_artifact *a, lam_error *err);

/* Composes it, which checks all that lam_compose does, and puts pieces, configuration and manifest in their places. digest, id (may be
 * NULL) and size are of the manifest. The store must be locked. */
lam_code lam_recipe_make(struct lam_store *s, struct lam_work *w, struct lam_recipe *r, char digest[LAM_DIGEST_TEXT], char id[LAM_DIGEST_TEXT],
                         uint64_t *size, lam_error *err);

#endif
