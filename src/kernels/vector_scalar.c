/* Norm, attention and gated activations: docs/numeric.md "Reductions" and "Attention". */
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "tensor/half.h"
#include "tensor/tiles.h"

#include <math.h>

#define LANES 16

/* The fixed binary tree over 16 lanes: 8+8, 4+4, 2+2, 1+1. */
static float tree16(float lane[LANES])
{
    for (int width = LANES / 2; width >= 1; width /= 2)
        for (int i = 0; i < width; i++) lane[i] = lane[i] + lane[i + width];
    return lane[0];
}

void lam_rms_norm_scalar(const float *x, const float *w, size_t n, float eps, float *y)
{
    float lane[LANES] = {0};
    for (size_t k = 0; k < n; k++) lane[k % LANES] = lane[k % LANES] + x[k] * x[k];
    float r = lam_rms_scale(tree16(lane) / (float)n + eps);
    for (size_t k = 0; k < n; k++) y[k] = (x[k] * r) * w[k];
}

/* Element i of a K or V page. */
static float kv_element(enum lam_dtype dtype, const void *page, size_t i)
{
    return dtype == LAM_F32 ? ((const float *)page)[i] : lam_f16_to_f32(((const uint16_t *)page)[i]);
}

/* Scores of every position of K tiles first/16 .. last/16; those outside first..last are computed and not used. */
static void scores(const struct lam_attention *a)
{
    for (size_t t = a->first / LANES; t <= a->last / LANES; t++) {
        const void *page = a->k_pages[t * LANES / LAM_KV_PAGE];
        size_t tile = t % (LAM_KV_PAGE / LANES) * LANES * a->d;
        for (size_t lane = 0; lane < LANES; lane++) {
            float s = 0.0f;
            for (size_t i = 0; i < a->d; i++)
                s = s + (a->q[i] * a->scale) * kv_element(a->kv_dtype, page, tile + i * LANES + lane);
            if (a->softcap != 0.0f) s = (float)((double)a->softcap * lam_tanh64((double)s / (double)a->softcap));
            a->scores[t * LANES + lane] = s;
        }
    }
}

void lam_attention_scalar(const struct lam_attention *a)
{
    scores(a);
    float m = a->scores[a->first];
    for (size_t p = a->first + 1; p <= a->last; p++)
        if (a->scores[p] > m) m = a->scores[p];
    float l = 0.0f;
    for (size_t i = 0; i < a->d; i++) a->out[i] = 0.0f;
    for (size_t page = a->first / LAM_KV_PAGE; page <= a->last / LAM_KV_PAGE; page++) {
        size_t begin = page * LAM_KV_PAGE, from = begin > a->first ? begin : a->first;
        size_t end = begin + LAM_KV_PAGE - 1, to = end < a->last ? end : a->last;
        float lane[LANES] = {0}, part[512] = {0};
        for (size_t p = from; p <= to; p++) {
            float e = a->scores[p] - m, weight = e < -64.0f ? 0.0f : lam_exp(e);
            lane[p % LANES] = lane[p % LANES] + weight;
            for (size_t i = 0; i < a->d; i++)
                part[i] = part[i] + weight * kv_element(a->kv_dtype, a->v_pages[page], (p - begin) * a->d + i);
        }
        l = l + tree16(lane);
        for (size_t i = 0; i < a->d; i++) a->out[i] = a->out[i] + part[i];
    }
    for (size_t i = 0; i < a->d; i++) a->out[i] = a->out[i] / l;
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
    .gemm_q14 = lam_gemm_q14_scalar,
    .rms_norm = lam_rms_norm_scalar,
    .attention = lam_attention_scalar,
    .silu_mul = lam_silu_mul_scalar,
    .gelu_mul = lam_gelu_mul_scalar,
};
