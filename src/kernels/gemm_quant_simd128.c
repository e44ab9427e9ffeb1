/* Block-quantised products with SIMD128, which multiplies int16: a lane of 4 codes is taken as its even and its odd bytes, the
 * two planes, against the activations' even and odd codes. Each product of a pair is then already one lane, an output row.
 * Q8_0's signed codes stay in the high bytes: their sums are 256 times too large, still exact in int32. */
#include "kernels/gemm_quant_wasm.h"

INLINE v128_t even(enum lam_dtype dtype, v128_t w)
{
    return dtype == LAM_Q8_0 ? wasm_i16x8_shl(w, 8) : wasm_v128_and(w, wasm_i16x8_splat(0x00ff));
}

INLINE v128_t odd(enum lam_dtype dtype, v128_t w)
{
    return dtype == LAM_Q8_0 ? wasm_v128_and(w, wasm_i16x8_splat((int16_t)0xff00)) : wasm_u16x8_shr(w, 8);
}

INLINE v128_t even_codes(v128_t q) { return wasm_i16x8_shr(wasm_i16x8_shl(q, 8), 8); }
INLINE v128_t odd_codes(v128_t q) { return wasm_i16x8_shr(q, 8); }

INLINE v128_t add_dot(v128_t p, v128_t w, v128_t q) { return wasm_i32x4_add(p, wasm_i32x4_dot_i16x8(w, q)); }

/* p += sum, the sum brought to its true size. */
INLINE v128_t add_sum(enum lam_dtype dtype, v128_t p, v128_t sum)
{
    return wasm_i32x4_add(p, dtype == LAM_Q8_0 ? wasm_i32x4_shr(sum, 8) : sum);
}

INLINE void prepare(enum lam_dtype dtype, const int8_t *q, size_t n_groups, struct row *out)
{
    (void)dtype;
    for (size_t i = 0; i < n_groups * 2; i++) {
        v128_t v = wasm_v128_load(q + 16 * i);
        wasm_v128_store(&out->q[0][4 * i], even_codes(v));
        wasm_v128_store(&out->q[1][4 * i], odd_codes(v));
    }
}

INLINE void pack(enum lam_dtype dtype, const struct block *k, size_t g, struct packed *out)
{
    const bool pairs = nibble_pairs(dtype);
#pragma clang loop unroll(disable)
    for (size_t u = 0; u < (pairs ? HALF_UNITS : UNITS); u++)
#pragma clang loop unroll(full)
        for (size_t c = 0; c < QUARTERS; c++)
#pragma clang loop unroll(full)
            for (size_t h = 0; h < (pairs ? 2 : 1); h++) {
                v128_t w = codes(dtype, k, g, u, c, h != 0);
                out->w[0][u + h * HALF_UNITS][c] = even(dtype, w);
                out->w[1][u + h * HALF_UNITS][c] = odd(dtype, w);
            }
}

INLINE void one_row_dots(enum lam_dtype dtype, const struct block *k, size_t g, size_t from, size_t to, const int8_t *q,
                         v128_t p[QUARTERS])
{
    const bool pairs = nibble_pairs(dtype);
    v128_t sum[QUARTERS];
#pragma clang loop unroll(full)
    for (size_t c = 0; c < QUARTERS; c++) sum[c] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
    for (size_t u = from; u < (pairs ? HALF_UNITS : to); u++)
#pragma clang loop unroll(full)
        for (size_t h = 0; h < (pairs ? 2 : 1); h++) {
            v128_t v = wasm_v128_load32_splat(q + 4 * (u + h * HALF_UNITS)), q0 = even_codes(v), q1 = odd_codes(v);
#pragma clang loop unroll(full)
            for (size_t c = 0; c < QUARTERS; c++) {
                v128_t w = codes(dtype, k, g, u, c, h != 0);
                sum[c] = add_dot(sum[c], even(dtype, w), q0);
                sum[c] = add_dot(sum[c], odd(dtype, w), q1);
            }
        }
#pragma clang loop unroll(full)
    for (size_t c = 0; c < QUARTERS; c++) p[c] = add_sum(dtype, p[c], sum[c]);
}

INLINE void row_block_dots(enum lam_dtype dtype, const struct packed *w, size_t first, size_t g, size_t from, size_t to,
                           const struct row *rows, size_t n_rows, v128_t p[ROW_BLOCK][PAIR])
{
    v128_t sum[ROW_BLOCK][PAIR];
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++) sum[r][0] = sum[r][1] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
    for (size_t u = from; u < to; u++)
#pragma clang loop unroll(full)
        for (size_t plane = 0; plane < 2; plane++) {
            v128_t w0 = w->w[plane][u][first], w1 = w->w[plane][u][first + 1];
#pragma clang loop unroll(full)
            for (size_t r = 0; r < n_rows; r++) {
                v128_t v = wasm_v128_load32_splat(&rows[r].q[plane][g * UNITS + u]);
                sum[r][0] = add_dot(sum[r][0], w0, v);
                sum[r][1] = add_dot(sum[r][1], w1, v);
            }
        }
#pragma clang loop unroll(full)
    for (size_t r = 0; r < n_rows; r++)
#pragma clang loop unroll(full)
        for (size_t i = 0; i < PAIR; i++) p[r][i] = add_sum(dtype, p[r][i], sum[r][i]);
}

void lam_gemm_quant_simd128(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    product(dtype, tile, x, y, y_stride);
}
