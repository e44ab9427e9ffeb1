/* Attention of several queries over one KV head; docs/numeric.md "Attention". A K tile is loaded once for all queries, and so are V's
 * rows; that a query may meet positions that it doesn't see is explained in attention_scalar.c. */
#include "kernels/avx512.h"
#include "kernels/kv_page.h"
#include "kernels/math.h"

#include <math.h>

#define LANES 16
#define PAGE_TILES (LAM_KV_PAGE / LANES)
#define QUERIES LAM_ATTENTION_QUERIES
#define GROUPS (LAM_ATTENTION_DIM / LAM_GROUP)
#define BLOCK 32 /* positions of V that are added up for all dimensions before the next ones: they stay in the first cache */

/* The queries times scale, all queries of an element together. */
struct queries {
    float q[LAM_ATTENTION_DIM][QUERIES];
    int32_t code[LAM_ATTENTION_DIM / 4][QUERIES]; /* I8: four codes each */
    int32_t minus[GROUPS][QUERIES];               /* -128 times the sum of a group's codes */
    float scale[GROUPS][QUERIES];
    bool finite[QUERIES];
};

/* One page's weights and sums. */
struct page {
    float weight[QUERIES][LAM_KV_PAGE];
    int16_t rounded[QUERIES][LAM_KV_PAGE]; /* I8: integer weights, and the factor back */
    float back[QUERIES];
    union {
        float f[LAM_ATTENTION_DIM];
        int32_t i[LAM_ATTENTION_DIM];
    } sum[QUERIES];
};

/* Bytes of a float K or V element. */
INLINE size_t kv_size(enum lam_kv_type kv) { return kv == LAM_KV_F32 ? 4 : 2; }

/* 16 K or V elements as floats, those in mask. */
INLINE __m512 load_kv(enum lam_kv_type kv, __mmask16 mask, const uint8_t *p)
{
    if (mask == 0xffff) return kv == LAM_KV_F32 ? _mm512_loadu_ps(p) : load_f16(p);
    return kv == LAM_KV_F32 ? _mm512_maskz_loadu_ps(mask, p) : _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

static void load_query(const struct lam_attention *a, size_t j, struct queries *out)
{
    float q[LAM_ATTENTION_DIM], scale[GROUPS];
    int8_t code[LAM_ATTENTION_DIM];
    int32_t half[2 * GROUPS];
    for (size_t i = 0; i < a->d; i++) out->q[i][j] = q[i] = a->query[j].q[i] * a->scale;
    out->finite[j] = true;
    if (a->kv != LAM_KV_I8) return;
    out->finite[j] = lam_quantise8_avx512(q, a->d, code, scale, half);
    for (size_t c = 0; c * 4 < a->d; c++) memcpy(&out->code[c][j], code + c * 4, 4);
    for (size_t g = 0; g < lam_kv_groups(a->d); g++) {
        out->scale[g][j] = scale[g];
        out->minus[g][j] = -128 * (half[2 * g] + half[2 * g + 1]);
    }
}

static const uint8_t *k_tile(const struct lam_attention *a, size_t t, size_t bytes)
{
    return (const uint8_t *)a->k_pages[t / PAGE_TILES] + t % PAGE_TILES * bytes;
}

/* Scores of tiles t .. t+n_tiles-1 for n queries (constants) in floats. */
INLINE void score_float(enum lam_kv_type kv, const struct lam_attention *a, const struct queries *q, size_t t, size_t n_tiles, size_t n)
{
    const uint8_t *k[4];
    __m512 s[4][QUERIES];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_tiles; i++) {
        k[i] = k_tile(a, t + i, LANES * a->d * kv_size(kv));
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) s[i][j] = _mm512_setzero_ps();
    }
    for (size_t d = 0; d < a->d; d++) {
        __m512 v[4];
#pragma GCC unroll 4
        for (size_t i = 0; i < n_tiles; i++) {
            v[i] = load_kv(kv, 0xffff, k[i] + d * LANES * kv_size(kv));
            if (kv == LAM_KV_F32 || d % 2 == 0) prefetch(k[i] + d * LANES * kv_size(kv), 64);
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) {
            __m512 x = _mm512_set1_ps(q->q[d][j]);
#pragma GCC unroll 4
            for (size_t i = 0; i < n_tiles; i++) s[i][j] = _mm512_add_ps(s[i][j], _mm512_mul_ps(x, v[i]));
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_tiles; i++)
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) _mm512_storeu_ps(a->scores + j * a->scores_stride + (t + i) * LANES, s[i][j]);
}

