/* Attention with the Advanced SIMD of every 64-bit ARM. */
#include "kernels/neon.h"

/* Exact sums of products for four positions, two sums each. */
struct exact {
    int32x4_t low, high; /* positions 0 and 1, 2 and 3 */
};

INLINE struct exact no_products(void) { return (struct exact){vdupq_n_s32(0), vdupq_n_s32(0)}; }

INLINE struct exact plus_products(struct exact p, int8x16_t k, int8x16_t q)
{
    return (struct exact){vpadalq_s16(p.low, vmull_s8(vget_low_s8(k), vget_low_s8(q))), vpadalq_s16(p.high, vmull_high_s8(k, q))};
}

INLINE int32x4_t sums_of(struct exact p) { return vpaddq_s32(p.low, p.high); }

#include "kernels/attention_neon.h"

void lam_attention_neon(const struct lam_attention *a) { attention(a); }
