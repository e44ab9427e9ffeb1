/* Attention of several queries over one KV head; docs/numeric.md "Attention". K tiles and V's rows are read once for up to four
 * queries, and while they are in the first cache for all; that a query may meet positions that it doesn't see is explained in
 * attention_scalar.c. */
#include "kernels/avx2.h"
#include "kernels/kv_page.h"
#include "kernels/math.h"
#include "tensor/half.h"

#include <math.h>

#define TILE LAM_KV_TILE
#define LANES 8
#define PAGE_TILES (LAM_KV_PAGE / TILE)
#define QUERIES LAM_ATTENTION_QUERIES
#define AT_ONCE 4 /* queries whose sums the registers hold */
#define GROUPS (LAM_ATTENTION_DIM / LAM_GROUP)
#define BLOCK 32 /* positions of V that are added up for all dimensions before the next ones: they stay in the first cache */

/* The queries times scale, all queries of an element together. */
struct queries {
    float q[LAM_ATTENTION_DIM][QUERIES];
    int32_t code[LAM_ATTENTION_DIM / 4][QUERIES]; /* I8: four codes each */
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

/* 8 K or V elements as floats. */
INLINE __m256 load_kv(enum lam_kv_type kv, const uint8_t *p)
{
    return kv == LAM_KV_F32 ? _mm256_loadu_ps((const float *)p) : load_f16(p);
}

static void load_query(const struct lam_attention *a, size_t j, struct queries *out)
{
    float q[LAM_ATTENTION_DIM], scale[GROUPS];
    int8_t code[LAM_ATTENTION_DIM];
    int32_t half[2 * GROUPS];
    for (size_t i = 0; i < a->d; i++) out->q[i][j] = q[i] = a->query[j].q[i] * a->scale;
    out->finite[j] = true;
    if (a->kv != LAM_KV_I8) return;
    out->finite[j] = lam_quantise8_avx2(q, a->d, code, scale, half);
    for (size_t c = 0; c * 4 < a->d; c++) memcpy(&out->code[c][j], code + c * 4, 4);
    for (size_t g = 0; g < lam_kv_groups(a->d); g++) out->scale[g][j] = scale[g];
}

/* Scores of tiles t .. t+n_tiles-1 for queries j .. j+n-1 (n_tiles, n: constants) in floats. */
INLINE void score_float(enum lam_kv_type kv, const struct lam_attention *a, const struct queries *q, size_t t, size_t n_tiles, size_t j,
                        size_t n)
{
    const uint8_t *k[2];
    __m256 s[2][AT_ONCE][2];
#pragma GCC unroll 2
    for (size_t i = 0; i < n_tiles; i++) {
        k[i] = (const uint8_t *)a->k_pages[(t + i) / PAGE_TILES] + (t + i) % PAGE_TILES * TILE * a->d * kv_size(kv);
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++) s[i][m][0] = s[i][m][1] = _mm256_setzero_ps();
    }
    for (size_t d = 0; d < a->d; d++)
#pragma GCC unroll 2
        for (size_t i = 0; i < n_tiles; i++) {
            __m256 low = load_kv(kv, k[i] + d * TILE * kv_size(kv)), high = load_kv(kv, k[i] + (d * TILE + LANES) * kv_size(kv));
            if (j == 0 && (kv == LAM_KV_F32 || d % 2 == 0)) prefetch(k[i] + d * TILE * kv_size(kv), 64);
#pragma GCC unroll 4
            for (size_t m = 0; m < n; m++) {
                __m256 x = _mm256_set1_ps(q->q[d][j + m]);
                s[i][m][0] = _mm256_add_ps(s[i][m][0], _mm256_mul_ps(x, low));
                s[i][m][1] = _mm256_add_ps(s[i][m][1], _mm256_mul_ps(x, high));
            }
        }
#pragma GCC unroll 2
    for (size_t i = 0; i < n_tiles; i++)
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++) {
            float *to = a->scores + (j + m) * a->scores_stride + (t + i) * TILE;
            _mm256_storeu_ps(to, s[i][m][0]);
            _mm256_storeu_ps(to + LANES, s[i][m][1]);
        }
}

/* Half h of tile t for queries j .. j+n-1 (n: a constant) in integers: |q| as unsigned bytes, its sign moved to k; the 16-bit sums of
 * two products stay below 2·127·127. */