/* The same in integers: K's codes plus 128 are unsigned bytes; q's sums times 128 are taken off again. */
INLINE void score_int(const struct lam_attention *a, const struct queries *q, size_t t, size_t n_tiles, size_t n)
{
    size_t chunks = lam_kv_i8_d4(a->d) / 4, groups = lam_kv_groups(a->d);
    const uint8_t *k[4];
    const float *k_scale[4];
    __m512 s[4][QUERIES];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_tiles; i++) {
        const void *part = a->k_pages[(t + i) / PAGE_TILES];
        k[i] = (const uint8_t *)lam_kv_i8_k(part, a->d, (t + i) % PAGE_TILES);
        k_scale[i] = lam_kv_i8_k_scale(part, a->d, (t + i) % PAGE_TILES);
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) s[i][j] = _mm512_setzero_ps();
    }
    for (size_t g = 0; g < groups; g++) {
        __m512i p[4][QUERIES];
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++)
#pragma GCC unroll 4
            for (size_t i = 0; i < n_tiles; i++) p[i][j] = _mm512_set1_epi32(q->minus[g][j]);
        size_t end = g * 8 + 8 < chunks ? g * 8 + 8 : chunks;
        for (size_t c = g * 8; c < end; c++) {
            __m512i v[4];
#pragma GCC unroll 4
            for (size_t i = 0; i < n_tiles; i++) {
                v[i] = _mm512_xor_si512(_mm512_loadu_si512(k[i] + c * 64), _mm512_set1_epi8(-128));
                prefetch(k[i] + c * 64, 64);
            }
#pragma GCC unroll 8
            for (size_t j = 0; j < n; j++) {
                __m512i x = _mm512_set1_epi32(q->code[c][j]);
#pragma GCC unroll 4
                for (size_t i = 0; i < n_tiles; i++) p[i][j] = _mm512_dpbusd_epi32(p[i][j], v[i], x);
            }
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < n_tiles; i++) {
            __m512 scale = _mm512_loadu_ps(k_scale[i] + g * LANES);
#pragma GCC unroll 8
            for (size_t j = 0; j < n; j++)
                s[i][j] = _mm512_add_ps(s[i][j], _mm512_mul_ps(_mm512_cvtepi32_ps(p[i][j]),
                                                               _mm512_mul_ps(scale, _mm512_set1_ps(q->scale[g][j]))));
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_tiles; i++)
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) _mm512_storeu_ps(a->scores + j * a->scores_stride + (t + i) * LANES, s[i][j]);
}

/* Tiles t .. last; as many at once as the registers hold sums for n queries, a constant. */
INLINE void score_tiles(enum lam_kv_type kv, const struct lam_attention *a, const struct queries *q, size_t t, size_t last, size_t n)
{
    const size_t at_once = kv == LAM_KV_I8 ? (n <= 2 ? 4 : n <= 5 ? 2 : 1) : n <= 4 ? 4 : 2;
    if (kv == LAM_KV_I8) {
        for (; t + at_once <= last + 1; t += at_once) score_int(a, q, t, at_once, n);
        for (; t <= last; t++) score_int(a, q, t, 1, n);
    } else {
        for (; t + at_once <= last + 1; t += at_once) score_float(kv, a, q, t, at_once, n);
        for (; t <= last; t++) score_float(kv, a, q, t, 1, n);
    }
}

static void soft_cap(float cap, float *score, size_t first, size_t last)
{
    for (size_t p = first; p <= last; p++) score[p] = (float)((double)cap * lam_tanh64((double)score[p] / (double)cap));
}

/* The lanes of the 16 positions from p on that lie in first..last. */
INLINE __mmask16 visible(size_t p, size_t first, size_t last)
{
    if (p > last || p + LANES <= first) return 0;
    unsigned mask = 0xffff;
    if (p < first) mask &= 0xffffu << (first - p);
    if (p + LANES - 1 > last) mask &= 0xffffu >> (p + LANES - 1 - last);
    return (__mmask16)mask;
}

static float largest(const struct lam_query *query, const float *score)
{
    __m512 m = _mm512_set1_ps(score[query->first]);
    for (size_t p = query->first / LANES * LANES; p <= query->last; p += LANES)
        m = _mm512_mask_max_ps(m, visible(p, query->first, query->last), _mm512_loadu_ps(score + p), m);
    return _mm512_reduce_max_ps(m);
}

