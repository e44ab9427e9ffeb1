/* The definition of what a KV page holds; docs/numeric.md "Attention", kernels.h. */
#include "kernels/kv_page.h"
#include "kernels/scalar.h"
#include "tensor/half.h"

#include <math.h>

size_t lam_kv_k_bytes(enum lam_kv_type type, size_t d)
{
    if (type == LAM_KV_I8) return LAM_KV_PAGE * lam_kv_i8_d4(d) + LAM_KV_PAGE * lam_kv_groups(d) * sizeof(float);
    return LAM_KV_PAGE * d * (type == LAM_KV_F32 ? sizeof(float) : sizeof(uint16_t));
}

size_t lam_kv_v_bytes(enum lam_kv_type type, size_t d)
{
    if (type == LAM_KV_I8) return LAM_KV_PAGE * d + LAM_KV_PAGE * sizeof(float);
    return lam_kv_k_bytes(type, d);
}

static bool in_range(enum lam_kv_type type, const float *x, size_t n)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= isfinite(x[i]) && (type != LAM_KV_F16 || fabsf(x[i]) < 65520.0f);
    return ok;
}

static void store_k_int(size_t d, const float *k, size_t at, void *part)
{
    size_t tile = at / LAM_KV_TILE, lane = at % LAM_KV_TILE;
    int8_t code[LAM_ATTENTION_DIM], *to = lam_kv_i8_k(part, d, tile);
    int32_t half[2 * LAM_ATTENTION_DIM / LAM_GROUP];
    float scale[LAM_ATTENTION_DIM / LAM_GROUP], *scale_to = lam_kv_i8_k_scale(part, d, tile);
    lam_quantise8_scalar(k, d, code, scale, half);
    for (size_t i = 0; i < lam_kv_i8_d4(d); i++) to[i / 4 * 4 * LAM_KV_TILE + lane * 4 + i % 4] = code[i];
    for (size_t g = 0; g < lam_kv_groups(d); g++) scale_to[g * LAM_KV_TILE + lane] = scale[g];
}

static void store_v_int(size_t d, const float *v, size_t at, void *part)
{
    int8_t *to = (int8_t *)part + at / 2 * 2 * d + at % 2;
    float amax = 0.0f;
    for (size_t i = 0; i < d; i++)
        if (fabsf(v[i]) > amax) amax = fabsf(v[i]);
    bool zero = amax < 0x1p-100f;
    float inverse = zero ? 0.0f : 127.0f / amax;
    for (size_t i = 0; i < d; i++) to[2 * i] = (int8_t)(zero ? 0 : lam_round_even(v[i] * inverse));
    lam_kv_i8_v_scale(part, d)[at] = zero ? 0.0f : amax / 127.0f;
}

static void store_float(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part)
{
    size_t tile = at / LAM_KV_TILE * LAM_KV_TILE * d + at % LAM_KV_TILE;
    for (size_t i = 0; i < d; i++) {
        size_t k_at = tile + i * LAM_KV_TILE, v_at = at * d + i;
        if (type == LAM_KV_F32) {
            ((float *)k_part)[k_at] = k[i];
            ((float *)v_part)[v_at] = v[i];
        } else {
            ((uint16_t *)k_part)[k_at] = lam_f32_to_f16(k[i]);
            ((uint16_t *)v_part)[v_at] = lam_f32_to_f16(v[i]);
        }
    }
}

bool lam_kv_store_scalar(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part)
{
    static const float zeros[LAM_ATTENTION_DIM];
    bool ok = in_range(type, k, d) && in_range(type, v, d);
    if (!ok) k = v = zeros;
    if (type == LAM_KV_I8) {
        store_k_int(d, k, at, k_part);
        store_v_int(d, v, at, v_part);
    } else {
        store_float(type, d, k, v, at, k_part, v_part);
    }
    return ok;
}
