/* Internal to the NEON files. Products of floats are vmulq and sums vaddq throughout: the intrinsics that do both round once. */
#ifndef LAM_KERNELS_NEON_H
#define LAM_KERNELS_NEON_H

#include "kernels/kernels.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

void lam_gemm_quant_neon(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_quant_neondot(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_float_neon(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                         float *y, size_t y_stride);
void lam_add_q14_neon(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                      size_t y_stride);
bool lam_quantise8_neon(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
void lam_attention_neon(const struct lam_attention *a);
void lam_attention_neondot(const struct lam_attention *a);
bool lam_kv_store_neon(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part);
void lam_rotate_neon(float *x, size_t n, const float *cosine, const float *sine, bool interleaved);

extern const struct lam_kernels lam_kernels_neon, lam_kernels_neondot;

/* Asks for the n bytes that lie PREFETCH_AHEAD after p, which may lie outside the object. The distance is x86-64's, not measured here. */
#define PREFETCH_AHEAD 12288
INLINE void prefetch(const uint8_t *p, size_t n)
{
    for (size_t line = 0; line < n; line += 64) __builtin_prefetch((const void *)((uintptr_t)p + PREFETCH_AHEAD + line));
}

/* 4 halves as floats. */
INLINE float32x4_t load_f16(const void *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)p))); }

/* Lanes of a where the mask is set, else +0. */
INLINE float32x4_t where(uint32x4_t mask, float32x4_t a) { return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(a))); }

/* lam_exp, operation by operation. */
INLINE float32x4_t exp4(float32x4_t x)
{
    const float32x4_t round = vdupq_n_f32(12582912.0f), top = vdupq_n_f32(88.0f);
    uint32x4_t nonzero = vmvnq_u32(vcltq_f32(x, vdupq_n_f32(-87.0f)));
    x = vbslq_f32(vcgtq_f32(x, top), top, x);
    float32x4_t n = vsubq_f32(vaddq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0f)), round), round);
    float32x4_t r = vsubq_f32(x, vmulq_f32(n, vdupq_n_f32(0x1.63p-1f)));
    r = vsubq_f32(r, vmulq_f32(n, vdupq_n_f32(-0x1.bd0106p-13f)));
    float32x4_t p = vdupq_n_f32(0x1.6a234ep-10f);
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.123a6cp-7f));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.5558f4p-5f));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.555490p-3f));
    p = vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(0x1.fffffcp-2f));
    float32x4_t e = vaddq_f32(vdupq_n_f32(1.0f), vaddq_f32(r, vmulq_f32(vmulq_f32(r, r), p)));
    int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(e), vshlq_n_s32(vcvtq_s32_f32(n), 23));
    return where(nonzero, vreinterpretq_f32_s32(bits));
}

/* Lane 0 of the fixed tree 8+8, 4+4, 2+2, 1+1 over the lanes of lane[0] .. lane[3]. */
INLINE float tree16(const float32x4_t lane[4])
{
    float32x4_t four = vaddq_f32(vaddq_f32(lane[0], lane[2]), vaddq_f32(lane[1], lane[3]));
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

#endif
