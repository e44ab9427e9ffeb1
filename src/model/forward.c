#include "model/forward.h"
#include "adapter/factor.h"
#include "base/alloc.h"
#include "kernels/math.h"
#include "model/linear.h"
#include "model/rope.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

#include <string.h>

struct lam_forward {
    const struct lam_model *model;
    struct lam_pool *pool;
    const struct lam_kernels *kernels;
    size_t max_rows;
    struct lam_linear_scratch linear;
    /* [max_rows, stride]; strides are rounded up to 16 so that kernels may write whole tiles */
    float *x, *h, *q, *k, *v, *mixed, *gate, *up;
    size_t d_stride, q_stride, kv_stride, ff_stride;
    float *cosine[2], *sine[2]; /* [max_rows, head_dim/2] for global and local layers */
    float *scores;              /* [threads, scores_floats] */
    size_t scores_floats;
    const void **page_pointers; /* [threads, 2, max_pages] */
    size_t max_pages;
    float *logits;
    size_t logits_floats, logits_stride;
    const struct lam_overlay **overlays; /* [max_rows] */
    bool *failed;                        /* [max_rows] */
    uint8_t *row_bytes;                  /* one embedding row in its stored type */
    /* the plan and layer at work */
    struct lam_row *rows;
    size_t n_rows;
    uint32_t layer;
};

static size_t round16(size_t n) { return (n + 15) & ~(size_t)15; }

static void release_buffers(struct lam_forward *f)
{
    float *floats[] = {f->x, f->h, f->q, f->k, f->v, f->mixed, f->gate, f->up, f->cosine[0], f->cosine[1], f->sine[0],
                       f->sine[1], f->scores, f->logits};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) lam_free_aligned(floats[i]);
    lam_free(f->page_pointers);
    lam_free(f->overlays);
    lam_free(f->failed);
    lam_free(f->row_bytes);
}

void lam_forward_free(struct lam_forward *f)
{
    if (!f) return;
    release_buffers(f);
    lam_linear_scratch_release(&f->linear);
    lam_free(f);
}

static float *rows_of(const struct lam_forward *f, size_t stride, bool *ok)
{
    size_t floats, bytes;
    float *block = NULL;
    if (lam_mul_size(f->max_rows, stride, &floats) && lam_mul_size(floats, sizeof *block, &bytes)) block = lam_alloc_aligned(bytes);
    *ok &= block != NULL;
    return block;
}

lam_code lam_forward_new(const struct lam_model *model, struct lam_pool *pool, const struct lam_kernels *kernels, size_t max_rows,
                         struct lam_forward **out, lam_error *err)
{
    *out = NULL;
    const struct lam_config *c = &model->config;
    struct lam_forward *f = lam_alloc(1, sizeof *f);
    if (!f) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a forward pass");
    *f = (struct lam_forward){.model = model, .pool = pool, .kernels = kernels, .max_rows = max_rows};
    f->d_stride = round16(c->d_model);
    f->q_stride = round16((size_t)c->n_heads * c->head_dim);
    f->kv_stride = round16((size_t)c->n_kv_heads * c->head_dim);
    f->ff_stride = round16(c->d_ff);
    f->logits_stride = round16(c->n_vocab);
    bool ok = max_rows >= 1;
    f->x = rows_of(f, f->d_stride, &ok);
    f->h = rows_of(f, f->d_stride, &ok);
    f->q = rows_of(f, f->q_stride, &ok);
    f->k = rows_of(f, f->kv_stride, &ok);
    f->v = rows_of(f, f->kv_stride, &ok);
    f->mixed = rows_of(f, f->q_stride, &ok);
    f->gate = rows_of(f, f->ff_stride, &ok);
    f->up = rows_of(f, f->ff_stride, &ok);
    for (int i = 0; i < 2; i++) {
        f->cosine[i] = rows_of(f, c->head_dim / 2, &ok);
        f->sine[i] = rows_of(f, c->head_dim / 2, &ok);
    }
    size_t row_bytes = 0;
    lam_dtype_row_bytes(model->embedding.dtype, model->embedding.cols, &row_bytes);
    f->row_bytes = lam_alloc(row_bytes, 1);
    f->overlays = lam_alloc(max_rows, sizeof *f->overlays);
    f->failed = lam_alloc(max_rows, sizeof *f->failed);
    if (!ok || !f->row_bytes || !f->overlays || !f->failed) {
        lam_forward_free(f);
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "a forward pass of %zu rows", max_rows);
    }
    *out = f;
    return LAM_OK;
}

