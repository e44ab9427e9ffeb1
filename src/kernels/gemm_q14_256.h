/* Products with 14-bit adapter factors in 256-bit registers; lane = output row, a tile in two halves of 8 rows. The including file
 * brings the product of a pair of columns. */
#ifndef LAM_KERNELS_GEMM_Q14_256_H
#define LAM_KERNELS_GEMM_Q14_256_H

#include "kernels/avx2.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define Q14_ROWS 4 /* rows of activations that share a loaded weight */

/* sum plus, in every lane, the two products of a and b's int16. */
INLINE __m256i add_pair(__m256i sum, __m256i a, __m256i b);

/* y[n_rows, 16] of rows first .. first+n_rows-1; n_rows is a constant. */
INLINE void q14_rows(const struct lam_q14_tile *tile, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                     size_t y_stride)
{
    const int16_t *q = x->q + first * x->groups * LAM_GROUP;
    const float *xs = x->scale + first * x->groups;
    size_t pairs = tile->cols / 2 + tile->cols % 2;
    for (size_t half = 0; half < 2; half++) {
        __m256 acc[Q14_ROWS];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) acc[r] = _mm256_setzero_ps();
        for (size_t g = 0; g * LAM_GROUP < tile->cols; g++) {
            size_t from = g * LAM_GROUP / 2, to = from + LAM_GROUP / 2 < pairs ? from + LAM_GROUP / 2 : pairs;
            __m256 scale = _mm256_loadu_ps(tile->scale + g * LAM_TILE_ROWS + half * 8);
            __m256i sum[Q14_ROWS];
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
            for (size_t p = from; p < to; p++) {
                __m256i w = _mm256_loadu_si256((const __m256i *)(tile->q + (p * LAM_TILE_ROWS + half * 8) * 2));
#pragma GCC unroll 4
                for (size_t r = 0; r < n_rows; r++)
                    sum[r] = add_pair(sum[r], w, broadcast4(q + r * x->groups * LAM_GROUP + 2 * p));
            }
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) {
                __m256 s = _mm256_mul_ps(scale, _mm256_set1_ps(xs[r * x->groups + g]));
                acc[r] = _mm256_add_ps(acc[r], _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r]), s));
            }
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) _mm256_storeu_ps(y + r * y_stride + half * 8, acc[r]);
    }
}

INLINE void gemm_q14(const struct lam_q14_tile *tile, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                     size_t y_stride)
{
    size_t r = 0;
    for (; r + 4 <= n_rows; r += 4) q14_rows(tile, x, first + r, 4, y + r * y_stride, y_stride);
    if (r + 2 <= n_rows) {
        q14_rows(tile, x, first + r, 2, y + r * y_stride, y_stride);
        r += 2;
    }
    if (r < n_rows) q14_rows(tile, x, first + r, 1, y + r * y_stride, y_stride);
}

#endif
