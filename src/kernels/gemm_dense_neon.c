/* Products with float weights and with 14-bit adapter factors; lane = output row, 4 registers a tile. */
#include "kernels/neon.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#define CHUNK 128   /* columns of a tile that stay in the first-level cache for all rows */
#define ROW_BLOCK 4 /* rows of activations that share a loaded weight */
#define LANES 4
#define QUARTERS (LAM_TILE_ROWS / LANES)

/* Column k of rows 4·quarter .. 4·quarter+3. */
INLINE float32x4_t weights(enum lam_dtype dtype, const uint8_t *tile, size_t k, size_t quarter)
{
    if (dtype == LAM_F32) return vld1q_f32((const float *)(tile + 64 * k + 16 * quarter));
    if (dtype == LAM_F16) return load_f16(tile + 32 * k + 8 * quarter);
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(tile + 32 * k + 8 * quarter)), 16));
}

/* y[n_rows, 16] += columns from .. to-1, group by group; from is a multiple of the group, n_rows a constant. */
INLINE void float_rows(enum lam_dtype dtype, const uint8_t *tile, size_t from, size_t to, const float *x, size_t x_stride,
                       size_t n_rows, float *y, size_t y_stride)
{
    const size_t size = dtype == LAM_F32 ? 4 : 2;
    for (size_t g = from; g < to; g += LAM_GROUP) {
        size_t end = g + LAM_GROUP < to ? g + LAM_GROUP : to;
        if (n_rows == 1) prefetch(tile + g * LAM_TILE_ROWS * size, LAM_GROUP * LAM_TILE_ROWS * size);
        float32x4_t sum[ROW_BLOCK][QUARTERS];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (size_t i = 0; i < QUARTERS; i++) sum[r][i] = vdupq_n_f32(0.0f);
        for (size_t k = g; k < end; k++) {
            float32x4_t w[QUARTERS];
#pragma GCC unroll 4
            for (size_t i = 0; i < QUARTERS; i++) w[i] = weights(dtype, tile, k, i);
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
                for (size_t i = 0; i < QUARTERS; i++) sum[r][i] = vaddq_f32(sum[r][i], vmulq_n_f32(w[i], x[r * x_stride + k]));
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (size_t i = 0; i < QUARTERS; i++) {
                float *out = y + r * y_stride + i * LANES;
                vst1q_f32(out, vaddq_f32(vld1q_f32(out), sum[r][i]));
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

void lam_gemm_float_neon(enum lam_dtype dtype, const uint8_t *tile, size_t cols, const float *x, size_t x_stride, size_t n_rows,
                         float *y, size_t y_stride)
{
    switch (dtype) {
    case LAM_F32: float_product(LAM_F32, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_F16: float_product(LAM_F16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    case LAM_BF16: float_product(LAM_BF16, tile, cols, x, x_stride, n_rows, y, y_stride); break;
    default: break; /* block types go to gemm_quant */
    }
}

/* sum[4] of 16 rows += the pair of columns w[16 rows][2] times x[2]. */
INLINE void add_pair(const int16x8x2_t w[2], const int16_t *x, int32x4_t sum[QUARTERS])
{
#pragma GCC unroll 2
    for (size_t column = 0; column < 2; column++) /* of the pair */
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            sum[2 * i] = vmlal_n_s16(sum[2 * i], vget_low_s16(w[i].val[column]), x[column]);
            sum[2 * i + 1] = vmlal_high_n_s16(sum[2 * i + 1], w[i].val[column], x[column]);
        }
}

/* y[n_rows, 16] += one tile; n_rows is a constant. */
INLINE void q14_rows(const uint8_t *tile, size_t cols, const int16_t *q, const float *xs, size_t groups, size_t n_rows, float *y,
                     size_t y_stride)
{
    float total[ROW_BLOCK * LAM_TILE_ROWS] = {0};
    for (size_t g = 0; g * LAM_GROUP < cols; g++, tile += lam_q14_tile_bytes(LAM_GROUP)) {
        size_t left = cols - g * LAM_GROUP, pairs = left < LAM_GROUP ? (left + 1) / 2 : LAM_GROUP / 2;
        const float *scales = (const float *)(const void *)tile;
        int32x4_t sum[ROW_BLOCK][QUARTERS];
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (size_t i = 0; i < QUARTERS; i++) sum[r][i] = vdupq_n_s32(0);
        for (size_t p = 0; p < pairs; p++) {
            const int16_t *w = (const int16_t *)(const void *)(tile + 64 + 64 * p);
            const int16x8x2_t pair[2] = {vld2q_s16(w), vld2q_s16(w + LAM_TILE_ROWS)};
#pragma GCC unroll 4
            for (size_t r = 0; r < n_rows; r++) add_pair(pair, q + (r * groups + g) * LAM_GROUP + 2 * p, sum[r]);
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (size_t i = 0; i < QUARTERS; i++) {
                float *out = total + r * LAM_TILE_ROWS + i * LANES;
                float32x4_t scale = vmulq_n_f32(vld1q_f32(scales + i * LANES), xs[r * groups + g]);
                vst1q_f32(out, vaddq_f32(vld1q_f32(out), vmulq_f32(vcvtq_f32_s32(sum[r][i]), scale)));
            }
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < LAM_TILE_ROWS; k += LANES) {
            float *out = y + r * y_stride + k;
            vst1q_f32(out, vaddq_f32(vld1q_f32(out), vld1q_f32(total + r * LAM_TILE_ROWS + k)));
        }
}

void lam_add_q14_neon(const struct lam_q14_tiles *tiles, const struct lam_q14_rows *x, size_t first, size_t n_rows, float *y,
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