/* fn for every row; few rows are not worth waking threads for. */
static void each_row(struct lam_forward *f, lam_pool_fn fn)
{
    if (f->n_rows >= 8) {
        lam_pool_run(f->pool, f->n_rows, fn, f);
        return;
    }
    for (size_t i = 0; i < f->n_rows; i++) fn(f, i, 0);
}

static void embed_adapters(struct lam_forward *f, const struct lam_row *row, float *x)
{
    const struct lam_overlay_slot *slot = lam_overlay_slot(row->overlay, f->model->embedding.target);
    for (size_t o = 0; o < slot->n_ops; o++) {
        const struct lam_lora *m = slot->ops[o].lora;
        const float *a = m->embedding_a + (size_t)row->token * m->rank;
        for (size_t i = 0; i < f->model->config.d_model; i += LAM_TILE_ROWS) {
            const float *tile = (const float *)(const void *)lam_factor_float_tile(&m->b, i / LAM_TILE_ROWS);
            for (size_t r = 0; r < LAM_TILE_ROWS && i + r < f->model->config.d_model; r++) {
                float sum = 0.0f;
                for (uint32_t k = 0; k < m->rank; k++) sum = sum + tile[k * LAM_TILE_ROWS + r] * (slot->ops[o].scale * a[k]);
                x[i + r] = x[i + r] + sum;
            }
        }
    }
}

static void embed(struct lam_forward *f, size_t i)
{
    const struct lam_config *c = &f->model->config;
    const struct lam_matrix *e = &f->model->embedding;
    const struct lam_row *row = &f->rows[i];
    float *x = f->x + i * f->d_stride;
    lam_untile_row(e->dtype, e->cols, e->tiles + row->token / LAM_TILE_ROWS * e->stride, row->token % LAM_TILE_ROWS, f->row_bytes);
    lam_decode_row(e->dtype, f->row_bytes, e->cols, x);
    embed_adapters(f, row, x);
    if (c->embedding_scale != 1.0f)
        for (size_t k = 0; k < c->d_model; k++) x[k] = x[k] * c->embedding_scale;
}

static void angles(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    size_t n = c->head_dim / 2;
    (void)thread;
    lam_rope_angles(&c->rope, f->model->inv_freq, n, f->rows[i].position, f->cosine[0] + i * n, f->sine[0] + i * n);
    if (c->window)
        lam_rope_angles(&c->rope_local, f->model->inv_freq_local, n, f->rows[i].position, f->cosine[1] + i * n, f->sine[1] + i * n);
}

static const struct lam_layer *layer_of(const struct lam_forward *f) { return &f->model->layers[f->layer]; }

static void attn_norm(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    (void)thread;
    f->kernels->rms_norm(f->x + i * f->d_stride, layer_of(f)->attn_norm, c->d_model, c->norm_eps, f->h + i * f->d_stride);
}

static void ffn_norm(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    (void)thread;
    f->kernels->rms_norm(f->x + i * f->d_stride, layer_of(f)->ffn_norm, c->d_model, c->norm_eps, f->h + i * f->d_stride);
}

/* x += h, through the norm that some architectures put after a block. */
static void add_block(struct lam_forward *f, size_t i, const float *norm)
{
    const struct lam_config *c = &f->model->config;
    float *x = f->x + i * f->d_stride, *h = f->h + i * f->d_stride;
    if (norm) f->kernels->rms_norm(h, norm, c->d_model, c->norm_eps, h);
    for (size_t k = 0; k < c->d_model; k++) x[k] = x[k] + h[k];
}

static void add_attention(void *context, size_t i, unsigned thread)
{
    (void)thread;
    add_block(context, i, layer_of(context)->post_attn_norm);
}

static void add_ffn(void *context, size_t i, unsigned thread)
{
    (void)thread;
    add_block(context, i, layer_of(context)->post_ffn_norm);
}

static void activate(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    float *gate = f->gate + i * f->ff_stride, *up = f->up + i * f->ff_stride;
    (void)thread;
    if (c->activation == LAM_SILU) f->kernels->silu_mul(gate, up, c->d_ff, gate);
    else f->kernels->gelu_mul(gate, up, c->d_ff, gate);
}

static void rotate_heads(struct lam_forward *f, float *heads, uint32_t n, const float *norm, const float *cosine, const float *sine)
{
    const struct lam_config *c = &f->model->config;
    for (uint32_t h = 0; h < n; h++) {
        float *x = heads + (size_t)h * c->head_dim;
        if (norm) f->kernels->rms_norm(x, norm, c->head_dim, c->norm_eps, x);
        lam_rope_rotate(x, c->head_dim / 2, cosine, sine, c->rope_interleaved);
    }
}

