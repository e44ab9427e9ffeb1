/* Block-quantised products with AVX-VNNI: four products a lane and their sum in one instruction. */
#include "kernels/gemm_quant_256.h"

INLINE int q8_0_offset(void) { return 128; }

/* Units from .. to-1 of a group. */
INLINE void dot(enum lam_dtype dtype, const struct operand *w, const int8_t *q, size_t q_stride, size_t n_rows, size_t from, size_t to,
                __m256i p[])
{
#pragma GCC unroll 8
    for (size_t u = from; u < to; u++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < w->n_halves * n_rows; i++)
            p[i] = _mm256_dpbusd_avx_epi32(p[i], operand_codes(dtype, w, i / n_rows, u), broadcast4(q + i % n_rows * q_stride + 4 * u));
    }
}

/* p plus the halves' sums times their scales. Sums of 2- and 3-bit codes fit in int16: 16 · 7 · 127. */
INLINE __m256i add_scaled(enum lam_dtype dtype, const struct group *w, __m256i sum0, __m256i sum1, __m256i p)
{
    if (dtype == LAM_Q2_K || dtype == LAM_Q3_K)
        return _mm256_dpwssd_avx_epi32(p, _mm256_blend_epi16(sum0, left(sum1, 16), 0xaa), w->scales);
    p = _mm256_add_epi32(p, _mm256_mullo_epi32(sum0, _mm256_srai_epi32(w->sc[0], 16)));
    return _mm256_add_epi32(p, _mm256_mullo_epi32(sum1, _mm256_srai_epi32(w->sc[1], 16)));
}

INLINE void dots(enum lam_dtype dtype, enum lam_form form, const struct operand *w, const int8_t *q, size_t q_stride, size_t n_rows,
                 __m256i p[])
{
    if (form != LAM_FORM_K16 && form != LAM_FORM_K16_MIN) {
        dot(dtype, w, q, q_stride, n_rows, 0, UNITS, p);
        return;
    }
    __m256i sums[2][2 * ROW_BLOCK];
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; h++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < w->n_halves * n_rows; i++) sums[h][i] = _mm256_setzero_si256();
        dot(dtype, w, q, q_stride, n_rows, h * UNITS / 2, (h + 1) * UNITS / 2, sums[h]);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < w->n_halves * n_rows; i++)
        p[i] = add_scaled(dtype, w->half[i / n_rows], sums[0][i], sums[1][i], p[i]);
}

void lam_gemm_quant_avx2vnni(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    gemm_quant(dtype, tile, x, y, y_stride);
}
