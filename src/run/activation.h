/* Where activated adapters act: from the first token of the last occurrence of their invocation on (Greenewald et al. 2025,
 * arXiv:2504.12397). The scan is over the whole history, at each submission. */
#ifndef LAM_RUN_ACTIVATION_H
#define LAM_RUN_ACTIVATION_H

#include "cache/operators.h"
#include "cache/rows.h"
#include "run/objects.h"

#define LAM_NO_START SIZE_MAX

/* starts[n_activated] of tokens[n]. LAM_E_INVOCATION, LAM_E_INVOCATION_CUT name an adapter without one, and the text and
 * tokens that were sought; with allow_base it gets LAM_NO_START instead: no row is its. */
lam_code lam_activation_scan(const struct lam_composition *c, const uint32_t *tokens, size_t n, bool allow_base, size_t *starts,
                             lam_error *err);

/* The activated adapters that act at a position, as lam_composition_overlay takes them. */
uint64_t lam_activation_mask(const size_t *starts, size_t n_activated, size_t position);
/* The first position from which on the mask stays as at `position`, up to the next change; SIZE_MAX: it never changes. */
size_t lam_activation_until(const size_t *starts, size_t n_activated, size_t position);

/* Runs of equal closure over positions 0 .. n-1: *runs[*n_runs], freed with lam_free. Under the lock of the engine's pool. LAM_E_NO_MEMORY. */
lam_code lam_activation_runs(struct lam_composition *c, const size_t *starts, size_t n, struct lam_run **runs, size_t *n_runs,
                             lam_error *err);

/* The digest of what acts on rows of this mask, or on their logits. Under the same lock. */
lam_code lam_activation_operators(struct lam_composition *c, uint64_t active, enum lam_closure closure, uint8_t out[LAM_SHA256_BYTES],
                                  lam_error *err);

#endif
