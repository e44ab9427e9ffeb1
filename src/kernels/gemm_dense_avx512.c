/* Products with float weights and with 14-bit adapter factors; lane = output row. */
#include "kernels/avx512.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 256    /* columns of a tile that stay in the first-level cache for all rows */
#define ROW_BLOCK 12 /* rows of activations that share a loaded weight */
#define WIDE_ROWS 24 /* from here on it pays to widen 2-byte weights once (measured) */

INLINE __m512 weights(enum lam_dtype dtype, const uint8_t *tile, size_t k)
{
    if (dtype == LAM_F32) return _mm512_loadu_ps(tile + 64 * k);
    if (dtype == LAM_F16) return load_f16(tile + 32 * k);
    __m256i bits = _mm256_loadu_si256((const __m256i *)(tile + 32 * k));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* y[n_rows, 16] += n columns of a tile and of x, group by group; n_rows is a constant. ahead: the tile is asked for beforehand. */
INLINE void float_rows(enum lam_dtype dtype, const uint8_t *tile, size_t n, bool ahead, const float *x, size_t x_stride,
                       size_t n_rows, float *y, size_t y_stride)
{
    const size_t size = dtype == LAM_F32 ? 4 : 2;
    __m512 total[ROW_BLOCK], sum[ROW_BLOCK];
#pragma GCC unroll 12
    for (size_t r = 0; r < n_rows; r++) total[r] = _mm512_loadu_ps(y + r * y_stride);
    for (size_t g = 0; g < n; g += LAM_GROUP) {
        size_t end = g + LAM_GROUP < n ? g + LAM_GROUP : n;
        if (ahead) prefetch(tile + g * LAM_TILE_ROWS * size, LAM_GROUP * LAM_TILE_ROWS * size);
#pragma GCC unroll 12
        for (size_t r = 0; r < n_rows; r++) sum[r] = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (size_t k = g; k < end; k++) {
            __m512 w = weights(dtype, tile, k);
#pragma GCC unroll 12
            for (size_t r = 0; r < n_rows; r++)
                sum[r] = _mm512_add_ps(sum[r], _mm512_mul_ps(w, _mm512_set1_ps(x[r * x_stride + k])));
        }
#pragma GCC unroll 12
        for (size_t r = 0; r < n_rows; r++) total[r] = _mm512_add_ps(total[r], sum[r]);
    }
#pragma GCC unroll 12
    for (size_t r = 0; r < n_rows; r++) _mm512_storeu_ps(y + r * y_stride, total[r]);
}

/* The same for any number of rows. */
INLINE void float_chunk(enum lam_dtype dtype, const uint8_t *tile, size_t n, bool ahead, const float *x, size_t x_stride,
                        size_t n_rows, float *y, size_t y_stride)
{
    size_t r = 0;
    for (; r + 12 <= n_rows; r += 12)
        float_rows(dtype, tile, n, ahead && r == 0, x + r * x_stride, x_stride, 12, y + r * y_stride, y_stride);
    if (r + 8 <= n_rows) {
        float_rows(dtype, tile, n, ahead && r == 0, x + r * x_stride, x_stride, 8, y + r * y_stride, y_stride);
        r += 8;
    }
    if (r + 4 <= n_rows) {
        float_rows(dtype, tile, n, ahead && r == 0, x + r * x_stride, x_stride, 4, y + r * y_stride, y_stride);
        r += 4;
    }
    if (r + 2 <= n_rows) {
        float_rows(dtype, tile, n, ahead && r == 0, x + r * x_stride, x_stride, 2, y + r * y_stride, y_stride);
        r += 2;
    }
    if (r < n_rows) float_rows(dtype, tile, n, ahead && r == 0, x + r * x_stride, x_stride, 1, y + r * y_stride, y_stride);
}

/* wide[n][16]: n columns of a 2-byte type. */
INLINE void widen(enum lam_dtype dtype, const uint8_t *tile, size_t n, float *wide)
{
    for (size_t k = 0; k < n; k++) {
        if (k % 2 == 0) prefetch(tile + 32 * k, 64);
        _mm512_storeu_ps(wide + k * LAM_TILE_ROWS, weights(dtype, tile, k));
    }
}

/* dtype is a constant. Where a weight meets several blocks of rows it is widened once. */
INLINE void float_product(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                          float *y, size_t y_stride)
{
    const size_t size = dtype == LAM_F32 ? 4 : 2;
    for (size_t r = 0; r < n_rows; r++) _mm512_storeu_ps(y + r * y_stride, _mm512_setzero_ps());
    for (size_t from = 0; from < cols; from += CHUNK) {
        const uint8_t *columns = tile + from * LAM_TILE_ROWS * size;
        size_t n = cols - from < CHUNK ? cols - from : CHUNK;
        if (dtype != LAM_F32 && n_rows >= WIDE_ROWS) {
            _Alignas(64) float wide[CHUNK * LAM_TILE_ROWS];
            widen(dtype, columns, n, wide);
            float_chunk(LAM_F32, (const uint8_t *)wide, n, false, x + from, x_stride, n_rows, y, y_stride);
        } else {
            float_chunk(dtype, columns, n, true, x + from, x_stride, n_rows, y, y_stride);
        }
    }
}

void lam_gemm_float_avx512(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                           size_t n_rows, float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_F32: float_product(LAM_F32, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_F16: float_product(LAM_F16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_BF16: float_product(LAM_BF16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    default: break; /* block types go to gemm_quant */
    }
}

/* The sum of one group's products of n pairs of columns with one row's codes, in two chains. */
INLINE __m512i q14_group(const uint8_t *w, size_t n, const int16_t *q)
{
    __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t p = 0; p + 2 <= n; p += 2) {
        even = _mm512_dpwssd_epi32(even, _mm512_loadu_si512(w + 64 * p), broadcast4(q + 2 * p));
        odd = _mm512_dpwssd_epi32(odd, _mm512_loadu_si512(w + 64 * p + 64), broadcast4(q + 2 * p + 2));
    }
    if (n % 2) even = _mm512_dpwssd_epi32(even, _mm512_loadu_si512(w + 64 * n - 64), broadcast4(q + 2 * n - 2));
    return _mm512_add_epi32(even, odd);
}

/* The same for n_rows rows, whose codes lie stride apart. */
INLINE void q14_groups(const uint8_t *w, size_t n, const int16_t *q, size_t stride, size_t n_rows, __m512i *sum)
{
    if (n_rows == 1) {
        sum[0] = q14_group(w, n, q);
        return;
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++) sum[r] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (size_t p = 0; p < n; p++) {
        __m512i pair = _mm512_loadu_si512(w + 64 * p);
#pragma GCC unroll 8
        for (size_t r = 0; r < n_rows; r++) sum[r] = _mm512_dpwssd_epi32(sum[r], pair, broadcast4(q + r * stride + 2 * p));
    }
}

/* y[n_rows, 16] += one tile; n_rows is a constant. */
INLINE void q14_rows(const uint8_t *tile, size_t cols, const int16_t *q, const float *xs, size_t groups, size_t n_rows, float *y,
                     size_t y_stride)
{
    __m512 acc[ROW_BLOCK];
    __m512i sum[ROW_BLOCK];
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++) acc[r] = _mm512_setzero_ps();
    for (size_t g = 0; g * LAM_GROUP < cols; g++, tile += lam_q14_tile_bytes(LAM_GROUP)) {
        __m512 scale = _mm512_loadu_ps(tile);
        size_t left = cols - g * LAM_GROUP, pairs = left < LAM_GROUP ? (left + 1) / 2 : LAM_GROUP / 2;
        if (n_rows == 1) prefetch(tile, 64 + 64 * pairs);
        if (pairs == LAM_GROUP / 2) q14_groups(tile + 64, LAM_GROUP / 2, q + g * LAM_GROUP, groups * LAM_GROUP, n_rows, sum);
        else if (pairs == LAM_GROUP / 4) q14_groups(tile + 64, LAM_GROUP / 4, q + g * LAM_GROUP, groups * LAM_GROUP, n_rows, sum);
        else q14_groups(tile + 64, pairs, q + g * LAM_GROUP, groups * LAM_GROUP, n_rows, sum);
#pragma GCC unroll 8
        for (size_t r = 0; r < n_rows; r++) {
            __m512 s = _mm512_mul_ps(scale, _mm512_set1_ps(xs[r * groups + g]));
            acc[r] = _mm512_add_ps(acc[r], _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r]), s));
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < n_rows; r++)
        _mm512_storeu_ps(y + r * y_stride, _mm512_add_ps(_mm512_loadu_ps(y + r * y_stride), acc[r]));
}

void lam_add_q14_avx512(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                        size_t y_stride)
{
    const size_t cols = tiles->cols, groups = x->groups;
    for (size_t t = 0; t < tiles->n; t++, y += LAM_TILE_ROWS) {
        const uint8_t *tile = tiles->bytes + t * lam_q14_tile_bytes(cols);
        const int16_t *q = x->q + first * groups * LAM_GROUP;
        const float *xs = x->scale + first * groups;
        float *out = y;
        size_t left = n_rows;
        for (; left >= 8; left -= 8, q += 8 * groups * LAM_GROUP, xs += 8 * groups, out += 8 * y_stride)
            q14_rows(tile, cols, q, xs, groups, 8, out, y_stride);
        for (; left >= 4; left -= 4, q += 4 * groups * LAM_GROUP, xs += 4 * groups, out += 4 * y_stride)
            q14_rows(tile, cols, q, xs, groups, 4, out, y_stride);
        for (; left >= 1; left--, q += groups * LAM_GROUP, xs += groups, out += y_stride)
            q14_rows(tile, cols, q, xs, groups, 1, out, y_stride);
    }
}