/* Norm and rotation of q and k, and the row's K and V into its cache. */
static void rotate_and_store(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    const struct lam_layer *l = layer_of(f);
    struct lam_row *row = &f->rows[i];
    int kind = c->local[f->layer];
    size_t n = c->head_dim / 2;
    (void)thread;
    const float *cosine = f->cosine[kind] + i * n, *sine = f->sine[kind] + i * n;
    float *k = f->k + i * f->kv_stride, *v = f->v + i * f->kv_stride;
    rotate_heads(f, f->q + i * f->q_stride, c->n_heads, l->q_norm, cosine, sine);
    rotate_heads(f, k, c->n_kv_heads, l->k_norm, cosine, sine);
    for (uint32_t h = 0; h < c->n_kv_heads; h++)
        if (!lam_kv_store(row->kv, f->layer, h, row->position, k + (size_t)h * c->head_dim, v + (size_t)h * c->head_dim))
            f->failed[i] = true;
}

/* Item: one head of one row. */
static void attend(void *context, size_t item, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    size_t i = item / c->n_heads, head = item % c->n_heads, position = f->rows[i].position;
    const struct lam_kv *kv = f->rows[i].kv;
    uint32_t kv_head = (uint32_t)(head / (c->n_heads / c->n_kv_heads));
    const void **k_pages = f->page_pointers + (size_t)thread * 2 * f->max_pages, **v_pages = k_pages + f->max_pages;
    size_t first = c->local[f->layer] && position + 1 > c->window ? position + 1 - c->window : 0;
    for (size_t p = first / LAM_KV_PAGE; p <= position / LAM_KV_PAGE; p++) {
        k_pages[p] = lam_kv_k(kv, p, f->layer, kv_head);
        v_pages[p] = lam_kv_v(kv, p, f->layer, kv_head);
    }
    struct lam_attention a = {
        .q = f->q + i * f->q_stride + head * c->head_dim,
        .kv_dtype = kv->dtype,
        .k_pages = k_pages,
        .v_pages = v_pages,
        .d = c->head_dim,
        .first = first,
        .last = position,
        .scale = c->attention_scale,
        .softcap = c->attention_softcap,
        .scores = f->scores + (size_t)thread * f->scores_floats,
        .out = f->mixed + i * f->q_stride + head * c->head_dim,
    };
    f->kernels->attention(&a);
}

static lam_code linears(struct lam_forward *f, const float *x, size_t x_stride, const struct lam_linear *list, size_t n, lam_error *err)
{
    return lam_linear_run(&f->linear, f->pool, f->kernels, x, x_stride, f->n_rows, f->overlays, list, n, f->failed, err);
}

static lam_code attention_block(struct lam_forward *f, lam_error *err)
{
    const struct lam_layer *l = layer_of(f);
    each_row(f, attn_norm);
    struct lam_linear qkv[] = {{&l->q, l->q_bias, f->q, f->q_stride},
                               {&l->k, l->k_bias, f->k, f->kv_stride},
                               {&l->v, l->v_bias, f->v, f->kv_stride}};
    LAM_TRY(linears(f, f->h, f->d_stride, qkv, 3, err));
    each_row(f, rotate_and_store);
    lam_pool_run(f->pool, f->n_rows * f->model->config.n_heads, attend, f);
    struct lam_linear o = {&l->o, l->o_bias, f->h, f->d_stride};
    LAM_TRY(linears(f, f->mixed, f->q_stride, &o, 1, err));
    each_row(f, add_attention);
    return LAM_OK;
}

static lam_code ffn_block(struct lam_forward *f, lam_error *err)
{
    const struct lam_layer *l = layer_of(f);
    each_row(f, ffn_norm);
    struct lam_linear gate_up[] = {{&l->gate, l->gate_bias, f->gate, f->ff_stride}, {&l->up, l->up_bias, f->up, f->ff_stride}};
    LAM_TRY(linears(f, f->h, f->d_stride, gate_up, 2, err));
    each_row(f, activate);
    struct lam_linear down = {&l->down, l->down_bias, f->h, f->d_stride};
    LAM_TRY(linears(f, f->gate, f->ff_stride, &down, 1, err));
    each_row(f, add_ffn);
    return LAM_OK;
}

/* True if every one of n floats is finite. */
static bool all_finite(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000;
}

