/* Attention of the queries of one KV head with SIMD128; docs/numeric.md "Attention". A K tile and a run of V are read once for a
 * block of queries. Positions that one query does not see and another does weigh +0: attention_scalar.c says why that is the same. */
#include "kernels/kv_page.h"
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "kernels/simd128.h"
#include "tensor/half.h"

#include <math.h>

#define LANES 4
#define QUARTERS 4
#define PAIR 2        /* quarters of a K tile, or runs of four dimensions, that a block of queries shares in registers */
#define QUERY_BLOCK 4
#define PAGE_TILES (LAM_KV_PAGE / LAM_KV_TILE)

/* A query's q·scale, for I8 as the even and the odd codes of each unit of four dimensions. */
union scaled {
    float q[LAM_ATTENTION_DIM];
    struct {
        int32_t even[LAM_ATTENTION_DIM / 4], odd[LAM_ATTENTION_DIM / 4];
        float scale[LAM_ATTENTION_DIM / LAM_GROUP];
    } code;
};

/* The part of one page that some query sees, as positions within it, and what each query makes of it. */
struct part {
    size_t begin, from, to;                            /* begin: position of the page's first */
    float weight[LAM_ATTENTION_QUERIES][LAM_KV_PAGE];
    int16_t rounded[LAM_ATTENTION_QUERIES][LAM_KV_PAGE]; /* I8: weight · scale, in units of back */
    float back[LAM_ATTENTION_QUERIES];
};

/* 4 elements of an F16 or F32 part. */
INLINE v128_t load_kv(enum lam_kv_type kv, const uint8_t *p) { return kv == LAM_KV_F32 ? wasm_v128_load(p) : load_f16(p); }
INLINE size_t kv_size(enum lam_kv_type kv) { return kv == LAM_KV_F32 ? 4 : 2; }

/* False if q·scale can't be quantised. */
static bool scale_query(const struct lam_attention *a, const float *q, union scaled *out)
{
    float scaled[LAM_ATTENTION_DIM];
    for (size_t i = 0; i < a->d; i++) scaled[i] = q[i] * a->scale;
    if (a->kv != LAM_KV_I8) {
        memcpy(out->q, scaled, a->d * sizeof *scaled);
        return true;
    }
    int8_t code[LAM_ATTENTION_DIM];
    int32_t half[2 * LAM_ATTENTION_DIM / LAM_GROUP];
    bool finite = lam_quantise8_simd128(scaled, a->d, code, out->code.scale, half);
    for (size_t i = 0; i < a->d; i += 16) {
        v128_t v = wasm_v128_load(code + i);
        wasm_v128_store(&out->code.even[i / 4], wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8));
        wasm_v128_store(&out->code.odd[i / 4], wasm_i16x8_shr(v, 8));
    }
    return finite;
}

/* s[n][PAIR] += scores of the positions of quarters first and first + 1 of a K tile; n is a constant. */
INLINE void score_float(enum lam_kv_type kv, const uint8_t *k, size_t d, size_t first, const union scaled *q, size_t n,
                        v128_t s[QUERY_BLOCK][PAIR])
{
    k += first * LANES * kv_size(kv);
#pragma clang loop unroll(disable)
    for (size_t i = 0; i < d; i++, k += LAM_KV_TILE * kv_size(kv)) {
        v128_t k0 = load_kv(kv, k), k1 = load_kv(kv, k + LANES * kv_size(kv));
#pragma clang loop unroll(full)
        for (size_t j = 0; j < n; j++) {
            v128_t v = wasm_v128_load32_splat(&q[j].q[i]);
            s[j][0] = wasm_f32x4_add(s[j][0], wasm_f32x4_mul(v, k0));
            s[j][1] = wasm_f32x4_add(s[j][1], wasm_f32x4_mul(v, k1));
        }
    }
}