INLINE void score_int(const struct lam_attention *a, const struct queries *q, size_t t, size_t h, size_t j, size_t n)
{
    const void *part = a->k_pages[t / PAGE_TILES];
    const int8_t *k = lam_kv_i8_k(part, a->d, t % PAGE_TILES) + h * 4 * LANES;
    const float *k_scale = lam_kv_i8_k_scale(part, a->d, t % PAGE_TILES) + h * LANES;
    size_t chunks = lam_kv_i8_d4(a->d) / 4, groups = lam_kv_groups(a->d);
    __m256 s[AT_ONCE];
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++) s[m] = _mm256_setzero_ps();
    for (size_t g = 0; g < groups; g++) {
        __m256i p[AT_ONCE];
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++) p[m] = _mm256_setzero_si256();
        size_t end = g * 8 + 8 < chunks ? g * 8 + 8 : chunks;
        for (size_t c = g * 8; c < end; c++) {
            __m256i v = _mm256_loadu_si256((const __m256i *)(k + c * 4 * TILE));
            if (j == 0 && h == 0) prefetch((const uint8_t *)k + c * 4 * TILE, 64);
#pragma GCC unroll 4
            for (size_t m = 0; m < n; m++) {
                __m256i x = _mm256_set1_epi32(q->code[c][j + m]);
                __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(v, x));
                p[m] = _mm256_add_epi32(p[m], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
            }
        }
        __m256 scale = _mm256_loadu_ps(k_scale + g * TILE);
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++)
            s[m] = _mm256_add_ps(s[m], _mm256_mul_ps(_mm256_cvtepi32_ps(p[m]), _mm256_mul_ps(scale, _mm256_set1_ps(q->scale[g][j + m]))));
    }
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++) _mm256_storeu_ps(a->scores + (j + m) * a->scores_stride + t * TILE + h * LANES, s[m]);
}

/* Tiles t .. last for n queries, a constant. */
INLINE void score_tiles(enum lam_kv_type kv, const struct lam_attention *a, const struct queries *q, size_t t, size_t last, size_t n)
{
    if (kv != LAM_KV_I8 && n <= 2)
        for (; t + 1 <= last; t += 2) score_float(kv, a, q, t, 2, 0, n);
    for (; t <= last; t++)
#pragma GCC unroll 2
        for (size_t j = 0; j < n; j += AT_ONCE) {
            const size_t now = n - j < AT_ONCE ? n - j : AT_ONCE;
            if (kv != LAM_KV_I8) {
                score_float(kv, a, q, t, 1, j, now);
            } else {
                score_int(a, q, t, 0, j, now);
                score_int(a, q, t, 1, j, now);
            }
        }
}

static void soft_cap(float cap, float *score, size_t first, size_t last)
{
    for (size_t p = first; p <= last; p++) score[p] = (float)((double)cap * lam_tanh64((double)score[p] / (double)cap));
}

static float largest(const struct lam_query *query, const float *score)
{
    size_t p = query->first;
    float m = score[p], each[LANES];
    __m256 lanes = _mm256_set1_ps(m);
    for (; p + LANES - 1 <= query->last; p += LANES) lanes = _mm256_max_ps(_mm256_loadu_ps(score + p), lanes);
    _mm256_storeu_ps(each, lanes);
    for (size_t i = 0; i < LANES; i++)
        if (each[i] > m) m = each[i];
    for (; p <= query->last; p++)
        if (score[p] > m) m = score[p];
    return m;
}

/* All ones in the lanes of the eight positions from p on that lie in first..last. */
INLINE __m256 visible(size_t p, size_t first, size_t last)
{
    const __m256i index = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    int low = first > p ? (int)(first - p) : 0, high = (int)((ptrdiff_t)last - (ptrdiff_t)p);
    __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), index),
                                      _mm256_cmpgt_epi32(index, _mm256_set1_epi32(high)));
    return _mm256_castsi256_ps(_mm256_xor_si256(outside, _mm256_set1_epi32(-1)));
}

