/* Norm, rotation and gated activations: docs/numeric.md "Reductions", "Rotary embedding" and "Functions". */
#include "kernels/math.h"
#include "kernels/scalar.h"

#define LANES 16

float lam_tree16(float lane[LANES])
{
    for (int width = LANES / 2; width >= 1; width /= 2)
        for (int i = 0; i < width; i++) lane[i] = lane[i] + lane[i + width];
    return lane[0];
}

void lam_rms_norm_scalar(const float *x, const float *w, size_t n, float eps, float *y)
{
    float lane[LANES] = {0};
    for (size_t k = 0; k < n; k++) lane[k % LANES] = lane[k % LANES] + x[k] * x[k];
    float r = lam_rms_scale(lam_tree16(lane) / (float)n + eps);
    for (size_t k = 0; k < n; k++) y[k] = (x[k] * r) * w[k];
}

void lam_rotate_scalar(float *x, size_t n, const float *cosine, const float *sine, bool interleaved)
{
    size_t step = interleaved ? 2 : 1, other = interleaved ? 1 : n;
    for (size_t i = 0; i < n; i++) {
        float a = x[i * step], b = x[i * step + other];
        x[i * step] = a * cosine[i] - b * sine[i];
        x[i * step + other] = b * cosine[i] + a * sine[i];
    }
}

void lam_silu_mul_scalar(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] = lam_silu(gate[i]) * up[i];
}

void lam_gelu_mul_scalar(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] = lam_gelu_tanh(gate[i]) * up[i];
}

const struct lam_kernels lam_kernels_scalar = {
    .name = "scalar",
    .quantise8 = lam_quantise8_scalar,
    .quantise14 = lam_quantise14_scalar,
    .gemm_quant = lam_gemm_quant_scalar,
    .gemm_float = lam_gemm_float_scalar,
    .add_q14 = lam_add_q14_scalar,
    .rms_norm = lam_rms_norm_scalar,
    .attention = lam_attention_scalar,
    .kv_store = lam_kv_store_scalar,
    .rotate = lam_rotate_scalar,
    .silu_mul = lam_silu_mul_scalar,
    .gelu_mul = lam_gelu_mul_scalar,
};