/* sum plus the products of a unit, 256 times too large. */
INLINE v128_t add_dots(v128_t sum, v128_t k, v128_t even, v128_t odd)
{
    sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_i16x8_shl(k, 8), even));
    return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_v128_and(k, wasm_i16x8_splat((int16_t)0xff00)), odd));
}

/* The same for I8: codes and scales of the tile. */
INLINE void score_int(const int8_t *code, const float *scale, size_t d, size_t first, const union scaled *q, size_t n,
                      v128_t s[QUERY_BLOCK][PAIR])
{
    size_t units = lam_kv_i8_d4(d) / 4;
#pragma clang loop unroll(disable)
    for (size_t g = 0; g < lam_kv_groups(d); g++) {
        size_t to = (g + 1) * LAM_GROUP / 4 < units ? (g + 1) * LAM_GROUP / 4 : units;
        v128_t sum[QUERY_BLOCK][PAIR];
#pragma clang loop unroll(full)
        for (size_t j = 0; j < n; j++) sum[j][0] = sum[j][1] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
        for (size_t u = g * LAM_GROUP / 4; u < to; u++) {
            const int8_t *at = code + u * 4 * LAM_KV_TILE + first * 16;
            v128_t k0 = wasm_v128_load(at), k1 = wasm_v128_load(at + 16);
#pragma clang loop unroll(full)
            for (size_t j = 0; j < n; j++) {
                v128_t even = wasm_v128_load32_splat(&q[j].code.even[u]), odd = wasm_v128_load32_splat(&q[j].code.odd[u]);
                sum[j][0] = add_dots(sum[j][0], k0, even, odd);
                sum[j][1] = add_dots(sum[j][1], k1, even, odd);
            }
        }
#pragma clang loop unroll(full)
        for (size_t j = 0; j < n; j++)
#pragma clang loop unroll(full)
            for (size_t i = 0; i < PAIR; i++) {
                v128_t both = wasm_f32x4_mul(wasm_v128_load(scale + g * LAM_KV_TILE + (first + i) * LANES),
                                             wasm_f32x4_splat(q[j].code.scale[g]));
                v128_t p = wasm_f32x4_convert_i32x4(wasm_i32x4_shr(sum[j][i], 8));
                s[j][i] = wasm_f32x4_add(s[j][i], wasm_f32x4_mul(p, both));
            }
    }
}

/* Scores of n queries (a constant) from query `at` on, at every position of K tiles from .. to. */
INLINE void score_queries(enum lam_kv_type kv, const struct lam_attention *a, const union scaled *q, size_t from, size_t to,
                          size_t at, size_t n)
{
    for (size_t t = from; t <= to; t++)
#pragma clang loop unroll(disable)
        for (size_t first = 0; first < QUARTERS; first += PAIR) {
            const uint8_t *page = a->k_pages[t / PAGE_TILES];
            size_t tile = t % PAGE_TILES;
            v128_t s[QUERY_BLOCK][PAIR];
#pragma clang loop unroll(full)
            for (size_t j = 0; j < n; j++) s[j][0] = s[j][1] = wasm_f32x4_splat(0.0f);
            if (kv == LAM_KV_I8)
                score_int(lam_kv_i8_k(page, a->d, tile), lam_kv_i8_k_scale(page, a->d, tile), a->d, first, q + at, n, s);
            else
                score_float(kv, page + tile * LAM_KV_TILE * a->d * kv_size(kv), a->d, first, q + at, n, s);
#pragma clang loop unroll(full)
            for (size_t j = 0; j < n; j++)
#pragma clang loop unroll(full)
                for (size_t i = 0; i < PAIR; i++)
                    wasm_v128_store(a->scores + (at + j) * a->scores_stride + t * LAM_KV_TILE + (first + i) * LANES, s[j][i]);
        }
}

