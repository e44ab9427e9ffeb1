/* Internal to the WebAssembly files. */
#ifndef LAM_KERNELS_SIMD128_H
#define LAM_KERNELS_SIMD128_H

#include "kernels/kernels.h"

#include <string.h>
#include <wasm_simd128.h>

#define INLINE static inline __attribute__((always_inline))

void lam_gemm_quant_simd128(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_float_simd128(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                            size_t n_rows, float *y, size_t y_stride);
void lam_add_q14_simd128(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                         size_t y_stride);
bool lam_quantise8_simd128(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
bool lam_quantise14_simd128(const float *x, size_t cols, int16_t *q, float *scale);
void lam_rms_norm_simd128(const float *x, const float *w, size_t n, float eps, float *y);
void lam_attention_simd128(const struct lam_attention *a);
void lam_silu_mul_simd128(const float *gate, const float *up, size_t n, float *y);
void lam_gelu_mul_simd128(const float *gate, const float *up, size_t n, float *y);

/* Whether this engine's relaxed dot product gives the true sums. */
bool lam_relaxed_dot_is_exact(void);

extern const struct lam_kernels lam_kernels_simd128, lam_kernels_relaxed;

/* 4 finite halves as floats: shifted into place the exponent is 112 too small; the product is exact, subnormals included. */
INLINE v128_t load_f16(const void *p)
{
    v128_t bits = wasm_v128_and(wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13), wasm_i32x4_splat((int32_t)0x8fffe000));
    return wasm_f32x4_mul(bits, wasm_f32x4_splat(0x1p112f));
}

/* lam_exp, operation by operation. */
INLINE v128_t exp4(v128_t x)
{
    const v128_t round = wasm_f32x4_splat(12582912.0f);
    v128_t zero = wasm_f32x4_lt(x, wasm_f32x4_splat(-87.0f));
    x = wasm_f32x4_pmin(x, wasm_f32x4_splat(88.0f));
    v128_t rounded = wasm_f32x4_add(wasm_f32x4_mul(x, wasm_f32x4_splat(0x1.715476p+0f)), round);
    v128_t n = wasm_f32x4_sub(rounded, round);
    v128_t r = wasm_f32x4_sub(x, wasm_f32x4_mul(n, wasm_f32x4_splat(0x1.63p-1f)));
    r = wasm_f32x4_sub(r, wasm_f32x4_mul(n, wasm_f32x4_splat(-0x1.bd0106p-13f)));
    v128_t p = wasm_f32x4_splat(0x1.6a234ep-10f);
    p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_splat(0x1.123a6cp-7f));
    p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_splat(0x1.5558f4p-5f));
    p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_splat(0x1.555490p-3f));
    p = wasm_f32x4_add(wasm_f32x4_mul(p, r), wasm_f32x4_splat(0x1.fffffcp-2f));
    v128_t e = wasm_f32x4_add(wasm_f32x4_splat(1.0f), wasm_f32x4_add(r, wasm_f32x4_mul(wasm_f32x4_mul(r, r), p)));
    /* The low bits of `rounded` are n; the shift into the exponent drops those that 1.5·2^23 set. */
    return wasm_v128_andnot(wasm_i32x4_add(e, wasm_i32x4_shl(rounded, 23)), zero);
}

/* The fixed tree 8+8, 4+4, 2+2, 1+1 over 16 lanes in four registers. */
INLINE float tree16(const v128_t lane[4])
{
    v128_t a = wasm_f32x4_add(wasm_f32x4_add(lane[0], lane[2]), wasm_f32x4_add(lane[1], lane[3]));
    a = wasm_f32x4_add(a, wasm_i32x4_shuffle(a, a, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(a, 0) + wasm_f32x4_extract_lane(a, 1);
}

#endif