/* weight of the tiles of page positions from..to, +0 where the query sees nothing, and their sum by lanes and tree. */
static float page_weights(const struct lam_query *query, const float *score, float m, size_t begin, size_t from, size_t to, float *weight)
{
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (size_t tile = from / TILE * TILE; tile <= to; tile += TILE)
#pragma GCC unroll 2
        for (size_t h = 0; h < 2; h++) {
            size_t p = tile + h * LANES;
            __m256 e = _mm256_sub_ps(_mm256_loadu_ps(score + begin + p), _mm256_set1_ps(m));
            __m256 keep = _mm256_and_ps(visible(begin + p, query->first, query->last),
                                        _mm256_cmp_ps(e, _mm256_set1_ps(-64.0f), _CMP_NLT_UQ));
            __m256 w = _mm256_and_ps(keep, exp8(e));
            lane[h] = _mm256_add_ps(lane[h], w);
            _mm256_storeu_ps(weight + p, w);
        }
    return tree16(lane[0], lane[1]);
}

/* weight·scale as integers up to 32767 of the largest, and the factor back; all 0 if there is nothing to see. */
static float round_weights(const float *weight, const float *scale, size_t from, size_t to, int16_t *rounded)
{
    __m256 w[LAM_KV_PAGE / LANES], c = _mm256_setzero_ps();
    size_t first = from / TILE * 2, last = to / TILE * 2 + 1;
    for (size_t t = first; t <= last; t++) {
        w[t] = _mm256_mul_ps(_mm256_loadu_ps(weight + t * LANES), _mm256_loadu_ps(scale + t * LANES));
        w[t] = _mm256_and_ps(visible(t * LANES, from, to), w[t]);
        c = _mm256_max_ps(w[t], c);
    }
    float each[LANES], most = 0.0f;
    _mm256_storeu_ps(each, c);
    for (size_t i = 0; i < LANES; i++)
        if (each[i] > most) most = each[i];
    bool none = most < 0x1p-100f;
    __m256 inverse = _mm256_set1_ps(none ? 0.0f : 32767.0f / most);
    for (size_t t = first; t <= last; t += 2) {
        __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(w[t], inverse)), high = _mm256_cvtps_epi32(_mm256_mul_ps(w[t + 1], inverse));
        __m256i codes = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(rounded + t * LANES), codes);
    }
    return none ? 0.0f : most / 32767.0f;
}

/* sum[j..][i..] += Σ weight·v of positions from..to, in order, for n queries and width registers (constants). */
INLINE void add_float(enum lam_kv_type kv, const uint8_t *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t j, size_t n,
                      size_t width, struct page *page)
{
    __m256 sum[AT_ONCE][8];
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++)
            sum[m][r] = begin ? _mm256_setzero_ps() : _mm256_loadu_ps(page->sum[j + m].f + i + r * LANES);
    for (size_t p = from; p <= to; p++) {
        __m256 w[AT_ONCE];
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++) w[m] = _mm256_set1_ps(page->weight[j + m][p]);
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) {
            const uint8_t *at = v + (p * d + i + r * LANES) * kv_size(kv);
            __m256 value = load_kv(kv, at);
            if (j == 0 && r % (kv == LAM_KV_F32 ? 2 : 4) == 0) prefetch(at, 64);
#pragma GCC unroll 4
            for (size_t m = 0; m < n; m++) sum[m][r] = _mm256_add_ps(sum[m][r], _mm256_mul_ps(w[m], value));
        }
    }
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) _mm256_storeu_ps(page->sum[j + m].f + i + r * LANES, sum[m][r]);
}

/* The same in integers, pairs of positions at once; from is even. */
INLINE void add_int(const int8_t *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t j, size_t n, size_t width,
                    struct page *page)
{
    __m256i sum[AT_ONCE][8];
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++)
            sum[m][r] = begin ? _mm256_setzero_si256() : _mm256_loadu_si256((const __m256i *)(page->sum[j + m].i + i + r * LANES));
    for (size_t p = from; p <= to; p += 2) {
        __m256i w[AT_ONCE];
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++) w[m] = broadcast4(&page->rounded[j + m][p]);
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) {
            const int8_t *at = v + p * d + 2 * (i + r * LANES);
            __m256i value = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at));
            if (j == 0 && r % 4 == 0) prefetch((const uint8_t *)at, 64);
#pragma GCC unroll 4
            for (size_t m = 0; m < n; m++) sum[m][r] = _mm256_add_epi32(sum[m][r], _mm256_madd_epi16(value, w[m]));
        }
    }
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r++) _mm256_storeu_si256((__m256i *)(page->sum[j + m].i + i + r * LANES), sum[m][r]);
}

