/* What is done with heads before attention, with AVX2: rotation, and storing them in KV pages. */
#include "kernels/avx2.h"
#include "kernels/kv_page.h"
#include "kernels/scalar.h"
#include "tensor/half.h"

#define LANES 8

/* Bits of the largest magnitude of x[n]; from 0x7f800000 on an element is not finite. */
static uint32_t largest_magnitude(const float *x, size_t n)
{
    __m256i most = _mm256_setzero_si256(), magnitude = _mm256_set1_epi32(0x7fffffff);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        most = _mm256_max_epu32(most, _mm256_and_si256(magnitude, _mm256_loadu_si256((const __m256i *)(x + i))));
    uint32_t each[LANES], largest = 0;
    _mm256_storeu_si256((__m256i *)each, most);
    for (size_t j = 0; j < LANES; j++) largest = each[j] > largest ? each[j] : largest;
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

INLINE __m128i halves(const float *x) { return _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT); }

static void store_f16(size_t d, const float *k, const float *v, uint16_t *k_to, uint16_t *v_to)
{
    size_t i = 0;
    for (; i + LANES <= d; i += LANES) {
        uint16_t half[LANES];
        _mm_storeu_si128((__m128i *)half, halves(k + i));
        for (size_t j = 0; j < LANES; j++) k_to[(i + j) * LAM_KV_TILE] = half[j];
        _mm_storeu_si128((__m128i *)(v_to + i), halves(v + i));
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
    lam_quantise8_avx2(k, d, code, scale, half);
    for (size_t c = 0; c < d; c += 4) memcpy(k_to + c * LAM_KV_TILE, code + c, 4);
    for (size_t g = 0; g < lam_kv_groups(d); g++) scale_to[g * LAM_KV_TILE] = scale[g];
    memcpy(&amax, &v_bits, sizeof amax);
    bool zero = amax < 0x1p-100f;
    float inverse = zero ? 0.0f : 127.0f / amax;
    for (; i + LANES <= d; i += LANES) {
        int32_t codes[LANES];
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(v + i), _mm256_set1_ps(inverse));
        _mm256_storeu_si256((__m256i *)codes, _mm256_cvtps_epi32(x));
        for (size_t j = 0; j < LANES; j++) v_to[2 * (i + j)] = (int8_t)codes[j];
    }
    for (; i < d; i++) v_to[2 * i] = (int8_t)lam_round_even(v[i] * inverse);
    lam_kv_i8_v_scale(v_part, d)[at] = zero ? 0.0f : amax / 127.0f;
}

bool lam_kv_store_avx2(enum lam_kv_type type, size_t d, const float *k, const float *v, size_t at, void *k_part, void *v_part)
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

static size_t rotate_halves(float *x, size_t n, const float *cosine, const float *sine)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + n + i);
        __m256 c = _mm256_loadu_ps(cosine + i), s = _mm256_loadu_ps(sine + i);
        _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(x + n + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
    }
    return i;
}

/* Four floats, each twice. */
INLINE __m256 twice(const float *x)
{
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)), _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0));
}

static size_t rotate_pairs(float *x, size_t n, const float *cosine, const float *sine)
{
    size_t i = 0;
    for (; i + LANES / 2 <= n; i += LANES / 2) {
        __m256 ab = _mm256_loadu_ps(x + 2 * i), ba = _mm256_permute_ps(ab, 0xb1);
        _mm256_storeu_ps(x + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(ab, twice(cosine + i)), _mm256_mul_ps(ba, twice(sine + i))));
    }
    return i;
}

void lam_rotate_avx2(float *x, size_t n, const float *cosine, const float *sine, bool interleaved)
{
    size_t done = interleaved ? rotate_pairs(x, n, cosine, sine) : rotate_halves(x, n, cosine, sine);
    size_t step = interleaved ? 2 : 1, other = interleaved ? 1 : n;
    for (size_t i = done; i < n; i++) {
        float a = x[i * step], b = x[i * step + other];
        x[i * step] = a * cosine[i] - b * sine[i];
        x[i * step + other] = b * cosine[i] + a * sine[i];
    }
}
