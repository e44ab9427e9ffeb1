/* The integer view of a quantised block: groups of 32 weights, the unit of nc1's products (docs/numeric.md).
 * This is the only place, besides the kernels, that knows a block's bits. */
#ifndef LAM_TENSOR_GROUP_H
#define LAM_TENSOR_GROUP_H

#include "tensor/dtype.h"

#define LAM_GROUP 32

/* What a weight's value is, with w the integer weight, h its half (0 or 1) of the group. */
enum lam_form {
    LAM_FORM_SCALE,     /* d·w                        Q4_0 Q5_0 Q8_0 Q4_64 */
    LAM_FORM_SCALE_MIN, /* d·w + m                    Q4_1 Q5_1 */
    LAM_FORM_K32,       /* (d·sc)·w − m·mn            Q4_K Q5_K; sc and mn for the whole group */
    LAM_FORM_K16,       /* (d·sc[h])·w                Q3_K Q6_K */
    LAM_FORM_K16_MIN    /* (d·sc[h])·w − m·mn[h]      Q2_K */
};

struct lam_group {
    int8_t w[LAM_GROUP]; /* offset removed: Q4_0 gives −8..7, Q4_K 0..15 */
    float d, m;          /* of the block */
    int32_t sc[2], mn[2];
};

enum lam_form lam_dtype_form(enum lam_dtype dtype);

/* Group g (0 .. block_elements/32 − 1) of one block in untiled form. */
void lam_group_load(enum lam_dtype dtype, const uint8_t *block, size_t g, struct lam_group *out);

#endif
