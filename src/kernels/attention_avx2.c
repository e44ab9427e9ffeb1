/* Attention of one row over one KV head; docs/numeric.md "Attention". */
#include "kernels/avx2.h"
#include "kernels/math.h"
#include "tensor/decode.h"

#define TILE 16 /* positions */
#define LANES 8
#define PAGE_TILES (LAM_KV_PAGE / TILE)

/* Bytes of a K or V element. */
INLINE size_t kv_size(enum lam_dtype kv) { return kv == LAM_F32 ? 4 : 2; }

/* 8 K or V elements as floats. */
INLINE __m256 load_kv(enum lam_dtype kv, const uint8_t *p)
{
    return kv == LAM_F32 ? _mm256_loadu_ps((const float *)p) : load_f16(p);
}

/* Scores of n tiles (a constant) from tile t on; q[d] is already scaled. */
INLINE void score_tiles(enum lam_dtype kv, const struct lam_attention *a, const float *q, size_t t, size_t n)
{
    const uint8_t *k[2];
    __m256 s[2][2];
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++) {
        k[i] = (const uint8_t *)a->k_pages[(t + i) / PAGE_TILES] + (t + i) % PAGE_TILES * TILE * a->d * kv_size(kv);
        s[i][0] = s[i][1] = _mm256_setzero_ps();
    }
    for (size_t d = 0; d < a->d; d++) {
        __m256 v = _mm256_set1_ps(q[d]);
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++) {
            s[i][0] = _mm256_add_ps(s[i][0], _mm256_mul_ps(v, load_kv(kv, k[i] + d * TILE * kv_size(kv))));
            s[i][1] = _mm256_add_ps(s[i][1], _mm256_mul_ps(v, load_kv(kv, k[i] + (d * TILE + LANES) * kv_size(kv))));
        }
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++) {
        _mm256_storeu_ps(a->scores + (t + i) * TILE, s[i][0]);
        _mm256_storeu_ps(a->scores + (t + i) * TILE + LANES, s[i][1]);
    }
}

INLINE void scores(enum lam_dtype kv, const struct lam_attention *a)
{
    float q[512];
    size_t t = a->first / TILE, last = a->last / TILE;
    for (size_t i = 0; i < a->d; i++) q[i] = a->q[i] * a->scale;
    for (; t + 1 <= last; t += 2) score_tiles(kv, a, q, t, 2);
    for (; t <= last; t++) score_tiles(kv, a, q, t, 1);
    if (a->softcap == 0.0f) return;
    for (size_t p = a->first; p <= a->last; p++)
        a->scores[p] = (float)((double)a->softcap * lam_tanh64((double)a->scores[p] / (double)a->softcap));
}

static float largest(const struct lam_attention *a)
{
    size_t p = a->first;
    float m = a->scores[p];
    __m256 lanes = _mm256_set1_ps(m);
    for (; p + LANES - 1 <= a->last; p += LANES) lanes = _mm256_max_ps(_mm256_loadu_ps(a->scores + p), lanes);
    float each[LANES];
    _mm256_storeu_ps(each, lanes);
    for (size_t i = 0; i < LANES; i++)
        if (each[i] > m) m = each[i];
    for (; p <= a->last; p++)
        if (a->scores[p] > m) m = a->scores[p];
    return m;
}

/* All ones in the lanes of the eight positions from p on that lie in from..to. */
INLINE __m256 visible(size_t p, size_t from, size_t to)
{
    const __m256i index = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    int low = from > p ? (int)(from - p) : 0, high = (int)((ptrdiff_t)to - (ptrdiff_t)p);
    __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), index),
                                      _mm256_cmpgt_epi32(index, _mm256_set1_epi32(high)));
    return _mm256_castsi256_ps(_mm256_xor_si256(outside, _mm256_set1_epi32(-1)));
}

/* weight[256] of one page's positions from..to, relative to m, and their sum by lanes and tree. */
static float page_weights(const struct lam_attention *a, float m, size_t begin, size_t from, size_t to, float *weight)
{
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (size_t tile = from / TILE * TILE; tile <= to; tile += TILE)
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            size_t p = tile + h * LANES;
            __m256 e = _mm256_sub_ps(_mm256_loadu_ps(a->scores + p), _mm256_set1_ps(m));
            __m256 keep = _mm256_and_ps(visible(p, from, to), _mm256_cmp_ps(e, _mm256_set1_ps(-64.0f), _CMP_NLT_UQ));
            __m256 w = _mm256_and_ps(keep, exp8(e));
            lane[h] = _mm256_add_ps(lane[h], w);
            _mm256_storeu_ps(weight + (p - begin), w);
        }
    return tree16(lane[0], lane[1]);
}

/* out[8 n] += Σ weight·v over n_positions rows of v (stride d), in order; n is a constant. */
INLINE void add_values(enum lam_dtype kv, const float *weight, const uint8_t *v, size_t d, size_t n_positions, size_t n, float *out)
{
    __m256 part[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++) part[i] = _mm256_setzero_ps();
    for (size_t p = 0; p < n_positions; p++, v += d * kv_size(kv)) {
        __m256 w = _mm256_set1_ps(weight[p]);
#pragma GCC unroll 8
        for (size_t i = 0; i < n; i++) part[i] = _mm256_add_ps(part[i], _mm256_mul_ps(w, load_kv(kv, v + i * LANES * kv_size(kv))));
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++)
        _mm256_storeu_ps(out + i * LANES, _mm256_add_ps(_mm256_loadu_ps(out + i * LANES), part[i]));
}

/* The same for one dimension. */
INLINE void add_value(enum lam_dtype kv, const float *weight, const uint8_t *v, size_t d, size_t n_positions, float *out)
{
    float part = 0.0f;
    for (size_t p = 0; p < n_positions; p++, v += d * kv_size(kv)) {
        float value;
        lam_decode_row(kv, v, 1, &value);
        part = part + weight[p] * value;
    }
    *out = *out + part;
}

/* kv is a constant: F16 or F32. */
INLINE void attention(enum lam_dtype kv, const struct lam_attention *a)
{
    float weight[LAM_KV_PAGE], l = 0.0f;
    scores(kv, a);
    float m = largest(a);
    memset(a->out, 0, a->d * sizeof *a->out);
    for (size_t page = a->first / LAM_KV_PAGE; page <= a->last / LAM_KV_PAGE; page++) {
        size_t begin = page * LAM_KV_PAGE, from = begin > a->first ? begin : a->first;
        size_t end = begin + LAM_KV_PAGE - 1, to = end < a->last ? end : a->last, n = to - from + 1, i = 0;
        const uint8_t *v = (const uint8_t *)a->v_pages[page] + (from - begin) * a->d * kv_size(kv);
        const float *w = weight + (from - begin);
        l = l + page_weights(a, m, begin, from, to, weight);
        for (; i + 64 <= a->d; i += 64) add_values(kv, w, v + i * kv_size(kv), a->d, n, 8, a->out + i);
        for (; i + LANES <= a->d; i += LANES) add_values(kv, w, v + i * kv_size(kv), a->d, n, 1, a->out + i);
        for (; i < a->d; i++) add_value(kv, w, v + i * kv_size(kv), a->d, n, a->out + i);
    }
    for (size_t i = 0; i < a->d; i++) a->out[i] = a->out[i] / l;
}

void lam_attention_avx2(const struct lam_attention *a)
{
    if (a->kv_dtype == LAM_F32)
        attention(LAM_F32, a);
    else
        attention(LAM_F16, a);
}