/* Soft-caps a query's scores and gives the largest. */
static float finish_scores(const struct lam_attention *a, const struct lam_query *query, float *score)
{
    size_t p = query->first;
    for (size_t i = p; a->softcap != 0.0f && i <= query->last; i++)
        score[i] = (float)((double)a->softcap * lam_tanh64((double)score[i] / (double)a->softcap));
    float m = score[p], each[LANES];
    v128_t lanes = wasm_f32x4_splat(m);
    for (; p + LANES - 1 <= query->last; p += LANES) lanes = wasm_f32x4_pmax(lanes, wasm_v128_load(score + p));
    wasm_v128_store(each, lanes);
    for (size_t i = 0; i < LANES; i++)
        if (each[i] > m) m = each[i];
    for (; p <= query->last; p++)
        if (score[p] > m) m = score[p];
    return m;
}

/* All ones in the lanes of the four positions from p on that lie in from..to. */
INLINE v128_t visible(size_t p, size_t from, size_t to)
{
    v128_t index = wasm_i32x4_add(wasm_i32x4_const(0, 1, 2, 3), wasm_i32x4_splat((int32_t)p));
    return wasm_v128_and(wasm_i32x4_ge(index, wasm_i32x4_splat((int32_t)from)), wasm_i32x4_le(index, wasm_i32x4_splat((int32_t)to)));
}

/* One query's weights in the part's tiles, 0 at what it does not see; their sum by lanes and tree. */
static float part_weights(const struct lam_query *query, const float *score, float m, const struct part *part, float *weight)
{
    v128_t lane[QUARTERS];
    for (size_t c = 0; c < QUARTERS; c++) lane[c] = wasm_f32x4_splat(0.0f);
    for (size_t tile = part->from / LAM_KV_TILE * LAM_KV_TILE; tile <= part->to; tile += LAM_KV_TILE)
#pragma clang loop unroll(full)
        for (size_t c = 0; c < QUARTERS; c++) {
            size_t p = tile + c * LANES;
            v128_t e = wasm_f32x4_sub(wasm_v128_load(score + part->begin + p), wasm_f32x4_splat(m));
            v128_t w = wasm_v128_andnot(exp4(e), wasm_f32x4_lt(e, wasm_f32x4_splat(-64.0f)));
            w = wasm_v128_and(w, visible(part->begin + p, query->first, query->last));
            lane[c] = wasm_f32x4_add(lane[c], w);
            wasm_v128_store(weight + p, w);
        }
    return tree16(lane);
}

/* I8: weights times the positions' scales, as integers up to 32767. */
static void round_weights(const float *scale, const float *weight, const struct part *part, int16_t *rounded, float *back)
{
    const v128_t zero = wasm_f32x4_splat(0.0f), round = wasm_f32x4_splat(12582912.0f);
    size_t from = part->from / LAM_KV_TILE * LAM_KV_TILE;
    float w[LAM_KV_PAGE], each[LANES], c = 0.0f;
    v128_t largest = zero;
    for (size_t p = from; p <= part->to; p += LANES) {
        v128_t v = wasm_v128_load(weight + p); /* where it is 0 the scale may be that of nothing */
        v = wasm_v128_and(wasm_f32x4_mul(v, wasm_v128_load(scale + p)), wasm_f32x4_gt(v, zero));
        largest = wasm_f32x4_pmax(largest, v);
        wasm_v128_store(w + p, v);
    }
    wasm_v128_store(each, largest);
    for (size_t i = 0; i < LANES; i++)
        if (each[i] > c) c = each[i];
    float inverse = c < 0x1p-100f ? 0.0f : 32767.0f / c;
    *back = c < 0x1p-100f ? 0.0f : c / 32767.0f;
    for (size_t p = from; p <= part->to; p += 2 * LANES) {
        v128_t low = wasm_f32x4_mul(wasm_v128_load(w + p), wasm_f32x4_splat(inverse));
        v128_t high = wasm_f32x4_mul(wasm_v128_load(w + p + LANES), wasm_f32x4_splat(inverse));
        low = wasm_i32x4_sub(wasm_f32x4_add(low, round), round);
        high = wasm_i32x4_sub(wasm_f32x4_add(high, round), round);
        wasm_v128_store(rounded + p, wasm_i16x8_narrow_i32x4(low, high));
    }
}

