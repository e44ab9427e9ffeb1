/* Attention of several queries over one KV head with Advanced SIMD; docs/numeric.md "Attention". K tiles and V's rows are read once
 * for up to four queries, and while they are in the first cache for all; that a query may meet positions that it doesn't see is
 * explained in attention_scalar.c.
 *
 * The including file defines before: struct exact, exact sums of products of bytes for four positions; no_products; plus_products,
 * which adds each position's four products of codes in -127..127; sums_of. */
#ifndef LAM_KERNELS_ATTENTION_NEON_H
#define LAM_KERNELS_ATTENTION_NEON_H

#include "kernels/kv_page.h"
#include "kernels/math.h"
#include "kernels/neon.h"
#include "tensor/half.h"

#include <math.h>

#define TILE LAM_KV_TILE
#define LANES 4
#define REGISTERS (TILE / LANES)
#define PAGE_TILES (LAM_KV_PAGE / TILE)
#define QUERIES LAM_ATTENTION_QUERIES
#define AT_ONCE 4 /* queries whose sums the registers hold */
#define GROUPS (LAM_ATTENTION_DIM / LAM_GROUP)
#define DIMS 8   /* dimensions of V in two registers of sums */
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

/* 4 float K or V elements as floats. */
INLINE float32x4_t load_kv(enum lam_kv_type kv, const uint8_t *p)
{
    return kv == LAM_KV_F32 ? vld1q_f32((const float *)(const void *)p) : load_f16(p);
}

static void load_query(const struct lam_attention *a, size_t j, struct queries *out)
{
    float q[LAM_ATTENTION_DIM], scale[GROUPS];
    int8_t code[LAM_ATTENTION_DIM];
    int32_t half[2 * GROUPS];
    for (size_t i = 0; i < a->d; i++) out->q[i][j] = q[i] = a->query[j].q[i] * a->scale;
    out->finite[j] = true;
    if (a->kv != LAM_KV_I8) return;
    out->finite[j] = lam_quantise8_neon(q, a->d, code, scale, half);
    for (size_t c = 0; c * 4 < a->d; c++) memcpy(&out->code[c][j], code + c * 4, 4);
    for (size_t g = 0; g < lam_kv_groups(a->d); g++) out->scale[g][j] = scale[g];
}

/* Scores of tiles t .. t+n_tiles-1 for queries j .. j+n-1 (n_tiles, n: constants) in floats. */
INLINE void score_float(enum lam_kv_type kv, const struct lam_attention *a, const struct queries *q, size_t t, size_t n_tiles, size_t j,
                        size_t n)
{
    const uint8_t *k[2];
    float32x4_t s[2][AT_ONCE][REGISTERS];
#pragma GCC unroll 2
    for (size_t i = 0; i < n_tiles; i++) {
        k[i] = (const uint8_t *)a->k_pages[(t + i) / PAGE_TILES] + (t + i) % PAGE_TILES * TILE * a->d * kv_size(kv);
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++)
#pragma GCC unroll 4
            for (size_t r = 0; r < REGISTERS; r++) s[i][m][r] = vdupq_n_f32(0.0f);
    }
    for (size_t d = 0; d < a->d; d++)
#pragma GCC unroll 2
        for (size_t i = 0; i < n_tiles; i++)
#pragma GCC unroll 4
            for (size_t r = 0; r < REGISTERS; r++) {
                float32x4_t value = load_kv(kv, k[i] + (d * TILE + r * LANES) * kv_size(kv));
#pragma GCC unroll 4
                for (size_t m = 0; m < n; m++) s[i][m][r] = vaddq_f32(s[i][m][r], vmulq_n_f32(value, q->q[d][j + m]));
            }
#pragma GCC unroll 2
    for (size_t i = 0; i < n_tiles; i++)
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++)
#pragma GCC unroll 4
            for (size_t r = 0; r < REGISTERS; r++)
                vst1q_f32(a->scores + (j + m) * a->scores_stride + (t + i) * TILE + r * LANES, s[i][m][r]);
}

