/* Products with float weights and with 14-bit adapter factors; lane = output row, a tile in four quarters of 4 rows. */
#include "kernels/simd128.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 128   /* columns of a tile that stay in the first-level cache for all rows */
#define ROW_BLOCK 4 /* rows of activations that share a loaded weight */
#define LANES 4
#define QUARTERS 4
#define PAIR 2      /* quarters whose sums stay in registers */

/* Column k of rows 4·quarter .. 4·quarter+3. */
INLINE v128_t weights(enum lam_dtype dtype, const uint8_t *tile, size_t k, size_t quarter)
{
    if (dtype == LAM_F32) return wasm_v128_load(tile + 64 * k + 16 * quarter);
    const uint8_t *at = tile + 32 * k + 8 * quarter;
    return dtype == LAM_F16 ? load_f16(at) : wasm_i32x4_shl(wasm_u32x4_load16x4(at), 16);
}

/* y[n_rows, 16] += columns from .. to-1 of quarters first and first + 1, group by group; from is a multiple of the group, n_rows
 * a constant. */
INLINE void float_rows(enum lam_dtype dtype, const uint8_t *tile, size_t from, size_t to, size_t first, const float *x,
                       size_t x_stride, size_t n_rows, float *y, size_t y_stride)
{
#pragma clang loop unroll(disable)
    for (size_t g = from; g < to; g += LAM_GROUP) {
        size_t end = g + LAM_GROUP < to ? g + LAM_GROUP : to;
        v128_t sum[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++) sum[r][0] = sum[r][1] = wasm_f32x4_splat(0.0f);
#pragma clang loop unroll(disable)
        for (size_t k = g; k < end; k++) {
            v128_t w0 = weights(dtype, tile, k, first), w1 = weights(dtype, tile, k, first + 1);
#pragma clang loop unroll(full)
            for (size_t r = 0; r < n_rows; r++) {
                v128_t v = wasm_v128_load32_splat(&x[r * x_stride + k]);
                sum[r][0] = wasm_f32x4_add(sum[r][0], wasm_f32x4_mul(w0, v));
                sum[r][1] = wasm_f32x4_add(sum[r][1], wasm_f32x4_mul(w1, v));
            }
        }
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) {
                float *out = y + r * y_stride + (first + i) * LANES;
                wasm_v128_store(out, wasm_f32x4_add(wasm_v128_load(out), sum[r][i]));
            }
    }
}

/* dtype is a constant. */
INLINE void float_product(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                          float *y, size_t y_stride)
{
    for (size_t r = 0; r < n_rows; r++) memset(y + r * y_stride, 0, LAM_TILE_ROWS * sizeof *y);
    for (size_t from = 0; from < cols; from += CHUNK)
        for (size_t first = 0; first < QUARTERS; first += PAIR) {
            size_t to = from + CHUNK < cols ? from + CHUNK : cols, r = 0;
            for (; r + 4 <= n_rows; r += 4)
                float_rows(dtype, tile, from, to, first, x + r * x_stride, x_stride, 4, y + r * y_stride, y_stride);
            if (r + 2 <= n_rows) {
                float_rows(dtype, tile, from, to, first, x + r * x_stride, x_stride, 2, y + r * y_stride, y_stride);
                r += 2;
            }
            if (r < n_rows) float_rows(dtype, tile, from, to, first, x + r * x_stride, x_stride, 1, y + r * y_stride, y_stride);
        }
}

void lam_gemm_float_simd128(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride,
                            size_t n_rows, float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_F32: float_product(LAM_F32, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_F16: float_product(LAM_F16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_BF16: float_product(LAM_BF16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    default: break; /* block types go to gemm_quant */
    }
}

/* y[n_rows, 16] += one tile, quarters at and at + 1; n_rows is a constant. */
INLINE void q14_rows(const uint8_t *tile, size_t cols, const int16_t *q, const float *xs, size_t groups, size_t n_rows, size_t at,
                     float *y, size_t y_stride)
{
    v128_t acc[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++) acc[r][0] = acc[r][1] = wasm_f32x4_splat(0.0f);
#pragma clang loop unroll(disable)
    for (size_t g = 0; g * LAM_GROUP < cols; g++, tile += lam_q14_tile_bytes(LAM_GROUP)) {
        size_t left = cols - g * LAM_GROUP, pairs = left < LAM_GROUP ? (left + 1) / 2 : LAM_GROUP / 2;
        v128_t sum[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++) sum[r][0] = sum[r][1] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
        for (size_t p = 0; p < pairs; p++) {
            const uint8_t *w = tile + 64 + 64 * p + 4 * at * LANES;
            v128_t w0 = wasm_v128_load(w), w1 = wasm_v128_load(w + 16);
#pragma clang loop unroll(full)
            for (size_t r = 0; r < n_rows; r++) {
                v128_t v = wasm_v128_load32_splat(q + (r * groups + g) * LAM_GROUP + 2 * p);
                sum[r][0] = wasm_i32x4_add(sum[r][0], wasm_i32x4_dot_i16x8(w0, v));
                sum[r][1] = wasm_i32x4_add(sum[r][1], wasm_i32x4_dot_i16x8(w1, v));
            }
        }
        const uint8_t *scale = tile + 4 * at * LANES;
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) {
                v128_t s = wasm_f32x4_mul(wasm_v128_load(scale + 16 * i), wasm_f32x4_splat(xs[r * groups + g]));
                acc[r][i] = wasm_f32x4_add(acc[r][i], wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum[r][i]), s));
            }
    }
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
        for (size_t i = 0; i < PAIR; i++) {
            float *out = y + r * y_stride + (at + i) * LANES;
            wasm_v128_store(out, wasm_f32x4_add(wasm_v128_load(out), acc[r][i]));
        }
}

void lam_add_q14_simd128(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                         size_t y_stride)
{
    const size_t cols = tiles->cols, groups = x->groups;
    for (size_t t = 0; t < tiles->n; t++, y += LAM_TILE_ROWS)
        for (size_t at = 0; at < QUARTERS; at += PAIR) {
            const uint8_t *tile = tiles->bytes + t * lam_q14_tile_bytes(cols);
            const int16_t *q = x->q + first * groups * LAM_GROUP;
            const float *xs = x->scale + first * groups;
            float *out = y;
            size_t left = n_rows;
            for (; left >= 4; left -= 4, q += 4 * groups * LAM_GROUP, xs += 4 * groups, out += 4 * y_stride)
                q14_rows(tile, cols, q, xs, groups, 4, at, out, y_stride);
            for (; left >= 1; left--, q += groups * LAM_GROUP, xs += groups, out += y_stride)
                q14_rows(tile, cols, q, xs, groups, 1, at, out, y_stride);
        }
}
