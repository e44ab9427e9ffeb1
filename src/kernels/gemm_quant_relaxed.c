/* Block-quantised products with the relaxed dot product of int8, the one relaxed instruction that is used; the table.
 *
 * Its second operand's bytes must lie in 0..127, or engines may differ; then it is exact: pairs stay below 2 · 127 · 128 in int16.
 * Unsigned codes are such an operand. Q8_0's codes need the activations there, once where they are positive and once where they
 * are negative: w·x = w·max(x, 0) + (−1 − w)·max(−x, 0) + max(−x, 0), and −1 − w, the complement, fits in a byte for every w. */
#include "kernels/gemm_quant_wasm.h"
#include "kernels/scalar.h"

INLINE v128_t positive(v128_t q) { return wasm_i8x16_max(q, wasm_i8x16_splat(0)); }
INLINE v128_t negative(v128_t q) { return positive(wasm_i8x16_neg(q)); }

INLINE v128_t add_dot(v128_t p, v128_t any, v128_t seven_bits) { return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(any, seven_bits, p); }

/* Plane 0 holds the codes or their positive part, plane 1 the negative part. */
INLINE void prepare(enum lam_dtype dtype, const int8_t *q, size_t n_groups, struct row *out)
{
    if (dtype != LAM_Q8_0) {
        memcpy(out->q[0], q, n_groups * LAM_GROUP);
        return;
    }
    for (size_t g = 0; g < n_groups; g++) {
        v128_t sum = wasm_i32x4_splat(0);
#pragma clang loop unroll(full)
        for (size_t h = 0; h < 2; h++) {
            v128_t v = wasm_v128_load(q + g * LAM_GROUP + 16 * h), minus = negative(v);
            wasm_v128_store(&out->q[0][g * UNITS + h * HALF_UNITS], positive(v));
            wasm_v128_store(&out->q[1][g * UNITS + h * HALF_UNITS], minus);
            sum = add_dot(sum, wasm_i8x16_splat(1), minus);
        }
        sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
        out->rest[g] = wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1);
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
            for (size_t h = 0; h < (pairs ? 2 : 1); h++) out->w[0][u + h * HALF_UNITS][c] = codes(dtype, k, g, u, c, h != 0);
}

/* Q8_0: the two parts are summed on their own. */
INLINE void one_row_signed(const struct block *k, const int8_t *q, v128_t p[QUARTERS])
{
    v128_t minus[QUARTERS];
#pragma clang loop unroll(full)
    for (size_t c = 0; c < QUARTERS; c++) minus[c] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
    for (size_t u = 0; u < UNITS; u++) {
        v128_t v = wasm_v128_load32_splat(q + 4 * u), q0 = positive(v), q1 = negative(v);
#pragma clang loop unroll(full)
        for (size_t c = 0; c < QUARTERS; c++) {
            v128_t w = codes(LAM_Q8_0, k, 0, u, c, false);
            p[c] = add_dot(p[c], w, q0);
            minus[c] = add_dot(minus[c], w, q1);
        }
    }
#pragma clang loop unroll(full)
    for (size_t c = 0; c < QUARTERS; c++) p[c] = wasm_i32x4_sub(p[c], minus[c]);
}

INLINE void one_row_dots(enum lam_dtype dtype, const struct block *k, size_t g, size_t from, size_t to, const int8_t *q,
                         v128_t p[QUARTERS])
{
    const bool pairs = nibble_pairs(dtype);
    if (dtype == LAM_Q8_0) {
        one_row_signed(k, q, p);
        return;
    }
#pragma clang loop unroll(disable)
    for (size_t u = from; u < (pairs ? HALF_UNITS : to); u++)
#pragma clang loop unroll(full)
        for (size_t h = 0; h < (pairs ? 2 : 1); h++) {
            v128_t v = wasm_v128_load32_splat(q + 4 * (u + h * HALF_UNITS));
#pragma clang loop unroll(full)
            for (size_t c = 0; c < QUARTERS; c++) p[c] = add_dot(p[c], v, codes(dtype, k, g, u, c, h != 0));
        }
}

INLINE void row_block_dots(enum lam_dtype dtype, const struct packed *w, size_t first, size_t g, size_t from, size_t to,
                           const struct row *rows, size_t n_rows, v128_t p[ROW_BLOCK][PAIR])
{
    const bool with_sign = dtype == LAM_Q8_0;
#pragma clang loop unroll(disable)
    for (size_t u = from; u < to; u++) {
        v128_t w0 = w->w[0][u][first], w1 = w->w[0][u][first + 1];
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++) {
            v128_t v = wasm_v128_load32_splat(&rows[r].q[0][g * UNITS + u]);
            p[r][0] = with_sign ? add_dot(p[r][0], w0, v) : add_dot(p[r][0], v, w0);
            p[r][1] = with_sign ? add_dot(p[r][1], w1, v) : add_dot(p[r][1], v, w1);
        }
        if (!with_sign) continue;
        w0 = wasm_v128_not(w0);
        w1 = wasm_v128_not(w1);
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_rows; r++) {
            v128_t v = wasm_v128_load32_splat(&rows[r].q[1][g * UNITS + u]);
            p[r][0] = add_dot(p[r][0], w0, v);
            p[r][1] = add_dot(p[r][1], w1, v);
        }
    }
#pragma clang loop unroll(full)
    for (size_t r = 0; r < (with_sign ? n_rows : 0); r++)
#pragma clang loop unroll(full)
        for (size_t i = 0; i < PAIR; i++) p[r][i] = wasm_i32x4_add(p[r][i], wasm_i32x4_splat(rows[r].rest[g]));
}

static void gemm_quant(enum lam_dtype dtype, const uint8_t *tile, const struct lam_q8_rows *x, float *y, size_t y_stride)
{
    product(dtype, tile, x, y, y_stride);
}

/* Extremes and a carry from every lane; Node 20 gives twice the sum. volatile: the engine is to answer, not the compiler. */
bool lam_relaxed_dot_is_exact(void)
{
    static const volatile int8_t any[16] = {-128, -128, -128, -128, 127, 127, 127, 127, -1, 2, -3, 4, 127, -128, 0, 100};
    static const volatile int8_t seven_bits[16] = {127, 127, 127, 127, 127, 127, 127, 127, 1, 2, 3, 4, 127, 127, 127, 1};
    int8_t a[16], b[16];
    int32_t got[4];
    for (size_t i = 0; i < 16; i++) {
        a[i] = any[i];
        b[i] = seven_bits[i];
    }
    wasm_v128_store(got, add_dot(wasm_i32x4_splat(1000), wasm_v128_load(a), wasm_v128_load(b)));
    return got[0] == -64024 && got[1] == 65516 && got[2] == 1010 && got[3] == 973;
}

const struct lam_kernels lam_kernels_relaxed = {
    .name = "relaxed-simd",
    .quantise8 = lam_quantise8_simd128,
    .quantise14 = lam_quantise14_simd128,
    .gemm_quant = gemm_quant,
    .gemm_float = lam_gemm_float_simd128,
    .add_q14 = lam_add_q14_simd128,
    .rms_norm = lam_rms_norm_simd128,
    .attention = lam_attention_simd128,
    .kv_store = lam_kv_store_scalar,
    .rotate = lam_rotate_scalar,
    .silu_mul = lam_silu_mul_simd128,
    .gelu_mul = lam_gelu_mul_simd128,
};
