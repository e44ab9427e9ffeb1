/* The operators that cached rows, or logits, are a function of, as a digest: what acts on each tensor of the closure, by its effect.
 * A stack that leaves the closure as the base has it gives the base's digest, whatever else it changes. */
#ifndef LAM_CACHE_OPERATORS_H
#define LAM_CACHE_OPERATORS_H

#include "adapter/overlay.h"

enum lam_closure {
    LAM_CLOSURE_ROWS,  /* K and V of every layer */
    LAM_CLOSURE_LOGITS /* and all that a row's logits depend on beside them */
};

/* adapters[n] are those that the overlay (NULL: none) was built of. */
struct lam_operators {
    const struct lam_overlay *overlay;
    const struct lam_adapter *const *adapters;
    size_t n_adapters;
    uint32_t n_layers;
};

/* LAM_E_NO_MEMORY. */
lam_code lam_operators_digest(const struct lam_operators *o, enum lam_closure closure, uint8_t out[LAM_SHA256_BYTES], lam_error *err);

#endif
