/* Block-quantised products with the dot product of ARMv8.2: four products of bytes a lane, exact in int32. */
#include "kernels/gemm_quant_neon.h"

INLINE int32x4_t dot_half(enum lam_dtype dtype, int32x4_t p, const uint8x16_t w[UNITS / 2], int8x16_t q)
{
    (void)dtype;
    p = vdotq_laneq_s32(p, vreinterpretq_s8_u8(w[0]), q, 0);
    p = vdotq_laneq_s32(p, vreinterpretq_s8_u8(w[1]), q, 1);
    p = vdotq_laneq_s32(p, vreinterpretq_s8_u8(w[2]), q, 2);
    return vdotq_laneq_s32(p, vreinterpretq_s8_u8(w[3]), q, 3);
}

void lam_gemm_quant_neondot(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    product(dtype, tile, x, y, y_stride);
}
