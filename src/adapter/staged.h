/* What of an adapter lies in memory, looked at again: whether it is still what was staged, and what the kernels rely on. */
#ifndef LAM_ADAPTER_STAGED_H
#define LAM_ADAPTER_STAGED_H

#include "adapter/adapter.h"

/* What may be wrong, in the order in which it is told: what comes first may bring those behind it along. */
enum lam_staged_fault {
    LAM_STAGED_RANK,       /* less than the rows that are stored for it */
    LAM_STAGED_RANK_ABOVE, /* more */
    LAM_STAGED_EXTENT,     /* a factor has others than its rank and its target give it */
    LAM_STAGED_LAYOUT,     /* a factor has not the form that the kernels read for its target */
    LAM_STAGED_TARGETS,    /* from here on by the seal, or by the values: a module acts on another matrix */
    LAM_STAGED_SCALE,
    LAM_STAGED_TAIL_A, LAM_STAGED_TAIL_B, /* padding is not zero: lanes beyond the last row, the half of a pair beyond an odd column */
    LAM_STAGED_TAIL,       /* scales of lanes beyond the last row are not zero */
    LAM_STAGED_FINITE,     /* NaN or infinity in a factor or its scales */
    LAM_STAGED_A, LAM_STAGED_B, LAM_STAGED_BYTES,
    LAM_STAGED_FAULTS
};
/* What keeps factors from being read at all. */
#define LAM_STAGED_SHAPES ((1u << LAM_STAGED_TARGETS) - 1)

struct lam_inspection {
    struct lam_staged_seal seal; /* of the bytes as they are now */
    uint32_t wrong;           /* bits of enum lam_staged_fault, without those that a seal tells */
    size_t n_staged;          /* modules that change something */
    size_t n_missing;         /* tensors that a module needs and does not have */
    char missing[64];         /* the first one's module; "" */
};

/* Reads all staged bytes. */
void lam_adapter_inspect(const struct lam_adapter *a, struct lam_inspection *out);
/* The bits of what differs between two seals. */
uint32_t lam_seal_differences(const struct lam_staged_seal *a, const struct lam_staged_seal *b);

#endif