/* The last norm of every row, so that a row's end doesn't hang on who wants its logits; the wanted rows come first in h. */
static void output_norms(struct lam_forward *f)
{
    const struct lam_config *c = &f->model->config;
    for (size_t i = 0, at = 0; i < f->n_rows; i++) {
        float *h = f->h + at * f->d_stride;
        f->kernels->rms_norm(f->x + i * f->d_stride, f->model->output_norm, c->d_model, c->norm_eps, h);
        f->failed[i] |= !all_finite(h, c->d_model);
        if (f->rows[i].want_logits) f->overlays[at++] = f->rows[i].overlay;
    }
}

static lam_code head(struct lam_forward *f, size_t n_wanted, lam_error *err)
{
    const struct lam_config *c = &f->model->config;
    size_t n_rows = f->n_rows;
    bool *failed = lam_alloc(n_wanted, sizeof *failed);
    if (!failed) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of logits", n_wanted);
    struct lam_linear output = {&f->model->output, NULL, f->logits, f->logits_stride};
    lam_code code = lam_linear_run(&f->linear, f->pool, f->kernels, f->h, f->d_stride, n_wanted, f->overlays, &output, 1, failed, err);
    for (size_t i = 0, w = 0; code == LAM_OK && i < n_rows; i++) {
        if (!f->rows[i].want_logits) continue;
        float *logits = f->logits + w * f->logits_stride;
        if (c->logit_softcap != 0.0f)
            for (size_t k = 0; k < c->n_vocab; k++)
                logits[k] = (float)((double)c->logit_softcap * lam_tanh64((double)logits[k] / (double)c->logit_softcap));
        f->failed[i] |= failed[w++] || !all_finite(logits, c->n_vocab);
    }
    lam_free(failed);
    return code;
}

static lam_code reserve(struct lam_forward *f, size_t *n_wanted, lam_error *err)
{
    unsigned n_threads = lam_pool_threads(f->pool);
    size_t last = 0;
    *n_wanted = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        const struct lam_row *row = &f->rows[i];
        if (row->token >= f->model->config.n_vocab)
            return LAM_RAISE(err, LAM_E_TOKEN, "token %u is outside the vocabulary of %u", row->token, f->model->config.n_vocab);
        if (row->position > last) last = row->position;
        *n_wanted += row->want_logits;
    }
    size_t pages = last / LAM_KV_PAGE + 1, scores = (pages + 1) * LAM_KV_PAGE;
    if (pages > f->max_pages) {
        lam_free_aligned(f->scores);
        lam_free(f->page_pointers);
        f->max_pages = 0;
        f->scores = lam_alloc_aligned(n_threads * scores * sizeof *f->scores);
        f->page_pointers = lam_alloc(n_threads * 2 * pages, sizeof *f->page_pointers);
        if (!f->scores || !f->page_pointers) return LAM_RAISE(err, LAM_E_NO_MEMORY, "attention over %zu positions", last + 1);
        f->max_pages = pages;
        f->scores_floats = scores;
    }
    size_t floats, bytes;
    if (!lam_mul_size(*n_wanted, f->logits_stride, &floats) || !lam_mul_size(floats, sizeof *f->logits, &bytes))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of logits", *n_wanted);
    if (floats > f->logits_floats) {
        lam_free_aligned(f->logits);
        f->logits_floats = 0;
        f->logits = lam_alloc_aligned(bytes);
        if (!f->logits) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of logits", *n_wanted);
        f->logits_floats = floats;
    }
    return LAM_OK;
}

lam_code lam_forward_run(struct lam_forward *f, struct lam_row *rows, size_t n_rows, const float **logits, size_t *stride,
                         lam_error *err)
{
    if (n_rows == 0 || n_rows > f->max_rows)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "a plan of %zu rows; 1 to %zu are possible", n_rows, f->max_rows);
    size_t n_wanted;
    f->rows = rows;
    f->n_rows = n_rows;
    LAM_TRY(reserve(f, &n_wanted, err));
    for (size_t i = 0; i < n_rows; i++) {
        f->overlays[i] = rows[i].overlay;
        f->failed[i] = false;
        embed(f, i);
    }
    each_row(f, angles);
    for (f->layer = 0; f->layer < f->model->config.n_layers; f->layer++) {
        LAM_TRY(attention_block(f, err));
        LAM_TRY(ffn_block(f, err));
    }
    output_norms(f);
    if (n_wanted) LAM_TRY(head(f, n_wanted, err));
    for (size_t i = 0; i < n_rows; i++) rows[i].failed = f->failed[i];
    *logits = f->logits;
    *stride = f->logits_stride;
    return LAM_OK;
}