/* out[n_runs · 4] of n queries from `at` on += Σ weight·v over the part, in order, from dimension i on; n and n_runs are constants. */
INLINE void add_floats(enum lam_kv_type kv, const struct lam_attention *a, const uint8_t *values, const struct part *part, size_t i,
                       size_t n_runs, size_t at, size_t n)
{
    const uint8_t *v = values + (part->from * a->d + i) * kv_size(kv);
    v128_t sum[QUERY_BLOCK][PAIR], run[PAIR];
#pragma clang loop unroll(full)
    for (size_t j = 0; j < n; j++) sum[j][0] = sum[j][1] = wasm_f32x4_splat(0.0f);
#pragma clang loop unroll(disable)
    for (size_t p = part->from; p <= part->to; p++, v += a->d * kv_size(kv)) {
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_runs; r++) run[r] = load_kv(kv, v + r * LANES * kv_size(kv));
#pragma clang loop unroll(full)
        for (size_t j = 0; j < n; j++) {
            v128_t w = wasm_v128_load32_splat(&part->weight[at + j][p]);
#pragma clang loop unroll(full)
            for (size_t r = 0; r < n_runs; r++) sum[j][r] = wasm_f32x4_add(sum[j][r], wasm_f32x4_mul(w, run[r]));
        }
    }
#pragma clang loop unroll(full)
    for (size_t j = 0; j < n; j++)
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_runs; r++) {
            float *out = a->query[at + j].out + i + r * LANES;
            wasm_v128_store(out, wasm_f32x4_add(wasm_v128_load(out), sum[j][r]));
        }
}

/* The same for I8: pairs of positions. */
INLINE void add_ints(const struct lam_attention *a, const int8_t *values, const struct part *part, size_t i, size_t n_runs,
                     size_t at, size_t n)
{
    const int8_t *v = values + (part->from / 2 * a->d + i) * 2;
    v128_t sum[QUERY_BLOCK][PAIR], run[PAIR];
#pragma clang loop unroll(full)
    for (size_t j = 0; j < n; j++) sum[j][0] = sum[j][1] = wasm_i32x4_splat(0);
#pragma clang loop unroll(disable)
    for (size_t p = part->from / 2 * 2; p <= part->to; p += 2, v += 2 * a->d) {
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_runs; r++) run[r] = wasm_i16x8_load8x8(v + r * 2 * LANES);
#pragma clang loop unroll(full)
        for (size_t j = 0; j < n; j++) {
            v128_t w = wasm_v128_load32_splat(&part->rounded[at + j][p]);
#pragma clang loop unroll(full)
            for (size_t r = 0; r < n_runs; r++) sum[j][r] = wasm_i32x4_add(sum[j][r], wasm_i32x4_dot_i16x8(w, run[r]));
        }
    }
#pragma clang loop unroll(full)
    for (size_t j = 0; j < n; j++)
#pragma clang loop unroll(full)
        for (size_t r = 0; r < n_runs; r++) {
            float *out = a->query[at + j].out + i + r * LANES;
            v128_t scaled = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(sum[j][r]), wasm_f32x4_splat(part->back[at + j]));
            wasm_v128_store(out, wasm_f32x4_add(wasm_v128_load(out), scaled));
        }
}

/* The same for one dimension and query. */
static void add_one(enum lam_kv_type kv, const struct lam_attention *a, const void *values, const struct part *part, size_t i, size_t at)
{
    float total = 0.0f;
    int32_t sum = 0;
    for (size_t p = part->from; p <= part->to; p++) {
        if (kv == LAM_KV_I8) {
            sum += part->rounded[at][p] * ((const int8_t *)values)[p / 2 * 2 * a->d + i * 2 + p % 2];
        } else {
            size_t here = p * a->d + i;
            float v = kv == LAM_KV_F32 ? ((const float *)values)[here] : lam_f16_to_f32(((const uint16_t *)values)[here]);
            total = total + part->weight[at][p] * v;
        }
    }
    a->query[at].out[i] = a->query[at].out[i] + (kv == LAM_KV_I8 ? (float)sum * part->back[at] : total);
}

