/* Internal to the AVX-512 files. */
#ifndef LAM_KERNELS_AVX512_H
#define LAM_KERNELS_AVX512_H

#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

void lam_gemm_quant_avx512(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_float_avx512(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                           size_t n_rows, float *y, size_t y_stride);
void lam_add_q14_avx512(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                        size_t y_stride);
void lam_attention_avx512(const struct lam_attention *a);
bool lam_quantise8_avx512(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
bool lam_kv_store_avx512(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part);
void lam_rotate_avx512(float *x, size_t n, const float *cosine, const float *sine, bool interleaved);

extern const struct lam_kernels lam_kernels_avx512;

/* Four bytes in every lane. */
INLINE __m512i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Asks for the n bytes that lie PREFETCH_AHEAD after p, which may lie outside the object. The distance was measured: a third of
 * it gives two thirds of the speed from memory, twice as much no more. */
#define PREFETCH_AHEAD 12288
INLINE void prefetch(const uint8_t *p, size_t n)
{
    for (size_t line = 0; line < n; line += 64) _mm_prefetch((const char *)((uintptr_t)p + PREFETCH_AHEAD + line), _MM_HINT_T0);
}

/* 16 halves as floats. */
INLINE __m512 load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }

/* lam_exp, operation by operation. */
INLINE __m512 exp16(__m512 x)
{
    const __m512 round = _mm512_set1_ps(12582912.0f);
    __mmask16 nonzero = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
    x = _mm512_min_ps(_mm512_set1_ps(88.0f), x);
    __m512 n = _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)), round), round);
    __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(0x1.63p-1f)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(-0x1.bd0106p-13f)));
    __m512 p = _mm512_set1_ps(0x1.6a234ep-10f);
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.123a6cp-7f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.5558f4p-5f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.555490p-3f));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(0x1.fffffcp-2f));
    __m512 e = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_add_ps(r, _mm512_mul_ps(_mm512_mul_ps(r, r), p)));
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(e), _mm512_slli_epi32(_mm512_cvttps_epi32(n), 23));
    return _mm512_maskz_mov_ps(nonzero, _mm512_castsi512_ps(bits));
}

/* Lane 0 of the fixed tree 8+8, 4+4, 2+2, 1+1. */
INLINE float tree16(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#endif
