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

/* y[n_rows, 16] of rows first .. first+n_rows-1 for quarters at and at + 1; n_rows is a constant. */
INLINE void q14_rows(const struct lam_q14_tile *tile, const struct lam_q14_rows *x, size_t first, size_t n_rows, size_t at,
                     float *y, size_t y_stride)
{
    const int16_t *q = x->q + first * x->groups * LAM_GROUP;
    const float *xs = x->scale + first * x->groups;
    size_t pairs = tile->cols / 2 + tile->cols % 2;
    v128_t acc[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++) acc[r][0] = acc[r][1] = wasm_f32x4_splat(0.0f);
#pragma clang loop unroll(disable)
    for (size_t g = 0; g * LAM_GROUP < tile->cols; g++) {
        size_t from = g * LAM_GROUP / 2, to = from + LAM_GROUP / 2 < pairs ? from + LAM_GROUP / 2 : pairs;
        v128_t sum[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++) sum[r][0] = sum[r][1] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
        for (size_t p = from; p < to; p++) {
            const int16_t *w = tile->q + (p * LAM_TILE_ROWS + at * LANES) * 2;
            v128_t w0 = wasm_v128_load(w), w1 = wasm_v128_load(w + 8);
#pragma clang loop unroll(full)
            for (size_t r = 0; r < n_rows; r++) {
                v128_t v = wasm_v128_load32_splat(q + r * x->groups * LAM_GROUP + 2 * p);
                sum[r][0] = wasm_i32x4_add(sum[r][0], wasm_i32x4_dot_i16x8(w0, v));
                sum[r][1] = wasm_i32x4_add(sum[r][1], wasm_i32x4_dot_i16x8(w1, v));
            }
        }
        const float *scale = tile->scale + g * LAM_TILE_ROWS + at * LANES;
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) {
                v128_t s = wasm_f32x4_mul(wasm_v128_load(scale + i * LANES), wasm_f32x4_splat(xs[r * x->groups + g]));
                acc[r][i] = wasm_f32x4_add(acc[r][i], wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum[r][i]), s));
            }
    }
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
        for (size_t i = 0; i < PAIR; i++) wasm_v128_store(y + r * y_stride + (at + i) * LANES, acc[r][i]);
}

void lam_gemm_q14_simd128(const struct lam_q14_tile *tile, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
                          size_t y_stride)
{
    for (size_t at = 0; at < QUARTERS; at += PAIR) {
        size_t r = 0;
        for (; r + 4 <= n_rows; r += 4) q14_rows(tile, x, first + r, 4, at, y + r * y_stride, y_stride);
        if (r + 2 <= n_rows) {
            q14_rows(tile, x, first + r, 2, at, y + r * y_stride, y_stride);
            r += 2;
        }
        if (r < n_rows) q14_rows(tile, x, first + r, 1, at, y + r * y_stride, y_stride);
    }
}
