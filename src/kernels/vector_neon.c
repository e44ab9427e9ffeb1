/* Quantisation of activations, norm and gated activations with Advanced SIMD; the tables. */
#include "kernels/math.h"
#include "kernels/neon.h"
#include "kernels/scalar.h"
#include "tensor/group.h"

#define LANES 4
#define REGISTERS (LAM_GROUP / LANES)

/* One group x[32], padded with zeros, and its factors. */
struct floats {
    float32x4_t x[REGISTERS];
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
    uint32x4_t magnitude = vdupq_n_u32(0);
#pragma GCC unroll 8
    for (size_t i = 0; i < REGISTERS; i++) {
        out->x[i] = vld1q_f32(x + i * LANES);
        magnitude = vmaxq_u32(magnitude, vbicq_u32(vreinterpretq_u32_f32(out->x[i]), vdupq_n_u32(0x80000000)));
    }
    uint32_t bits = vmaxvq_u32(magnitude);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    out->inverse = out->scale = 0.0f;
    if (bits >= 0x7f800000) return false;
    if (amax < 0x1p-100f) return true;
    out->inverse = top / amax;
    out->scale = amax / top;
    return true;
}

/* Codes 4i .. 4i+3, nearest, ties to even. */
INLINE int32x4_t codes(const struct floats *group, size_t i)
{
    if (group->inverse == 0.0f) return vdupq_n_s32(0);
    return vcvtnq_s32_f32(vmulq_n_f32(group->x[i], group->inverse));
}

/* Registers i and i + 1 as int16. */
INLINE int16x8_t codes16(const struct floats *group, size_t i)
{
    return vcombine_s16(vmovn_s32(codes(group, i)), vmovn_s32(codes(group, i + 1)));
}

bool lam_quantise8_neon(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 127.0f, &group);
        scale[g] = group.scale;
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            int8x16_t bytes = vcombine_s8(vmovn_s16(codes16(&group, 4 * h)), vmovn_s16(codes16(&group, 4 * h + 2)));
            vst1q_s8(q + g * LAM_GROUP + 16 * h, bytes);
            half[2 * g + h] = vaddlvq_s8(bytes);
        }
    }
    return finite;
}

static bool quantise14(const float *x, size_t cols, int16_t *q, float *scale)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 8191.0f, &group);
        scale[g] = group.scale;
        for (size_t i = 0; i < REGISTERS; i += 2) vst1q_s16(q + g * LAM_GROUP + i * LANES, codes16(&group, i));
    }
    return finite;
}

static void rms_norm(const float *x, const float *w, size_t n, float eps, float *y)
{
    float32x4_t lane[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    float rest[4 * LANES] = {0};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t k = 0; k < 4; k++) {
            float32x4_t v = vld1q_f32(x + i + k * LANES);
            lane[k] = vaddq_f32(lane[k], vmulq_f32(v, v));
        }
    for (size_t k = 0; i + k < n; k++) rest[k] = x[i + k] * x[i + k];
    for (size_t k = 0; k < 4; k++) lane[k] = vaddq_f32(lane[k], vld1q_f32(rest + k * LANES));
    float r = lam_rms_scale(tree16(lane) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES) vst1q_f32(y + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), r), vld1q_f32(w + i)));
    for (; i < n; i++) y[i] = (x[i] * r) * w[i];
}

/* x / (1 + e^−t) */
INLINE float32x4_t gated(float32x4_t x, float32x4_t t) { return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), exp4(vnegq_f32(t)))); }

INLINE float32x4_t silu(float32x4_t x) { return gated(x, x); }

INLINE float32x4_t gelu_tanh(float32x4_t x)
{
    float32x4_t inner = vaddq_f32(vdupq_n_f32(1.0f), vmulq_f32(vdupq_n_f32(0.044715f), vmulq_f32(x, x)));
    return gated(x, vmulq_f32(vmulq_f32(x, vdupq_n_f32(1.5957691216f)), inner));
}

static void silu_mul(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vst1q_f32(y + i, vmulq_f32(silu(vld1q_f32(gate + i)), vld1q_f32(up + i)));
    lam_silu_mul_scalar(gate + i, up + i, n - i, y + i);
}

static void gelu_mul(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vst1q_f32(y + i, vmulq_f32(gelu_tanh(vld1q_f32(gate + i)), vld1q_f32(up + i)));
    lam_gelu_mul_scalar(gate + i, up + i, n - i, y + i);
}

const struct lam_kernels lam_kernels_neon = {
    .name = "neon",
    .quantise8 = lam_quantise8_neon,
    .quantise14 = quantise14,
    .gemm_quant = lam_gemm_quant_neon,
    .gemm_float = lam_gemm_float_neon,
    .add_q14 = lam_add_q14_neon,
    .rms_norm = rms_norm,
    .attention = lam_attention_neon,
    .kv_store = lam_kv_store_neon,
    .rotate = lam_rotate_neon,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
};

/* Integer products of bytes are what the dot product instruction is for; the rest is the same. */
const struct lam_kernels lam_kernels_neondot = {
    .name = "neon-dotprod",
    .quantise8 = lam_quantise8_neon,
    .quantise14 = quantise14,
    .gemm_quant = lam_gemm_quant_neondot,
    .gemm_float = lam_gemm_float_neon,
    .add_q14 = lam_add_q14_neon,
    .rms_norm = rms_norm,
    .attention = lam_attention_neondot,
    .kv_store = lam_kv_store_neon,
    .rotate = lam_rotate_neon,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
};
