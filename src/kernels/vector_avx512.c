/* Quantisation of activations, norm and gated activations with AVX-512; the table. */
#include "kernels/avx512.h"
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "tensor/group.h"

#include <math.h>

#define LANES 16

/* The lanes of 16 elements from i on that lie below n. */
INLINE __mmask16 lanes_below(size_t i, size_t n)
{
    if (i + LANES <= n) return 0xffff;
    return i < n ? (__mmask16)((1u << (n - i)) - 1) : 0;
}

/* One group x[32] of which only elements below n count, and its factors. */
struct floats {
    __m512 x[2];
    float inverse, scale; /* 0: the group counts as zero */
};

/* False if an element is not finite. */
INLINE bool load_group(const float *x, size_t n, float top, struct floats *out)
{
    out->x[0] = _mm512_maskz_loadu_ps(lanes_below(0, n), x);
    out->x[1] = n > LANES ? _mm512_maskz_loadu_ps(lanes_below(LANES, n), x + LANES) : _mm512_setzero_ps();
    out->inverse = out->scale = 0.0f;
    __m512i magnitude = _mm512_castps_si512(_mm512_abs_ps(out->x[0]));
    magnitude = _mm512_max_epu32(magnitude, _mm512_castps_si512(_mm512_abs_ps(out->x[1])));
    uint32_t bits = _mm512_reduce_max_epu32(magnitude);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    if (bits >= 0x7f800000) return false;
    if (amax < 0x1p-100f) return true;
    out->inverse = top / amax;
    out->scale = amax / top;
    return true;
}

INLINE __m512i codes(const struct floats *group, size_t h)
{
    if (group->inverse == 0.0f) return _mm512_setzero_si512();
    return _mm512_cvtps_epi32(_mm512_mul_ps(group->x[h], _mm512_set1_ps(group->inverse)));
}

bool lam_quantise8_avx512(const float *x, size_t cols, int8_t *q, float *scale, int32_t *half)
{
    bool finite = true;
    for (size_t g = 0; g * LAM_GROUP < cols; g++) {
        size_t n = cols - g * LAM_GROUP < LAM_GROUP ? cols - g * LAM_GROUP : LAM_GROUP;
        struct floats group;
        finite &= load_group(x + g * LAM_GROUP, n, 127.0f, &group);
        scale[g] = group.scale;
        __m128i low = _mm512_cvtepi32_epi8(codes(&group, 0)), high = _mm512_cvtepi32_epi8(codes(&group, 1));
        __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
        _mm256_storeu_si256((__m256i *)(q + g * LAM_GROUP), bytes);
        __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), bytes);
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
        half[2 * g] = _mm256_cvtsi256_si32(sums);
        half[2 * g + 1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1));
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
        for (size_t h = 0; h < 2; h++)
            _mm256_storeu_si256((__m256i *)(q + g * LAM_GROUP + h * LANES), _mm512_cvtepi32_epi16(codes(&group, h)));
    }
    return finite;
}

static void rms_norm(const float *x, const float *w, size_t n, float eps, float *y)
{
    __m512 lane = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += LANES) {
        __m512 v = _mm512_maskz_loadu_ps(lanes_below(i, n), x + i);
        lane = _mm512_add_ps(lane, _mm512_mul_ps(v, v));
    }
    __m512 r = _mm512_set1_ps(lam_rms_scale(tree16(lane) / (float)n + eps));
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 mask = lanes_below(i, n);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), r);
        _mm512_mask_storeu_ps(y + i, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, w + i)));
    }
}

INLINE __m512 negative(__m512 x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }

/* x / (1 + e^−t) */
INLINE __m512 gated(__m512 x, __m512 t) { return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(negative(t)))); }

INLINE __m512 silu(__m512 x) { return gated(x, x); }

INLINE __m512 gelu_tanh(__m512 x)
{
    __m512 cube = _mm512_mul_ps(_mm512_set1_ps(0.044715f), _mm512_mul_ps(x, x));
    __m512 inner = _mm512_add_ps(_mm512_set1_ps(1.0f), cube);
    return gated(x, _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.5957691216f)), inner));
}

static void silu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_below(i, n);
        __m512 act = silu(_mm512_maskz_loadu_ps(m, gate + i));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(act, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

static void gelu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 m = lanes_below(i, n);
        __m512 act = gelu_tanh(_mm512_maskz_loadu_ps(m, gate + i));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(act, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

const struct lam_kernels lam_kernels_avx512 = {
    .name = "avx512",
    .quantise8 = lam_quantise8_avx512,
    .quantise14 = quantise14,
    .gemm_quant = lam_gemm_quant_avx512,
    .gemm_float = lam_gemm_float_avx512,
    .add_q14 = lam_add_q14_avx512,
    .rms_norm = rms_norm,
    .attention = lam_attention_avx512,
    .kv_store = lam_kv_store_avx512,
    .rotate = lam_rotate_avx512,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
};
