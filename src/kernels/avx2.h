/* Internal to the AVX2 and AVX-VNNI files. */
#ifndef LAM_KERNELS_AVX2_H
#define LAM_KERNELS_AVX2_H

#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

void lam_gemm_quant_avx2(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);
void lam_gemm_float_avx2(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                         float *y, size_t y_stride);
void lam_add_q14_avx2(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                      size_t y_stride);
void lam_attention_avx2(const struct lam_attention *a);
bool lam_kv_store_avx2(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part);
void lam_rotate_avx2(float *x, size_t n, const float *cosine, const float *sine, bool interleaved);

bool lam_quantise8_avx2(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half);
bool lam_quantise14_avx2(const float *x, size_t cols, int16_t *q, float *scale);
void lam_rms_norm_avx2(const float *x, const float *w, size_t n, float eps, float *y);
void lam_silu_mul_avx2(const float *gate, const float *up, size_t n, float *y);
void lam_gelu_mul_avx2(const float *gate, const float *up, size_t n, float *y);

void lam_gemm_quant_avx2vnni(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride);

extern const struct lam_kernels lam_kernels_avx2, lam_kernels_avx2vnni;

/* Four bytes in every lane. */
INLINE __m256i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Asks for the n bytes that lie PREFETCH_AHEAD after p, which may lie outside the object. The distance was measured: a third of
 * it gives two thirds of the speed from memory, twice as much no more. */
#define PREFETCH_AHEAD 12288
INLINE void prefetch(const uint8_t *p, size_t n)
{
    for (size_t line = 0; line < n; line += 64) _mm_prefetch((const char *)((uintptr_t)p + PREFETCH_AHEAD + line), _MM_HINT_T0);
}

/* 8 halves as floats. */
INLINE __m256 load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

/* lam_exp, operation by operation. */
INLINE __m256 exp8(__m256 x)
{
    const __m256 round = _mm256_set1_ps(12582912.0f);
    __m256 nonzero = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_NLT_UQ);
    x = _mm256_min_ps(_mm256_set1_ps(88.0f), x);
    __m256 n = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)), round), round);
    __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(0x1.63p-1f)));
    r = _mm256_sub_ps(r, _mm256_mul_ps(n, _mm256_set1_ps(-0x1.bd0106p-13f)));
    __m256 p = _mm256_set1_ps(0x1.6a234ep-10f);
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.123a6cp-7f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.5558f4p-5f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.555490p-3f));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(0x1.fffffcp-2f));
    __m256 e = _mm256_add_ps(_mm256_set1_ps(1.0f), _mm256_add_ps(r, _mm256_mul_ps(_mm256_mul_ps(r, r), p)));
    __m256i bits = _mm256_add_epi32(_mm256_castps_si256(e), _mm256_slli_epi32(_mm256_cvttps_epi32(n), 23));
    return _mm256_and_ps(nonzero, _mm256_castsi256_ps(bits));
}

/* Lane 0 of the fixed tree 8+8, 4+4, 2+2, 1+1 over lanes 0..7 in low and 8..15 in high. */
INLINE float tree16(__m256 low, __m256 high)
{
    __m256 a = _mm256_add_ps(low, high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#endif