/* weight of the tiles of page positions from..to, +0 where the query sees nothing, and their sum by lanes and tree. */
static float page_weights(const struct lam_query *query, const float *score, float m, size_t begin, size_t from, size_t to, float *weight)
{
    __m512 lane = _mm512_setzero_ps();
    for (size_t p = from / LANES * LANES; p <= to; p += LANES) {
        __m512 e = _mm512_sub_ps(_mm512_loadu_ps(score + begin + p), _mm512_set1_ps(m));
        __mmask16 keep = _mm512_mask_cmp_ps_mask(visible(begin + p, query->first, query->last), e, _mm512_set1_ps(-64.0f), _CMP_NLT_UQ);
        __m512 w = _mm512_maskz_mov_ps(keep, exp16(e));
        lane = _mm512_add_ps(lane, w);
        _mm512_storeu_ps(weight + p, w);
    }
    return tree16(lane);
}

/* weight·scale as integers up to 32767 of the largest, and the factor back; all 0 if there is nothing to see. */
static float round_weights(const float *weight, const float *scale, size_t from, size_t to, int16_t *rounded)
{
    __m512 w[PAGE_TILES], c = _mm512_setzero_ps();
    size_t first = from / LANES, last = to / LANES;
    for (size_t t = first; t <= last; t++) {
        w[t] = _mm512_maskz_mul_ps(visible(t * LANES, from, to), _mm512_loadu_ps(weight + t * LANES), _mm512_loadu_ps(scale + t * LANES));
        c = _mm512_max_ps(w[t], c);
    }
    float most = _mm512_reduce_max_ps(c);
    bool none = most < 0x1p-100f;
    __m512 inverse = _mm512_set1_ps(none ? 0.0f : 32767.0f / most);
    for (size_t t = first; t <= last; t++)
        _mm256_storeu_si256((__m256i *)(rounded + t * LANES), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(w[t], inverse))));
    return none ? 0.0f : most / 32767.0f;
}

/* sum[j][i..] += Σ weight·v of positions from..to, in order, for n queries and width registers (constants); mask: of the last one. */
INLINE void add_float(enum lam_kv_type kv, const uint8_t *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t n, size_t width,
                      __mmask16 mask, struct page *page)
{
    __m512 sum[QUERIES][8];
#pragma GCC unroll 8
    for (size_t j = 0; j < n; j++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) sum[j][r] = begin ? _mm512_setzero_ps() : _mm512_loadu_ps(page->sum[j].f + i + r * LANES);
    for (size_t p = from; p <= to; p++) {
        __m512 value[8];
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) {
            const uint8_t *at = v + (p * d + i + r * LANES) * kv_size(kv);
            value[r] = load_kv(kv, r + 1 < width ? 0xffff : mask, at);
            if (kv == LAM_KV_F32 || r % 2 == 0) prefetch(at, 64);
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) {
            __m512 w = _mm512_set1_ps(page->weight[j][p]);
#pragma GCC unroll 8
            for (size_t r = 0; r < width; r++) sum[j][r] = _mm512_add_ps(sum[j][r], _mm512_mul_ps(w, value[r]));
        }
    }
#pragma GCC unroll 8
    for (size_t j = 0; j < n; j++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) _mm512_storeu_ps(page->sum[j].f + i + r * LANES, sum[j][r]);
}

/* The same in integers, pairs of positions at once; from is even. */
INLINE void add_int(const int8_t *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t n, size_t width, __mmask16 mask,
                    struct page *page)
{
    __m512i sum[QUERIES][8];
#pragma GCC unroll 8
    for (size_t j = 0; j < n; j++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) sum[j][r] = begin ? _mm512_setzero_si512() : _mm512_loadu_si512(page->sum[j].i + i + r * LANES);
    for (size_t p = from; p <= to; p += 2) {
        __m512i value[8];
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) {
            const int8_t *at = v + p * d + 2 * (i + r * LANES);
            __m256i bytes = r + 1 < width || mask == 0xffff ? _mm256_loadu_si256((const __m256i *)at)
                                                            : _mm256_maskz_loadu_epi16(mask, at);
            value[r] = _mm512_cvtepi8_epi16(bytes);
            if (r % 2 == 0) prefetch((const uint8_t *)at, 64);
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < n; j++) {
            __m512i w = broadcast4(&page->rounded[j][p]);
#pragma GCC unroll 8
            for (size_t r = 0; r < width; r++) sum[j][r] = _mm512_dpwssd_epi32(sum[j][r], value[r], w);
        }
    }
#pragma GCC unroll 8
    for (size_t j = 0; j < n; j++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) _mm512_storeu_si512(page->sum[j].i + i + r * LANES, sum[j][r]);
}

INLINE void add_block(enum lam_kv_type kv, const void *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t n, size_t width,
                      __mmask16 mask, struct page *page)
{
    if (kv == LAM_KV_I8) add_int(v, d, i, from, to, begin, n, width, mask, page);
    else add_float(kv, v, d, i, from, to, begin, n, width, mask, page);
}

