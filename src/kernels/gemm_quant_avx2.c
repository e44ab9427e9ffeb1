/* Block-quantised products with AVX2. Codes below 64 are multiplied unsigned, their int16 sums gathered as far as they fit; Q8_0
 * takes |w| and moves its sign to the activations. */
#include "kernels/gemm_quant_256.h"

INLINE int q8_0_offset(void) { return 0; }

/* Keeps the compiler from regrouping a chain of integer additions that goes through v: the regrouped one runs out of registers. */
INLINE void in_order(__m256i *v) { __asm__("" : "+x"(*v)); }

/* Units whose products' pair sums (2 · 127 · largest code each) add up in int16; 0: Q8_0's way. */
INLINE size_t units_in_int16(enum lam_dtype dtype)
{
    switch (dtype) {
    case LAM_Q4_0: case LAM_Q4_64: case LAM_Q4_1: case LAM_Q4_K: return 8; /* 8 · 3810 */
    case LAM_Q2_K: case LAM_Q3_K:                          /* a half at a time for its scale */
    case LAM_Q5_0: case LAM_Q5_1: case LAM_Q5_K: return 4; /* 4 · 7874 */
    case LAM_Q6_K: return 2;                               /* 2 · 16002 */
    default: return 0;
    }
}

/* Q8_0: |w| times the activations with w's sign. */
INLINE void dots_signed(enum lam_dtype dtype, const struct operand *w, const int8_t *q, size_t q_stride, size_t n_rows, __m256i p[])
{
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (size_t u = 0; u < UNITS; u++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < w->n_halves * n_rows; i++) {
            __m256i c = operand_codes(dtype, w, i / n_rows, u);
            __m256i signed_q = _mm256_sign_epi8(broadcast4(q + i % n_rows * q_stride + 4 * u), c);
            p[i] = _mm256_add_epi32(p[i], _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(c), signed_q), ones));
            in_order(&p[i]);
        }
    }
}

INLINE void dots(enum lam_dtype dtype, enum lam_form form, const struct operand *w, const int8_t *q, size_t q_stride, size_t n_rows,
                 __m256i p[])
{
    const size_t batch = units_in_int16(dtype);
    bool scaled = form == LAM_FORM_K16 || form == LAM_FORM_K16_MIN;
    if (batch == 0) {
        dots_signed(dtype, w, q, q_stride, n_rows, p);
        return;
    }
#pragma GCC unroll 4
    for (size_t from = 0; from < UNITS; from += batch) {
        __m256i sum[2 * ROW_BLOCK];
#pragma GCC unroll 8
        for (size_t u = from; u < from + batch; u++) {
#pragma GCC unroll 8
            for (size_t i = 0; i < w->n_halves * n_rows; i++) {
                __m256i c = operand_codes(dtype, w, i / n_rows, u);
                __m256i product = _mm256_maddubs_epi16(c, broadcast4(q + i % n_rows * q_stride + 4 * u));
                sum[i] = u == from ? product : _mm256_add_epi16(sum[i], product);
                in_order(&sum[i]);
            }
        }
#pragma GCC unroll 8
        for (size_t i = 0; i < w->n_halves * n_rows; i++) {
            __m256i factor = scaled ? w->half[i / n_rows]->sc[from / 4] : _mm256_set1_epi16(1);
            p[i] = _mm256_add_epi32(p[i], _mm256_madd_epi16(sum[i], factor));
        }
    }
}

void lam_gemm_quant_avx2(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    gemm_quant(dtype, tile, x, y, y_stride);
}
