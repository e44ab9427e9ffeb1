/* Quantisation of activations, norm and gated activations with AVX2; the table. */
#include "kernels/avx2.h"
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "tensor/group.h"

#include <math.h>

#define LANES 8

/* One group x[32], padded with zeros, and its factors. */
struct floats {
    __m256 x[4];
    float inverse, scale; /* 0: the group counts as zero */
};

/* The first n of 32 elements count. False if one is not finite. */
INLINE bool load_group(const float *x, size_t n, float top, struct floats *out)
{
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    float padded[LAM_GROUP];
    if (n < LAM_GROUP) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, x, n * sizeof *x);
        x = padded;
    }
    __m256i magnitude = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        out->x[i] = _mm256_loadu_ps(x + i * LANES);
        magnitude = _mm256_max_epu32(magnitude, _mm256_and_si256(_mm256_castps_si256(out->x[i]), no_sign));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(magnitude), _mm256_extracti128_si256(magnitude, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    uint32_t bits = (uint32_t)_mm_cvtsi128_si32(m);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    out->inverse = out->scale = 0.0f;
    if (bits >= 0x7f800000) return false;
    if (amax < 0x1p-100f) return true;
    out->inverse = top / amax;
    out->scale = amax / top;
    return true;
}

INLINE __m256i codes(const struct floats *group, size_t i)
{
    if (group->inverse == 0.0f) return _mm256_setzero_si256();
    return _mm256_cvtps_epi32(_mm256_mul_ps(group->x[i], _mm256_set1_ps(group->inverse)));
}

/* Registers i and i + 1 as 16 int16 in order. */
INLINE __m256i codes16(const struct floats *group, size_t i)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(codes(group, i), codes(group, i + 1)), 0xd8);
}

bool lam_quantise8_avx2(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 127.0f, &group);
        scale[g] = group.scale;
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(codes16(&group, 0), codes16(&group, 2)), 0xd8);
        _mm256_storeu_si256((__m256i *)(q + g * LAM_GROUP), bytes);
        __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
        half[2 * g] = _mm256_cvtsi256_si32(sums);
        half[2 * g + 1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
    }
    return finite;
}

bool lam_quantise14_avx2(const float *x, size_t cols, int16_t *q, float *scale)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 8191.0f, &group);
        scale[g] = group.scale;
        for (size_t h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)(q + g * LAM_GROUP + h * 16), codes16(&group, 2 * h));
    }
    return finite;
}

void lam_rms_norm_avx2(const float *x, const float *w, size_t n, float eps, float *y)
{
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    float rest[2 * LANES] = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + LANES);
        low = _mm256_add_ps(low, _mm256_mul_ps(a, a));
        high = _mm256_add_ps(high, _mm256_mul_ps(b, b));
    }
    for (size_t k = 0; i + k < n; k++) rest[k] = x[i + k] * x[i + k];
    low = _mm256_add_ps(low, _mm256_loadu_ps(rest));
    high = _mm256_add_ps(high, _mm256_loadu_ps(rest + LANES));
    float r = lam_rms_scale(tree16(low, high) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(r)), _mm256_loadu_ps(w + i)));
    for (; i < n; i++) y[i] = (x[i] * r) * w[i];
}

INLINE __m256 negative(__m256 x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }

/* x / (1 + e^−t) */
INLINE __m256 gated(__m256 x, __m256 t) { return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(negative(t)))); }

INLINE __m256 silu(__m256 x) { return gated(x, x); }

INLINE __m256 gelu_tanh(__m256 x)
{
    __m256 cube = _mm256_mul_ps(_mm256_set1_ps(0.044715f), _mm256_mul_ps(x, x));
    __m256 inner = _mm256_add_ps(_mm256_set1_ps(1.0f), cube);
    return gated(x, _mm256_mul_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.5957691216f)), inner));
}

void lam_silu_mul_avx2(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(silu(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    lam_silu_mul_scalar(gate + i, up + i, n - i, y + i);
}

void lam_gelu_mul_avx2(const float *gate, const float *up, size_t n, float *y)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(gelu_tanh(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    lam_gelu_mul_scalar(gate + i, up + i, n - i, y + i);
}

const struct lam_kernels lam_kernels_avx2 = {
    .name = "avx2",
    .quantise8 = lam_quantise8_avx2,
    .quantise14 = lam_quantise14_avx2,
    .gemm_quant = lam_gemm_quant_avx2,
    .gemm_float = lam_gemm_float_avx2,
    .add_q14 = lam_add_q14_avx2,
    .rms_norm = lam_rms_norm_avx2,
    .attention = lam_attention_avx2,
    .kv_store = lam_kv_store_avx2,
    .rotate = lam_rotate_avx2,
    .silu_mul = lam_silu_mul_avx2,
    .gelu_mul = lam_gelu_mul_avx2,
};
