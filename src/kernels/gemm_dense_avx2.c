/* Products with float weights and with 14-bit adapter factors; lane = output row, a tile in two halves of 8 rows. */
#include "kernels/gemm_q14_256.h"

#define CHUNK 128   /* columns of a tile that stay in the first-level cache for all rows */
#define ROW_BLOCK 4 /* rows of activations that share a loaded weight */
#define LANES 8

/* Column k of rows 8·half .. 8·half+7. */
INLINE __m256 weights(enum lam_dtype dtype, const uint8_t *tile, size_t k, size_t half)
{
    if (dtype == LAM_F32) return _mm256_loadu_ps((const float *)(tile + 64 * k + 32 * half));
    if (dtype == LAM_F16) return load_f16(tile + 32 * k + 16 * half);
    __m128i bits = _mm_loadu_si128((const __m128i *)(tile + 32 * k + 16 * half));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* y[n_rows, 16] += columns from .. to-1, group by group; from is a multiple of the group, n_rows a constant. */
INLINE void float_rows(enum lam_dtype dtype, const uint8_t *tile, size_t from, size_t to, const float *x, size_t x_stride,
                       size_t n_rows, float *y, size_t y_stride)
{
    const size_t size = dtype == LAM_F32 ? 4 : 2;
    for (size_t g = from; g < to; g += LAM_GROUP) {
        size_t end = g + LAM_GROUP < to ? g + LAM_GROUP : to;
        if (n_rows == 1) prefetch(tile + g * LAM_TILE_ROWS * size, LAM_GROUP * LAM_TILE_ROWS * size);
        __m256 sum[ROW_BLOCK][2];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
#pragma GCC unroll 4
        for (size_t k = g; k < end; k++) {
            __m256 w0 = weights(dtype, tile, k, 0), w1 = weights(dtype, tile, k, 1);
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) {
                __m256 v = _mm256_set1_ps(x[r * x_stride + k]);
                sum[r][0] = _mm256_add_ps(sum[r][0], _mm256_mul_ps(w0, v));
                sum[r][1] = _mm256_add_ps(sum[r][1], _mm256_mul_ps(w1, v));
            }
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++) {
            float *out = y + r * y_stride;
            _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), sum[r][0]));
            _mm256_storeu_ps(out + LANES, _mm256_add_ps(_mm256_loadu_ps(out + LANES), sum[r][1]));
        }
    }
}

/* dtype is a constant. */
INLINE void float_product(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                          float *y, size_t y_stride)
{
    for (size_t r = 0; r < n_rows; r++) memset(y + r * y_stride, 0, LAM_TILE_ROWS * sizeof *y);
    for (size_t from = 0; from < cols; from += CHUNK) {
        size_t to = from + CHUNK < cols ? from + CHUNK : cols, r = 0;
        for (; r + 4 <= n_rows; r += 4)
            float_rows(dtype, tile, from, to, x + r * x_stride, x_stride, 4, y + r * y_stride, y_stride);
        if (r + 2 <= n_rows) {
            float_rows(dtype, tile, from, to, x + r * x_stride, x_stride, 2, y + r * y_stride, y_stride);
            r += 2;
        }
        if (r < n_rows) float_rows(dtype, tile, from, to, x + r * x_stride, x_stride, 1, y + r * y_stride, y_stride);
    }
}

void lam_gemm_float_avx2(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                         float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_F32: float_product(LAM_F32, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_F16: float_product(LAM_F16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_BF16: float_product(LAM_BF16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    default: break; /* block types go to gemm_quant */
    }
}

INLINE __m256i add_pair(__m256i sum, __m256i a, __m256i b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

void lam_add_q14_avx2(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                      size_t y_stride)
{
    add_q14(tiles, x, first, n_rows, y, y_stride);
}
