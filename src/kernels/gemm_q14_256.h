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

/* y[n_rows, 16] += one tile; n_rows is a constant. */
INLINE void q14_rows(const uint8_t *tile, size_t cols, const int16_t *q, const float *xs, size_t groups, size_t n_rows, float *y,
                     size_t y_stride)
{
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *group = tile + 32 * half;
        __m256 acc[Q14_ROWS];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) acc[r] = _mm256_setzero_ps();
        for (size_t g = 0; g * LAM_GROUP < cols; g++, group += lam_q14_tile_bytes(LAM_GROUP)) {
            size_t left = cols - g * LAM_GROUP, pairs = left < LAM_GROUP ? (left + 1) / 2 : LAM_GROUP / 2;
            __m256 scale = _mm256_loadu_ps((const float *)(const void *)group);
            __m256i sum[Q14_ROWS];
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 4
            for (size_t p = 0; p < pairs; p++) {
                __m256i w = _mm256_loadu_si256((const __m256i *)(group + 64 + 64 * p));
#pragma GCC unroll 4
                for (size_t r = 0; r < n_rows; r++)
                    sum[r] = add_pair(sum[r], w, broadcast4(q + (r * groups + g) * LAM_GROUP + 2 * p));
            }
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) {
                __m256 s = _mm256_mul_ps(scale, _mm256_set1_ps(xs[r * groups + g]));
                acc[r] = _mm256_add_ps(acc[r], _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r]), s));
            }
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) {
            float *out = y + r * y_stride + half * 8;
            _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), acc[r]));
        }
    }
}

INLINE void add_q14(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                    size_t y_stride)
{
    const size_t cols = tiles->cols, groups = x->groups;
    for (size_t t = 0; t < tiles->n; t++, y += LAM_TILE_ROWS) {
        const uint8_t *tile = tiles->bytes + t * lam_q14_tile_bytes(cols);
        const int16_t *q = x->q + first * groups * LAM_GROUP;
        const float *xs = x->scale + first * groups;
        float *out = y;
        size_t left = n_rows;
        for (; left >= 4; left -= 4, q += 4 * groups * LAM_GROUP, xs += 4 * groups, out += 4 * y_stride)
            q14_rows(tile, cols, q, xs, groups, 4, out, y_stride);
        for (; left >= 1; left--, q += groups * LAM_GROUP, xs += groups, out += y_stride)
            q14_rows(tile, cols, q, xs, groups, 1, out, y_stride);
    }
}

#endif