/* All dimensions of n queries (a constant) from `at` on. */
INLINE void add_values(enum lam_kv_type kv, const struct lam_attention *a, const void *values, const struct part *part, size_t at, size_t n)
{
    size_t i = 0;
    for (; i + PAIR * LANES <= a->d; i += PAIR * LANES)
        if (kv == LAM_KV_I8) add_ints(a, values, part, i, PAIR, at, n);
        else add_floats(kv, a, values, part, i, PAIR, at, n);
    for (; i + LANES <= a->d; i += LANES)
        if (kv == LAM_KV_I8) add_ints(a, values, part, i, 1, at, n);
        else add_floats(kv, a, values, part, i, 1, at, n);
    for (; i < a->d; i++)
        for (size_t j = 0; j < n; j++) add_one(kv, a, values, part, i, at + j);
}

/* kv is a constant. */
INLINE void attention(enum lam_kv_type kv, const struct lam_attention *a)
{
    union scaled q[LAM_ATTENTION_QUERIES];
    bool finite[LAM_ATTENTION_QUERIES];
    float m[LAM_ATTENTION_QUERIES], l[LAM_ATTENTION_QUERIES] = {0};
    size_t from = a->query[0].first, to = a->query[0].last, at = 0;
    struct part part;
    for (size_t j = 0; j < a->n; j++) {
        const struct lam_query *query = &a->query[j];
        if (query->first < from) from = query->first;
        if (query->last > to) to = query->last;
        finite[j] = scale_query(a, query->q, &q[j]);
        memset(query->out, 0, a->d * sizeof *query->out);
    }
    for (; at + 4 <= a->n; at += 4) score_queries(kv, a, q, from / LAM_KV_TILE, to / LAM_KV_TILE, at, 4);
    for (; at + 2 <= a->n; at += 2) score_queries(kv, a, q, from / LAM_KV_TILE, to / LAM_KV_TILE, at, 2);
    if (at < a->n) score_queries(kv, a, q, from / LAM_KV_TILE, to / LAM_KV_TILE, at, 1);
    for (size_t j = 0; j < a->n; j++) m[j] = finish_scores(a, &a->query[j], a->scores + j * a->scores_stride);
    for (size_t page = from / LAM_KV_PAGE; page <= to / LAM_KV_PAGE; page++) {
        const void *values = a->v_pages[page];
        part.begin = page * LAM_KV_PAGE;
        part.from = part.begin > from ? 0 : from - part.begin;
        part.to = to - part.begin < LAM_KV_PAGE ? to - part.begin : LAM_KV_PAGE - 1;
        for (size_t j = 0; j < a->n; j++) {
            l[j] = l[j] + part_weights(&a->query[j], a->scores + j * a->scores_stride, m[j], &part, part.weight[j]);
            if (kv == LAM_KV_I8)
                round_weights(lam_kv_i8_v_scale(values, a->d), part.weight[j], &part, part.rounded[j], &part.back[j]);
        }
        for (at = 0; at + 4 <= a->n; at += 4) add_values(kv, a, values, &part, at, 4);
        for (; at + 2 <= a->n; at += 2) add_values(kv, a, values, &part, at, 2);
        if (at < a->n) add_values(kv, a, values, &part, at, 1);
    }
    for (size_t j = 0; j < a->n; j++)
        for (size_t i = 0; i < a->d; i++) a->query[j].out[i] = finite[j] ? a->query[j].out[i] / l[j] : NAN;
}

void lam_attention_simd128(const struct lam_attention *a)
{
    switch (a->kv) {
    case LAM_KV_F16: attention(LAM_KV_F16, a); break;
    case LAM_KV_F32: attention(LAM_KV_F32, a); break;
    case LAM_KV_I8: attention(LAM_KV_I8, a); break;
    }
}