/* Registers 2h and 2h+1 of tile t's scores for queries j .. j+n-1 (n: a constant) in integers. */
INLINE void score_int(const struct lam_attention *a, const struct queries *q, size_t t, size_t h, size_t j, size_t n)
{
    const void *part = a->k_pages[t / PAGE_TILES];
    const int8_t *k = lam_kv_i8_k(part, a->d, t % PAGE_TILES) + h * 2 * LANES * 4;
    const float *k_scale = lam_kv_i8_k_scale(part, a->d, t % PAGE_TILES) + h * 2 * LANES;
    size_t chunks = lam_kv_i8_d4(a->d) / 4, groups = lam_kv_groups(a->d);
    float32x4_t s[AT_ONCE][2];
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++) s[m][0] = s[m][1] = vdupq_n_f32(0.0f);
    for (size_t g = 0; g < groups; g++) {
        struct exact p[AT_ONCE][2];
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++) p[m][0] = p[m][1] = no_products();
        size_t end = g * 8 + 8 < chunks ? g * 8 + 8 : chunks;
        for (size_t c = g * 8; c < end; c++) {
            int8x16_t low = vld1q_s8(k + c * 4 * TILE), high = vld1q_s8(k + c * 4 * TILE + 4 * LANES);
#pragma GCC unroll 4
            for (size_t m = 0; m < n; m++) {
                int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(q->code[c][j + m]));
                p[m][0] = plus_products(p[m][0], low, x);
                p[m][1] = plus_products(p[m][1], high, x);
            }
        }
#pragma GCC unroll 4
        for (size_t m = 0; m < n; m++)
#pragma GCC unroll 2
            for (size_t r = 0; r < 2; r++) {
                float32x4_t scale = vmulq_n_f32(vld1q_f32(k_scale + g * TILE + r * LANES), q->scale[g][j + m]);
                s[m][r] = vaddq_f32(s[m][r], vmulq_f32(vcvtq_f32_s32(sums_of(p[m][r])), scale));
            }
    }
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 2
        for (size_t r = 0; r < 2; r++)
            vst1q_f32(a->scores + (j + m) * a->scores_stride + t * TILE + (2 * h + r) * LANES, s[m][r]);
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

INLINE float32x4_t greater(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }

static float largest(const struct lam_query *query, const float *score)
{
    size_t p = query->first;
    float m = score[p], each[LANES];
    float32x4_t lanes = vdupq_n_f32(m);
    for (; p + LANES - 1 <= query->last; p += LANES) lanes = greater(vld1q_f32(score + p), lanes);
    vst1q_f32(each, lanes);
    for (size_t i = 0; i < LANES; i++)
        if (each[i] > m) m = each[i];
    for (; p <= query->last; p++)
        if (score[p] > m) m = score[p];
    return m;
}

/* All ones in the lanes of the four positions from p on that lie in first..last. */
INLINE uint32x4_t visible(size_t p, size_t first, size_t last)
{
    const int32x4_t index = {0, 1, 2, 3};
    int low = first > p ? (int)(first - p) : 0, high = (int)((ptrdiff_t)last - (ptrdiff_t)p);
    return vandq_u32(vcgeq_s32(index, vdupq_n_s32(low)), vcleq_s32(index, vdupq_n_s32(high)));
}

/* weight of the tiles of page positions from..to, +0 where the query sees nothing, and their sum by lanes and tree. */
static float page_weights(const struct lam_query *query, const float *score, float m, size_t begin, size_t from, size_t to, float *weight)
{
    float32x4_t lane[REGISTERS];
    for (size_t r = 0; r < REGISTERS; r++) lane[r] = vdupq_n_f32(0.0f);
    for (size_t tile = from / TILE * TILE; tile <= to; tile += TILE)
#pragma GCC unroll 4
        for (size_t r = 0; r < REGISTERS; r++) {
            size_t p = tile + r * LANES;
            float32x4_t e = vsubq_f32(vld1q_f32(score + begin + p), vdupq_n_f32(m));
            uint32x4_t keep = vbicq_u32(visible(begin + p, query->first, query->last), vcltq_f32(e, vdupq_n_f32(-64.0f)));
            float32x4_t w = where(keep, exp4(e));
            lane[r] = vaddq_f32(lane[r], w);
            vst1q_f32(weight + p, w);
        }
    return tree16(lane);
}

/* weight·scale as integers up to 32767 of the largest, and the factor back; all 0 if there is nothing to see. */
static float round_weights(const float *weight, const float *scale, size_t from, size_t to, int16_t *rounded)
{
    float32x4_t w[LAM_KV_PAGE / LANES], most = vdupq_n_f32(0.0f);
    size_t first = from / TILE * REGISTERS, end = to / TILE * REGISTERS + REGISTERS;
    for (size_t t = first; t < end; t++) {
        w[t] = where(visible(t * LANES, from, to), vmulq_f32(vld1q_f32(weight + t * LANES), vld1q_f32(scale + t * LANES)));
        most = greater(w[t], most);
    }
    float c = vmaxvq_f32(most);
    bool none = c < 0x1p-100f;
    float inverse = none ? 0.0f : 32767.0f / c;
    for (size_t t = first; t < end; t++)
        vst1_s16(rounded + t * LANES, vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(w[t], inverse))));
    return none ? 0.0f : c / 32767.0f;
}

