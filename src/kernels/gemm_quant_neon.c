/* Block-quantised products with the Advanced SIMD of every 64-bit ARM: products of bytes in int16, gathered there as far as they
 * fit, then added in pairs to int32. */
#include "kernels/gemm_quant_neon.h"

/* Products of two rows each: rows 0 and 1 in low, 2 and 3 in high. */
struct products {
    int16x8_t low, high;
};

INLINE struct products times(uint8x16_t w, int32x4_t q)
{
    int8x16_t a = vreinterpretq_s8_u8(w), b = vreinterpretq_s8_s32(q);
    return (struct products){vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)};
}

INLINE struct products plus_times(struct products sum, uint8x16_t w, int32x4_t q)
{
    int8x16_t a = vreinterpretq_s8_u8(w), b = vreinterpretq_s8_s32(q);
    return (struct products){vmlal_s8(sum.low, vget_low_s8(a), vget_low_s8(b)), vmlal_high_s8(sum.high, a, b)};
}

/* p plus the sums of each row's four products. */
INLINE int32x4_t plus_rows(int32x4_t p, struct products sum)
{
    return vaddq_s32(p, vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high)));
}

/* int16 holds four products of codes up to 63 (4 · 63 · 127 = 32004), and two of Q8_0's (2 · 128 · 127 = 32512). */
INLINE int32x4_t dot_half(enum lam_dtype dtype, int32x4_t p, const uint8x16_t w[UNITS / 2], int8x16_t q)
{
    int32x4_t columns = vreinterpretq_s32_s8(q);
    struct products sum = plus_times(times(w[0], vdupq_laneq_s32(columns, 0)), w[1], vdupq_laneq_s32(columns, 1));
    if (dtype == LAM_Q8_0) {
        p = plus_rows(p, sum);
        sum = times(w[2], vdupq_laneq_s32(columns, 2));
    } else {
        sum = plus_times(sum, w[2], vdupq_laneq_s32(columns, 2));
    }
    return plus_rows(p, plus_times(sum, w[3], vdupq_laneq_s32(columns, 3)));
}

void lam_gemm_quant_neon(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    product(dtype, tile, x, y, y_stride);
}
