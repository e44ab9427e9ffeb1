/* The definition of attention; docs/numeric.md "Attention". Queries of a call are computed one by one.
 *
 * Why the variants may compute several queries over the union of their positions: a position that a query doesn't see weighs +0 there.
 * Its term (+0)·v is +0 or -0 as v is finite, in integers 0; the sums start from +0 and a rounded sum is -0 only if both terms are, so
 * no partial sum is ever -0, and x + ±0 = x for every x that is not -0. The same holds for l, whose terms are weights, and for a whole
 * page that a query doesn't see, which adds +0. */
#include "kernels/kv_page.h"
#include "kernels/math.h"
#include "kernels/scalar.h"
#include "tensor/half.h"
#include "tensor/group.h"

#include <math.h>

#define LANES LAM_KV_TILE

/* Element i of an F16 or F32 part. */
static float element(enum lam_kv_type type, const void *part, size_t i)
{
    return type == LAM_KV_F32 ? ((const float *)part)[i] : lam_f16_to_f32(((const uint16_t *)part)[i]);
}

/* One query's q·scale: floats, and for I8 also codes and scales by groups of 32. */
struct scaled {
    float q[LAM_ATTENTION_DIM];
    int8_t code[LAM_ATTENTION_DIM];
    float scale[LAM_ATTENTION_DIM / LAM_GROUP];
};

/* False if q·scale can't be quantised. */
static bool scale_query(const struct lam_attention *a, const struct lam_query *query, struct scaled *out)
{
    int32_t half[2 * LAM_ATTENTION_DIM / LAM_GROUP];
    for (size_t i = 0; i < a->d; i++) out->q[i] = query->q[i] * a->scale;
    return a->kv != LAM_KV_I8 || lam_quantise8_scalar(out->q, a->d, out->code, out->scale, half);
}

static float score_float(const struct lam_attention *a, const struct scaled *q, size_t position)
{
    const void *part = a->k_pages[position / LAM_KV_PAGE];
    size_t tile = position % LAM_KV_PAGE / LANES * LANES * a->d, lane = position % LANES;
    float s = 0.0f;
    for (size_t i = 0; i < a->d; i++) s = s + q->q[i] * element(a->kv, part, tile + i * LANES + lane);
    return s;
}

static float score_int(const struct lam_attention *a, const struct scaled *q, size_t position)
{
    const void *part = a->k_pages[position / LAM_KV_PAGE];
    size_t tile = position % LAM_KV_PAGE / LANES, lane = position % LANES;
    const int8_t *code = lam_kv_i8_k(part, a->d, tile);
    const float *scale = lam_kv_i8_k_scale(part, a->d, tile);
    float s = 0.0f;
    for (size_t g = 0; g * LAM_GROUP < a->d; g++) {
        int32_t p = 0;
        for (size_t i = g * LAM_GROUP; i < a->d && i < (g + 1) * LAM_GROUP; i++)
            p += code[i / 4 * 4 * LANES + lane * 4 + i % 4] * q->code[i];
        s = s + (float)p * (scale[g * LANES + lane] * q->scale[g]);
    }
    return s;
}

/* scores[first..last] and their maximum. */
static float scores(const struct lam_attention *a, const struct lam_query *query, const struct scaled *q, float *score)
{
    float m = 0.0f;
    for (size_t p = query->first; p <= query->last; p++) {
        float s = a->kv == LAM_KV_I8 ? score_int(a, q, p) : score_float(a, q, p);
        if (a->softcap != 0.0f) s = (float)((double)a->softcap * lam_tanh64((double)s / (double)a->softcap));
        if (p == query->first || s > m) m = s;
        score[p] = s;
    }
    return m;
}

/* out[d] += Σ weight·v over positions from..to of one V part. */
static void add_values_float(const struct lam_attention *a, const void *part, const float *weight, size_t from, size_t to, float *out)
{
    for (size_t i = 0; i < a->d; i++) {
        float sum = 0.0f;
        for (size_t p = from; p <= to; p++) sum = sum + weight[p] * element(a->kv, part, p * a->d + i);
        out[i] = out[i] + sum;
    }
}

static void add_values_int(const struct lam_attention *a, const void *part, const float *weight, size_t from, size_t to, float *out)
{
    const int8_t *code = part;
    const float *scale = lam_kv_i8_v_scale(part, a->d);
    float w[LAM_KV_PAGE], c = 0.0f;
    int32_t rounded[LAM_KV_PAGE];
    for (size_t p = from; p <= to; p++) {
        w[p] = weight[p] * scale[p];
        if (w[p] > c) c = w[p];
    }
    if (c < 0x1p-100f) return;
    float inverse = 32767.0f / c, back = c / 32767.0f;
    for (size_t p = from; p <= to; p++) rounded[p] = w[p] > 0.0f ? lam_round_even(w[p] * inverse) : 0;
    for (size_t i = 0; i < a->d; i++) {
        int32_t sum = 0; /* below 32767·127·256 < 2^31 */
        for (size_t p = from; p <= to; p++) sum += rounded[p] * code[p / 2 * 2 * a->d + i * 2 + p % 2];
        out[i] = out[i] + (float)sum * back;
    }
}

static void attend(const struct lam_attention *a, const struct lam_query *query)
{
    struct scaled q;
    float weight[LAM_KV_PAGE], l = 0.0f;
    bool finite = scale_query(a, query, &q);
    float m = scores(a, query, &q, a->scores);
    for (size_t i = 0; i < a->d; i++) query->out[i] = 0.0f;
    for (size_t page = query->first / LAM_KV_PAGE; page <= query->last / LAM_KV_PAGE; page++) {
        size_t begin = page * LAM_KV_PAGE, from = begin > query->first ? 0 : query->first - begin;
        size_t to = query->last - begin < LAM_KV_PAGE ? query->last - begin : LAM_KV_PAGE - 1;
        float lane[LANES] = {0};
        for (size_t p = from; p <= to; p++) {
            float e = a->scores[begin + p] - m;
            weight[p] = e < -64.0f ? 0.0f : lam_exp(e);
            lane[p % LANES] = lane[p % LANES] + weight[p];
        }
        l = l + lam_tree16(lane);
        if (a->kv == LAM_KV_I8) add_values_int(a, a->v_pages[page], weight, from, to, query->out);
        else add_values_float(a, a->v_pages[page], weight, from, to, query->out);
    }
    for (size_t i = 0; i < a->d; i++) query->out[i] = finite ? query->out[i] / l : NAN;
}

void lam_attention_scalar(const struct lam_attention *a)
{
    for (size_t i = 0; i < a->n; i++) attend(a, &a->query[i]);
}
