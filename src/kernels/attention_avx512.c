/* Attention of one row over one KV head; docs/numeric.md "Attention". */
#include "kernels/avx512.h"
#include "kernels/math.h"

#define LANES 16
#define PAGE_TILES (LAM_KV_PAGE / LANES)

/* Bytes of a K or V element. */
INLINE size_t kv_size(enum lam_dtype kv) { return kv == LAM_F32 ? 4 : 2; }

/* 16 K or V elements as floats. */
INLINE __m512 load_kv(enum lam_dtype kv, const uint8_t *p) { return kv == LAM_F32 ? _mm512_loadu_ps(p) : load_f16(p); }

/* Scores of n tiles (a constant) from tile t on; q[d] is already scaled. */
INLINE void score_tiles(enum lam_dtype kv, const struct lam_attention *a, const float *q, size_t t, size_t n)
{
    const uint8_t *k[4];
    __m512 s[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i++) {
        k[i] = (const uint8_t *)a->k_pages[(t + i) / PAGE_TILES] + (t + i) % PAGE_TILES * LANES * a->d * kv_size(kv);
        s[i] = _mm512_setzero_ps();
    }
    for (size_t d = 0; d < a->d; d++) {
        __m512 v = _mm512_set1_ps(q[d]);
#pragma GCC unroll 4
        for (size_t i = 0; i < n; i++) s[i] = _mm512_add_ps(s[i], _mm512_mul_ps(v, load_kv(kv, k[i] + d * LANES * kv_size(kv))));
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i++) _mm512_storeu_ps(a->scores + (t + i) * LANES, s[i]);
}

INLINE void scores(enum lam_dtype kv, const struct lam_attention *a)
{
    float q[512];
    size_t t = a->first / LANES, last = a->last / LANES;
    for (size_t i = 0; i < a->d; i++) q[i] = a->q[i] * a->scale;
    for (; t + 3 <= last; t += 4) score_tiles(kv, a, q, t, 4);
    for (; t <= last; t++) score_tiles(kv, a, q, t, 1);
    if (a->softcap == 0.0f) return;
    for (size_t p = a->first; p <= a->last; p++)
        a->scores[p] = (float)((double)a->softcap * lam_tanh64((double)a->scores[p] / (double)a->softcap));
}

/* The lanes of the tile that begins at position p that lie in from..to. */
INLINE __mmask16 visible(size_t p, size_t from, size_t to)
{
    unsigned mask = 0xffff;
    if (p < from) mask &= 0xffffu << (from - p);
    if (p + LANES - 1 > to) mask &= 0xffffu >> (p + LANES - 1 - to);
    return (__mmask16)mask;
}

static float largest(const struct lam_attention *a)
{
    __m512 m = _mm512_set1_ps(a->scores[a->first]);
    for (size_t p = a->first / LANES * LANES; p <= a->last; p += LANES)
        m = _mm512_mask_max_ps(m, visible(p, a->first, a->last), _mm512_loadu_ps(a->scores + p), m);
    return _mm512_reduce_max_ps(m);
}

/* weight[256] of one page's positions from..to, relative to m, and their sum by lanes and tree. */
static float page_weights(const struct lam_attention *a, float m, size_t begin, size_t from, size_t to, float *weight)
{
    __m512 lane = _mm512_setzero_ps();
    for (size_t p = from / LANES * LANES; p <= to; p += LANES) {
        __m512 e = _mm512_sub_ps(_mm512_loadu_ps(a->scores + p), _mm512_set1_ps(m));
        __mmask16 keep = _mm512_mask_cmp_ps_mask(visible(p, from, to), e, _mm512_set1_ps(-64.0f), _CMP_NLT_UQ);
        __m512 w = _mm512_maskz_mov_ps(keep, exp16(e));
        lane = _mm512_add_ps(lane, w);
        _mm512_storeu_ps(weight + (p - begin), w);
    }
    return tree16(lane);
}

/* out[16 n] += Σ weight·v over n_positions rows of v (stride d), in order; n is a constant, mask that of the last register. */
INLINE void add_values(enum lam_dtype kv, const float *weight, const uint8_t *v, size_t d, size_t n_positions, size_t n,
                       __mmask16 mask, float *out)
{
    __m512 part[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++) part[i] = _mm512_setzero_ps();
    for (size_t p = 0; p < n_positions; p++, v += d * kv_size(kv)) {
        __m512 w = _mm512_set1_ps(weight[p]);
#pragma GCC unroll 8
        for (size_t i = 0; i < n; i++) {
            const uint8_t *at = v + i * LANES * kv_size(kv);
            __m512 value = i + 1 < n ? load_kv(kv, at)
                         : kv == LAM_F32 ? _mm512_maskz_loadu_ps(mask, at)
                                         : _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
            part[i] = _mm512_add_ps(part[i], _mm512_mul_ps(w, value));
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < n; i++) {
        __mmask16 m = i + 1 < n ? 0xffff : mask;
        float *o = out + i * LANES;
        _mm512_mask_storeu_ps(o, m, _mm512_add_ps(_mm512_maskz_loadu_ps(m, o), part[i]));
    }
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
        for (; i + 128 <= a->d; i += 128) add_values(kv, w, v + i * kv_size(kv), a->d, n, 8, 0xffff, a->out + i);
        if (i + 64 <= a->d) {
            add_values(kv, w, v + i * kv_size(kv), a->d, n, 4, 0xffff, a->out + i);
            i += 64;
        }
        for (; i < a->d; i += LANES) {
            size_t left = a->d - i;
            add_values(kv, w, v + i * kv_size(kv), a->d, n, 1, left < LANES ? (__mmask16)((1u << left) - 1) : 0xffff, a->out + i);
        }
    }
    for (size_t i = 0; i < a->d; i++) a->out[i] = a->out[i] / l;
}

void lam_attention_avx512(const struct lam_attention *a)
{
    if (a->kv_dtype == LAM_F32)
        attention(LAM_F32, a);
    else
        attention(LAM_F16, a);
}