/* page->sum of positions from..to of a V part, for n queries, a constant. */
INLINE void add_page(enum lam_kv_type kv, const void *v, size_t d, size_t from, size_t to, size_t n, struct page *page)
{
    const size_t width = n <= 2 ? 8 : n <= 4 ? 4 : 2;
    bool begin = true;
    if (kv == LAM_KV_I8) from = from / 2 * 2;
    for (; from <= to; from += BLOCK, begin = false) {
        size_t end = to - from < BLOCK ? to : from + BLOCK - 1, i = 0;
        for (; i + width * LANES <= d; i += width * LANES) add_block(kv, v, d, i, from, end, begin, n, width, 0xffff, page);
        for (; i + LANES <= d; i += LANES) add_block(kv, v, d, i, from, end, begin, n, 1, 0xffff, page);
        if (i < d) add_block(kv, v, d, i, from, end, begin, n, 1, (__mmask16)((1u << (d - i)) - 1), page);
    }
}

/* out += the page's sums. */
static void add_sums(const struct lam_attention *a, const struct page *page)
{
    for (size_t j = 0; j < a->n; j++)
        for (size_t i = 0; i < a->d; i += LANES) {
            __mmask16 mask = visible(i, 0, a->d - 1);
            __m512 sum = a->kv == LAM_KV_I8 ? _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(page->sum[j].i + i)), _mm512_set1_ps(page->back[j]))
                                            : _mm512_loadu_ps(page->sum[j].f + i);
            float *out = a->query[j].out + i;
            _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sum));
        }
}

static void divide(float *out, size_t d, float l)
{
    for (size_t i = 0; i < d; i += LANES) {
        __mmask16 mask = visible(i, 0, d - 1);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_div_ps(_mm512_maskz_loadu_ps(mask, out + i), _mm512_set1_ps(l)));
    }
}

/* kv and n are constants. */
INLINE void attention(enum lam_kv_type kv, const struct lam_attention *a, size_t n)
{
    struct queries q;
    struct page page;
    float m[QUERIES], l[QUERIES] = {0};
    size_t first = a->query[0].first, last = a->query[0].last;
    for (size_t j = 0; j < n; j++) {
        load_query(a, j, &q);
        if (a->query[j].first < first) first = a->query[j].first;
        if (a->query[j].last > last) last = a->query[j].last;
        memset(a->query[j].out, 0, a->d * sizeof(float));
    }
    score_tiles(kv, a, &q, first / LANES, last / LANES, n);
    for (size_t j = 0; j < n; j++) {
        float *score = a->scores + j * a->scores_stride;
        if (a->softcap != 0.0f) soft_cap(a->softcap, score, a->query[j].first, a->query[j].last);
        m[j] = largest(&a->query[j], score);
    }
    for (size_t p = first / LAM_KV_PAGE; p <= last / LAM_KV_PAGE; p++) {
        size_t begin = p * LAM_KV_PAGE, from = begin > first ? 0 : first - begin;
        size_t to = last - begin < LAM_KV_PAGE ? last - begin : LAM_KV_PAGE - 1;
        for (size_t j = 0; j < n; j++) {
            l[j] = l[j] + page_weights(&a->query[j], a->scores + j * a->scores_stride, m[j], begin, from, to, page.weight[j]);
            if (kv == LAM_KV_I8)
                page.back[j] = round_weights(page.weight[j], lam_kv_i8_v_scale(a->v_pages[p], a->d), from, to, page.rounded[j]);
        }
        add_page(kv, a->v_pages[p], a->d, from, to, n, &page);
        add_sums(a, &page);
    }
    for (size_t j = 0; j < n; j++) divide(a->query[j].out, a->d, q.finite[j] ? l[j] : NAN);
}

INLINE void attention_n(enum lam_kv_type kv, const struct lam_attention *a)
{
    switch (a->n) {
    case 1: attention(kv, a, 1); break;
    case 2: attention(kv, a, 2); break;
    case 3: attention(kv, a, 3); break;
    case 4: attention(kv, a, 4); break;
    case 5: attention(kv, a, 5); break;
    case 6: attention(kv, a, 6); break;
    case 7: attention(kv, a, 7); break;
    default: attention(kv, a, 8); break;
    }
}

static void attention_f16(const struct lam_attention *a) { attention_n(LAM_KV_F16, a); }
static void attention_f32(const struct lam_attention *a) { attention_n(LAM_KV_F32, a); }
static void attention_i8(const struct lam_attention *a) { attention_n(LAM_KV_I8, a); }

void lam_attention_avx512(const struct lam_attention *a)
{
    switch (a->kv) {
    case LAM_KV_F16: attention_f16(a); break;
    case LAM_KV_F32: attention_f32(a); break;
    case LAM_KV_I8: attention_i8(a); break;
    }
}
