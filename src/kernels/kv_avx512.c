/* What is done with heads before attention, with AVX-512: rotation, and storing them in KV pages. */
#include "kernels/avx512.h"
#include "kernels/kv_page.h"
#include "kernels/scalar.h"

#define LANES 16

INLINE __mmask16 lanes_below(size_t i, size_t n) { return i + LANES <= n ? 0xffff : (__mmask16)((1u << (n - i)) - 1); }

/* Bits of the largest magnitude of x[n]; from 0x7f800000 on an element is not finite. */
static uint32_t largest_magnitude(const float *x, size_t n)
{
    __m512i most = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += LANES)
        most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(_mm512_maskz_loadu_ps(lanes_below(i, n), x + i))));
    return _mm512_reduce_max_epu32(most);
}

static void store_f16(size_t d, const float *k, const float *v, uint16_t *k_to, uint16_t *v_to)
{
    for (size_t i = 0; i < d; i += LANES) {
        __mmask16 mask = lanes_below(i, d);
        uint16_t half[LANES];
        _mm256_storeu_si256((__m256i *)half, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, k + i), _MM_FROUND_TO_NEAREST_INT));
        for (size_t j = 0; j < LANES && i + j < d; j++) k_to[(i + j) * LAM_KV_TILE] = half[j];
        _mm256_mask_storeu_epi16(v_to + i, mask, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, v + i), _MM_FROUND_TO_NEAREST_INT));
    }
}

static void store_i8(size_t d, const float *k, const float *v, uint32_t v_bits, size_t at, void *k_part, void *v_part)
{
    size_t tile = at / LAM_KV_TILE, lane = at % LAM_KV_TILE;
    int8_t code[LAM_ATTENTION_DIM], *k_to = lam_kv_i8_k(k_part, d, tile) + 4 * lane, *v_to = (int8_t *)v_part + at / 2 * 2 * d + at % 2;
    int32_t half[2 * LAM_ATTENTION_DIM / LAM_GROUP];
    float scale[LAM_ATTENTION_DIM / LAM_GROUP], *scale_to = lam_kv_i8_k_scale(k_part, d, tile) + lane, amax;
    lam_quantise8_avx512(k, d, code, scale, half);
    for (size_t i = 0; i < d; i += 4) memcpy(k_to + i * LAM_KV_TILE, code + i, 4);
    for (size_t g = 0; g < lam_kv_groups(d); g++) scale_to[g * LAM_KV_TILE] = scale[g];
    memcpy(&amax, &v_bits, sizeof amax);
    bool zero = amax < 0x1p-100f;
    __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / amax);
    for (size_t i = 0; i < d; i += LANES) {
        __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes_below(i, d), v + i), inverse);
        _mm_storeu_si128((__m128i *)code, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)));
        for (size_t j = 0; j < LANES && i + j < d; j++) v_to[2 * (i + j)] = code[j];
    }
    lam_kv_i8_v_scale(v_part, d)[at] = zero ? 0.0f : amax / 127.0f;
}

bool lam_kv_store_avx512(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part)
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

static void rotate_halves(float *x, size_t n, const float *cosine, const float *sine)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 mask = lanes_below(i, n);
        __m512 a = _mm512_maskz_loadu_ps(mask, x + i), b = _mm512_maskz_loadu_ps(mask, x + n + i);
        __m512 c = _mm512_maskz_loadu_ps(mask, cosine + i), s = _mm512_maskz_loadu_ps(mask, sine + i);
        _mm512_mask_storeu_ps(x + i, mask, _mm512_sub_ps(_mm512_mul_ps(a, c), _mm512_mul_ps(b, s)));
        _mm512_mask_storeu_ps(x + n + i, mask, _mm512_add_ps(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s)));
    }
}

static void rotate_pairs(float *x, size_t n, const float *cosine, const float *sine)
{
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    for (size_t i = 0; i < n; i += LANES / 2) {
        __mmask16 pairs = lanes_below(2 * i, 2 * n), mask = lanes_below(i, n) & 0xff;
        __m512 ab = _mm512_maskz_loadu_ps(pairs, x + 2 * i), ba = _mm512_permute_ps(ab, 0xb1);
        __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(mask, cosine + i));
        __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(mask, sine + i));
        __m512 one = _mm512_mul_ps(ab, c), other = _mm512_mul_ps(ba, s);
        _mm512_mask_storeu_ps(x + 2 * i, pairs, _mm512_mask_sub_ps(_mm512_add_ps(one, other), 0x5555, one, other));
    }
}

void lam_rotate_avx512(float *x, size_t n, const float *cosine, const float *sine, bool interleaved)
{
    if (interleaved) rotate_pairs(x, n, cosine, sine);
    else rotate_halves(x, n, cosine, sine);
}
