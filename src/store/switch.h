/* The switch on disk, by the one table of transitions (compose/activation.h). */
#ifndef LAM_STORE_SWITCH_H
#define LAM_STORE_SWITCH_H

#include "store/artifact.h"

/* Makes the composition `digest`, whose blobs are in their places, the active one. op: for the records. Fills *out. The store must be locked. */
lam_code lam_store_switch(struct lam_store *s, const char *op, const char *digest, lam_store_result *out, lam_error *err);

#endif