/* sum[j..][i..] += Σ weight·v of positions from..to, in order, for n queries and 4·width dimensions (constants). */
INLINE void add_float(enum lam_kv_type kv, const uint8_t *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t j, size_t n,
                      size_t width, struct page *page)
{
    float32x4_t sum[AT_ONCE][16];
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 16
        for (size_t r = 0; r < width; r++) sum[m][r] = begin ? vdupq_n_f32(0.0f) : vld1q_f32(page->sum[j + m].f + i + r * LANES);
    for (size_t p = from; p <= to; p++)
#pragma GCC unroll 16
        for (size_t r = 0; r < width; r++) {
            float32x4_t value = load_kv(kv, v + (p * d + i + r * LANES) * kv_size(kv));
#pragma GCC unroll 4
            for (size_t m = 0; m < n; m++) sum[m][r] = vaddq_f32(sum[m][r], vmulq_n_f32(value, page->weight[j + m][p]));
        }
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 16
        for (size_t r = 0; r < width; r++) vst1q_f32(page->sum[j + m].f + i + r * LANES, sum[m][r]);
}

/* The same in integers, pairs of positions at once; from and width are even. */
INLINE void add_int(const int8_t *v, size_t d, size_t i, size_t from, size_t to, bool begin, size_t j, size_t n, size_t width,
                    struct page *page)
{
    int32x4_t sum[AT_ONCE][16];
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 16
        for (size_t r = 0; r < width; r++) sum[m][r] = begin ? vdupq_n_s32(0) : vld1q_s32(page->sum[j + m].i + i + r * LANES);
    for (size_t p = from; p <= to; p += 2)
#pragma GCC unroll 8
        for (size_t r = 0; r < width; r += 2) {
            int8x8x2_t pair = vld2_s8(v + p * d + 2 * (i + r * LANES));
#pragma GCC unroll 2
            for (size_t k = 0; k < 2; k++) {
                int16x8_t value = vmovl_s8(pair.val[k]);
#pragma GCC unroll 4
                for (size_t m = 0; m < n; m++) {
                    int16_t w = page->rounded[j + m][p + k];
                    sum[m][r] = vmlal_n_s16(sum[m][r], vget_low_s16(value), w);
                    sum[m][r + 1] = vmlal_high_n_s16(sum[m][r + 1], value, w);
                }
            }
        }
#pragma GCC unroll 4
    for (size_t m = 0; m < n; m++)
#pragma GCC unroll 16
        for (size_t r = 0; r < width; r++) vst1q_s32(page->sum[j + m].i + i + r * LANES, sum[m][r]);
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
    const size_t width = n == 1 ? 8 : n == 2 ? 4 : 2; /* in DIMS */
    for (size_t i = d / DIMS * DIMS; i < d; i++) add_dimension(kv, v, d, i, from, to, n, page);
    bool begin = true;
    if (kv == LAM_KV_I8) from = from / 2 * 2;
    for (; from <= to; from += BLOCK, begin = false) {
        size_t end = to - from < BLOCK ? to : from + BLOCK - 1, i = 0;
        for (; i + width * DIMS <= d; i += width * DIMS) add_block(kv, v, d, i, from, end, begin, n, 2 * width, page);
        for (; i + DIMS <= d; i += DIMS) add_block(kv, v, d, i, from, end, begin, n, 2, page);
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
INLINE void attend(enum lam_kv_type kv, const struct lam_attention *a, size_t n)
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

INLINE void attend_n(enum lam_kv_type kv, const struct lam_attention *a)
{
    switch (a->n) {
    case 1: attend(kv, a, 1); break;
    case 2: attend(kv, a, 2); break;
    case 3: attend(kv, a, 3); break;
    case 4: attend(kv, a, 4); break;
    case 5: attend(kv, a, 5); break;
    case 6: attend(kv, a, 6); break;
    case 7: attend(kv, a, 7); break;
    default: attend(kv, a, 8); break;
    }
}

static void attend_f16(const struct lam_attention *a) { attend_n(LAM_KV_F16, a); }
static void attend_f32(const struct lam_attention *a) { attend_n(LAM_KV_F32, a); }
static void attend_i8(const struct lam_attention *a) { attend_n(LAM_KV_I8, a); }

/* attention of the kernel table. */
INLINE void attention(const struct lam_attention *a)
{
    switch (a->kv) {
    case LAM_KV_F16: attend_f16(a); break;
    case LAM_KV_F32: attend_f32(a); break;
    case LAM_KV_I8: attend_i8(a); break;
    }
}

#endif