INLINE void add_block(enum lam_kv_type kv, const void *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t n, size_t width,
                      struct page *page)
{
#pragma GCC unroll 2
    for (size_t j = 0; j < n; j += AT_ONCE) {
        const size_t now = n - j < AT_ONCE ? n - j : AT_ONCE;
        if (kv == LAM_KV_I8) add_int(v, d, i, from, to, begin, j, now, width, page);
        else add_float(kv, v, d, i, from, to, begin, j, now, width, page);
    }
}

/* One dimension of the page's sums, without registers. */
static void add_dimension(enum lam_kv_type kv, const void *v, size_t d, size_t i, size_t from, size_t to, size_t n, struct page *page)
{
    for (size_t j = 0; j < n; j++) {
        float sum = 0.0f;
        int32_t exact = 0;
        for (size_t p = from; p <= to; p++)
            switch (kv) {
            case LAM_KV_F16: sum = sum + page->weight[j][p] * lam_f16_to_f32(((const uint16_t *)v)[p * d + i]); break;
            case LAM_KV_F32: sum = sum + page->weight[j][p] * ((const float *)v)[p * d + i]; break;
            case LAM_KV_I8: exact += page->rounded[j][p] * ((const int8_t *)v)[p / 2 * 2 * d + 2 * i + p % 2]; break;
            }
        if (kv == LAM_KV_I8) page->sum[j].i[i] = exact;
        else page->sum[j].f[i] = sum;
    }
}

/* page->sum of positions from..to of a V part, for n queries, a constant. */
INLINE void add_page(enum lam_kv_type kv, const void *v, size_t d, size_t from, size_t to, size_t n, struct page *page)
{
    const size_t width = n == 1 ? 8 : n == 2 ? 4 : 2;
    for (size_t i = d / LANES * LANES; i < d; i++) add_dimension(kv, v, d, i, from, to, n, page);
    bool begin = true;
    if (kv == LAM_KV_I8) from = from / 2 * 2;
    for (; from <= to; from += BLOCK, begin = false) {
        size_t end = to - from < BLOCK ? to : from + BLOCK - 1, i = 0;
        for (; i + width * LANES <= d; i += width * LANES) add_block(kv, v, d, i, from, end, begin, n, width, page);
        for (; i + LANES <= d; i += LANES) add_block(kv, v, d, i, from, end, begin, n, 1, page);
    }
}

/* out += the page's sums. */
static void add_sums(const struct lam_attention *a, const struct page *page)
{
    for (size_t j = 0; j < a->n; j++) {
        float *out = a->query[j].out, back = page->back[j];
        if (a->kv == LAM_KV_I8)
            for (size_t i = 0; i < a->d; i++) out[i] = out[i] + (float)page->sum[j].i[i] * back;
        else
            for (size_t i = 0; i < a->d; i++) out[i] = out[i] + page->sum[j].f[i];
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
    score_tiles(kv, a, &q, first / TILE, last / TILE, n);
    for (size_t j = 0; j < n; j++) {
        float *score = a->scores + j * a->scores_stride;
        if (a->softcap != 0.0f) soft_cap(a->softcap, score, a->query[j].first, a->query[j].last);
        m[j] = largest(&a->query[j], score);
    }
    for (size_t p = first / LAM_KV_PAGE; p <= last / LAM_KV_PAGE; p++) {
        size_t begin = p * LAM_KV_PAGE, from = begin > first ? 0 : first - begin;
        size_t to = last - begin < LAM_KV_PAGE ? last - begin : LAM_KV_PAGE - 1;
        for (size_t j = 0; j < n; j++) {
            page.back[j] = 0.0f;
            l[j] = l[j] + page_weights(&a->query[j], a->scores + j * a->scores_stride, m[j], begin, from, to, page.weight[j]);
            if (kv == LAM_KV_I8)
                page.back[j] = round_weights(page.weight[j], lam_kv_i8_v_scale(a->v_pages[p], a->d), from, to, page.rounded[j]);
        }
        add_page(kv, a->v_pages[p], a->d, from, to, n, &page);
        add_sums(a, &page);
    }
    for (size_t j = 0; j < n; j++) {
        float divisor = q.finite[j] ? l[j] : NAN;
        for (size_t i = 0; i < a->d; i++) a->query[j].out[i] = a->query[j].out[i] / divisor;
    }
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

void lam_attention_avx2(const struct lam_attention *a)
{
    switch (a->kv) {
    case LAM_KV_F16: attention_f16(a); break;
    case LAM_KV_F32: attention_f32(a); break;
    case LAM_KV_I8: attention_i8(a); break;
    }
}
