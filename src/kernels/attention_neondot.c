/* Attention with the dot product of ARMv8.2, which makes the scores of I8 pages. */
#include "kernels/neon.h"

/* Exact sums of products for four positions. */
struct exact {
    int32x4_t sum;
};

INLINE struct exact no_products(void) { return (struct exact){vdupq_n_s32(0)}; }
INLINE struct exact plus_products(struct exact p, int8x16_t k, int8x16_t q) { return (struct exact){vdotq_s32(p.sum, k, q)}; }
INLINE int32x4_t sums_of(struct exact p) { return p.sum; }

#include "kernels/attention_neon.h"

void lam_attention_neondot(const struct lam_attention *a) { attention(a); }
