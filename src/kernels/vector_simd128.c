/* Quantisation of activations, norm and gated activations with SIMD128; the table. */
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "kernels/simd128.h"
#include "tensor/group.h"

#include <math.h>

#define LANES 4
#define PARTS (LAM_GROUP / LANES)

/* One group x[32], padded with zeros, and its factors. */
struct floats {
    v128_t x[PARTS];
    float inverse, scale; /* 0: the group counts as zero */
};

/* The first n of 32 elements count. False if one is not finite. */
INLINE bool load_group(const float *x, size_t n, float top, struct floats *out)
{
    float padded[LAM_GROUP];
    if (n < LAM_GROUP) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, x, n * sizeof *x);
        x = padded;
    }
    v128_t m = wasm_i32x4_splat(0); /* without their signs bits compare as signed integers, too */
#pragma clang loop unroll(full)
    for (size_t i = 0; i < PARTS; i++) {
        out->x[i] = wasm_v128_load(x + i * LANES);
        m = wasm_i32x4_max(m, wasm_v128_and(out->x[i], wasm_i32x4_splat(0x7fffffff)));
    }
    m = wasm_i32x4_max(m, wasm_i32x4_shuffle(m, m, 2, 3, 0, 1));
    m = wasm_i32x4_max(m, wasm_i32x4_shuffle(m, m, 1, 0, 3, 2));
    uint32_t bits = (uint32_t)wasm_i32x4_extract_lane(m, 0);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    out->inverse = out->scale = 0.0f;
    if (bits >= 0x7f800000) return false;
    if (amax < 0x1p-100f) return true;
    out->inverse = top / amax;
    out->scale = amax / top;
    return true;
}

/* Adding 1.5·2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits. */
INLINE v128_t codes(const struct floats *group, size_t i)
{
    const v128_t round = wasm_f32x4_splat(12582912.0f);
    if (group->inverse == 0.0f) return wasm_i32x4_splat(0);
    return wasm_i32x4_sub(wasm_f32x4_add(wasm_f32x4_mul(group->x[i], wasm_f32x4_splat(group->inverse)), round), round);
}

/* Parts i and i + 1 as 8 int16. */
INLINE v128_t codes16(const struct floats *group, size_t i)
{
    return wasm_i16x8_narrow_i32x4(codes(group, i), codes(group, i + 1));
}

bool lam_quantise8_simd128(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 127.0f, &group);
        scale[g] = group.scale;
#pragma clang loop unroll(full)
        for (size_t h = 0; h < 2; h++) {
            v128_t low = codes16(&group, 4 * h), high = codes16(&group, 4 * h + 2);
            wasm_v128_store(q + g * LAM_GROUP + 16 * h, wasm_i8x16_narrow_i16x8(low, high));
            v128_t sum = wasm_i32x4_dot_i16x8(wasm_i16x8_add(low, high), wasm_i16x8_splat(1));
            sum = wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1));
            half[2 * g + h] = wasm_i32x4_extract_lane(sum, 0) + wasm_i32x4_extract_lane(sum, 1);
        }
    }
    return finite;
}

bool lam_quantise14_simd128(const float *x, size_t cols, int16_t *q, float *scale)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 8191.0f, &group);
        scale[g] = group.scale;
#pragma clang loop unroll(full)
        for (size_t i = 0; i < PARTS; i += 2) wasm_v128_store(q + g * LAM_GROUP + i * LANES, codes16(&group, i));
    }
    return finite;
}

void lam_rms_norm_simd128(const float *x, const float *w, size_t n, float eps, float *y)
{
    v128_t lane[4];
    float rest[16] = {0};
    size_t i = 0;
#pragma clang loop unroll(full)
    for (size_t c = 0; c < 4; c++) lane[c] = wasm_f32x4_splat(0.0f);
    for (; i + 16 <= n; i += 16)
#pragma clang loop unroll(full)
        for (size_t c = 0; c < 4; c++) {
            v128_t v = wasm_v128_load(x + i + c * LANES);
            lane[c] = wasm_f32x4_add(lane[c], wasm_f32x4_mul(v, v));
        }
    for (size_t k = 0; i + k < n; k++) rest[k] = x[i + k] * x[i + k];
#pragma clang loop unroll(full)
    for (size_t c = 0; c < 4; c++) lane[c] = wasm_f32x4_add(lane[c], wasm_v128_load(rest + c * LANES));
    float r = lam_rms_scale(tree16(lane) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        wasm_v128_store(y + i, wasm_f32x4_mul(wasm_f32x4_mul(wasm_v128_load(x + i), wasm_f32x4_splat(r)), wasm_v128_load(w + i)));
    for (; i < n; i++) y[i] = (x[i] * r) * w[i];
}

/* x / (1 + e^−t) */
INLINE v128_t gated(v128_t x, v128_t t)
{
    return wasm_f32x4_div(x, wasm_f32x4_add(wasm_f32x4_splat(1.0f), exp4(wasm_f32x4_neg(t))));
}

INLINE v128_t silu(v128_t x) { return gated(x, x); }

INLINE v128_t gelu_tanh(v128_t x)
{
    v128_t cube = wasm_f32x4_mul(wasm_f32x4_splat(0.044715f), wasm_f32x4_mul(x, x));
    v128_t inner = wasm_f32x4_add(wasm_f32x4_splat(1.0f), cube);
    return gated(x, wasm_f32x4_mul(wasm_f32x4_mul(x, wasm_f32x4_splat(1.5957691216f)), inner));
}

void lam_silu_mul_simd128(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        wasm_v128_store(y + i, wasm_f32x4_mul(silu(wasm_v128_load(gate + i)), wasm_v128_load(up + i)));
    lam_silu_mul_scalar(gate + i, up + i, n - i, y + i);
}

void lam_gelu_mul_simd128(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        wasm_v128_store(y + i, wasm_f32x4_mul(gelu_tanh(wasm_v128_load(gate + i)), wasm_v128_load(up + i)));
    lam_gelu_mul_scalar(gate + i, up + i, n - i, y + i);
}

const struct lam_kernels lam_kernels_simd128 = {
    .name = "simd128",
    .quantise8 = lam_quantise8_simd128,
    .quantise14 = lam_quantise14_simd128,
    .gemm_quant = lam_gemm_quant_simd128,
    .gemm_float = lam_gemm_float_simd128,
    .add_q14 = lam_add_q14_simd128,
    .rms_norm = lam_rms_norm_simd128,
    .attention = lam_attention_simd128,
    .kv_store = lam_kv_store_scalar,
    .rotate = lam_rotate_scalar,
    .silu_mul = lam_silu_mul_simd128,
    .gelu_mul = lam_gelu_mul_simd128,
};
