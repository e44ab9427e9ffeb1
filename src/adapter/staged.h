/* What of an adapter lies in memory, looked at again: whether it is still what was staged, and what the kernels rely on. */
#ifndef LAM_ADAPTER_STAGED_H
#define LAM_ADAPTER_STAGED_H

#include "adapter/adapter.h"

struct lam_inspection {
    struct lam_staged_seal seal; /* of the bytes as they are now */
    bool layout;              /* every factor has the extents that its rank and its target give it */
    bool tails;               /* padding of factors is zero: lanes beyond the last row, and the half of a pair beyond an odd column */
    bool finite;              /* no NaN and no infinity in a factor or its scales */
    size_t n_staged;          /* modules that change something */
    size_t n_missing;         /* tensors that a module needs and does not have */
    char missing[64];         /* the first one's module; "" */
};

/* Reads all staged bytes. */
void lam_adapter_inspect(const struct lam_adapter *a, struct lam_inspection *out);

#endif
