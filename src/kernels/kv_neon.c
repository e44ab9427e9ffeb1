/* What is done with heads before attention, with Advanced SIMD: rotation, and storing them in KV pages. */
#include "kernels/kv_page.h"
#include "kernels/neon.h"
#include "kernels/scalar.h"
#include "tensor/half.h"

#define LANES 4

/* Bits of the largest magnitude of x[n]; from 0x7f800000 on an element is not finite. */
static uint32_t largest_magnitude(const float *x, size_t n)
{
    uint32x4_t most = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) most = vmaxq_u32(most, vbicq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x80000000)));
    uint32_t largest = vmaxvq_u32(most);
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

INLINE uint16x4_t halves(const float *x) { return vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x))); }

static void store_f16(size_t d, const float *k, const float *v, uint16_t *k_to, uint16_t *v_to)
{
    size_t i = 0;
    for (; i + LANES <= d; i += LANES) {
        uint16_t half[LANES];
        vst1_u16(half, halves(k + i));
        for (size_t j = 0; j < LANES; j++) k_to[(i + j) * LAM_KV_TILE] = half[j];
        vst1_u16(v_to + i, halves(v + i));
    }
    for (; i < d; i++) {
        k_to[i * LAM_KV_TILE] = lam_f32_to_f16(k[i]);
        v_to[i] = lam_f32_to_f16(v[i]);
    }
}

static void store_i8(size_t d, const float *k, const float *v, uint32_t v_bits, size_t at, void *k_part, void *v_part)
{
    size_t tile = at / LAM_KV_TILE, lane = at % LAM_KV_TILE, i = 0;
    int8_t code[LAM_ATTENTION_DIM], *k_to = lam_kv_i8_k(k_part, d, tile) + 4 * lane, *v_to = (int8_t *)v_part + at / 2 * 2 * d + at % 2;
    int32_t half[2 * LAM_ATTENTION_DIM / LAM_GROUP];
    float scale[LAM_ATTENTION_DIM / LAM_GROUP], *scale_to = lam_kv_i8_k_scale(k_part, d, tile) + lane, amax;
    lam_quantise8_neon(k, d, code, scale, half);
    for (size_t c = 0; c < d; c += 4) memcpy(k_to + c * LAM_KV_TILE, code + c, 4);
    for (size_t g = 0; g < lam_kv_groups(d); g++) scale_to[g * LAM_KV_TILE] = scale[g];
    memcpy(&amax, &v_bits, sizeof amax);
    bool zero = amax < 0x1p-100f;
    float inverse = zero ? 0.0f : 127.0f / amax;
    for (; i + LANES <= d; i += LANES) {
        int32_t codes[LANES];
        vst1q_s32(codes, vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(v + i), inverse)));
        for (size_t j = 0; j < LANES; j++) v_to[2 * (i + j)] = (int8_t)codes[j];
    }
    for (; i < d; i++) v_to[2 * i] = (int8_t)lam_round_even(v[i] * inverse);
    lam_kv_i8_v_scale(v_part, d)[at] = zero ? 0.0f : amax / 127.0f;
}

bool lam_kv_store_neon(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part)
{
    uint32_t end = type == LAM_KV_F16 ? 0x477ff000 : 0x7f800000; /* 65520 rounds to infinity */
    uint32_t k_bits = largest_magnitude(k, d), v_bits = largest_magnitude(v, d);
    size_t k_at = at / LAM_KV_TILE * LAM_KV_TILE * d + at % LAM_KV_TILE;
    if (k_bits >= end || v_bits >= end) return lam_kv_store_scalar(type, d, k, v, at, k_part, v_part);
    switch (type) {
    case LAM_KV_F16: store_f16(d, k, v, (uint16_t *)k_part + k_at, (uint16_t *)v_part + at * d); break;
    case LAM_KV_F32:
        for (size_t i = 0; i < d; i++) ((float *)k_part)[k_at + i * LAM_KV_TILE] = k[i];
        memcpy((float *)v_part + at * d, v, d * sizeof *v);
        break;
    case LAM_KV_I8: store_i8(d, k, v, v_bits, at, k_part, v_part); break;
    }
    return true;
}

/* Four pairs a, b turned in place. */
INLINE void turn(float32x4_t *a, float32x4_t *b, const float *cosine, const float *sine)
{
    float32x4_t c = vld1q_f32(cosine), s = vld1q_f32(sine), turned = vsubq_f32(vmulq_f32(*a, c), vmulq_f32(*b, s));
    *b = vaddq_f32(vmulq_f32(*b, c), vmulq_f32(*a, s));
    *a = turned;
}

static size_t rotate_halves(float *x, size_t n, const float *cosine, const float *sine)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(x + n + i);
        turn(&a, &b, cosine + i, sine + i);
        vst1q_f32(x + i, a);
        vst1q_f32(x + n + i, b);
    }
    return i;
}

static size_t rotate_pairs(float *x, size_t n, const float *cosine, const float *sine)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float32x4x2_t pair = vld2q_f32(x + 2 * i);
        turn(&pair.val[0], &pair.val[1], cosine + i, sine + i);
        vst2q_f32(x + 2 * i, pair);
    }
    return i;
}

void lam_rotate_neon(float *x, size_t n, const float *cosine, const float *sine, bool interleaved)
{
    size_t done = interleaved ? rotate_pairs(x, n, cosine, sine) : rotate_halves(x, n, cosine, sine);
    size_t step = interleaved ? 2 : 1, other = interleaved ? 1 : n;
    for (size_t i = done; i < n; i++) {
        float a = x[i * step], b = x[i * step + other];
        x[i * step] = a * cosine[i] - b * sine[i];
        x[i * step + other] = b * cosine[i] + a * sine[i];
    }
}
