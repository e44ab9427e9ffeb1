#include "model/forward.h"
#include "adapter/factor.h"
#include "adapter/sparse.h"
#include "base/alloc.h"
#include "base/budget.h"
#include "kernels/math.h"
#include "model/attend.h"
#include "model/linear.h"
#include "model/rope.h"
#include "tensor/rows.h"
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
    struct lam_attend attend;
    const struct lam_overlay **overlays; /* [max_rows] */
    size_t *wanted;                      /* [max_rows]: rows whose logits are wanted, in order */
    atomic_bool *failed, *head_failed;   /* [max_rows]: of rows, of wanted rows */
    uint8_t *row_bytes;                  /* one embedding row in its stored type */
    /* the plan and layer at work */
    struct lam_row *rows;
    size_t n_rows, n_wanted;
    uint32_t layer;
    uint64_t n_plans;
};

static size_t round16(size_t n) { return (n + 15) & ~(size_t)15; }

static void release_buffers(struct lam_forward *f)
{
    float *floats[] = {f->x, f->h, f->q, f->k, f->v, f->mixed, f->gate, f->up, f->cosine[0], f->cosine[1], f->sine[0],
                       f->sine[1]};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) lam_budget_free(floats[i]);
    lam_free(f->overlays);
    lam_free(f->wanted);
    lam_free(f->failed);
    lam_free(f->head_failed);
    lam_free(f->row_bytes);
}

void lam_forward_free(struct lam_forward *f)
{
    if (!f) return;
    release_buffers(f);
    lam_linear_scratch_release(&f->linear);
    lam_attend_release(&f->attend);
    lam_free(f);
}

/* [max_rows, stride] of each of these. */
static lam_code reserve_rows(struct lam_forward *f, lam_error *err)
{
    size_t half = f->model->config.head_dim / 2;
    const struct { float **block; size_t stride; } rows[] = {
        {&f->x, f->d_stride}, {&f->h, f->d_stride}, {&f->q, f->q_stride}, {&f->k, f->kv_stride}, {&f->v, f->kv_stride},
        {&f->mixed, f->q_stride}, {&f->gate, f->ff_stride}, {&f->up, f->ff_stride}, {&f->cosine[0], half}, {&f->cosine[1], half},
        {&f->sine[0], half}, {&f->sine[1], half}};
    for (size_t i = 0, bytes; i < sizeof rows / sizeof *rows; i++) {
        if (!lam_mul_size(rows[i].stride, sizeof(float), &bytes)) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a row of %zu", rows[i].stride);
        LAM_TRY(lam_budget_alloc(f->linear.budget, f->max_rows, bytes, "rows of the forward pass", rows[i].block, err));
    }
    return LAM_OK;
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
    f->linear.budget = model->targets.budget;
    lam_code code = reserve_rows(f, err);
    if (code != LAM_OK) {
        lam_forward_free(f);
        return code;
    }
    f->row_bytes = lam_alloc(model->embedding.cols, sizeof(float)); /* no stored row is longer */
    f->overlays = lam_alloc(max_rows, sizeof *f->overlays);
    f->wanted = lam_alloc(max_rows, sizeof *f->wanted);
    f->failed = lam_alloc(max_rows, sizeof *f->failed);
    f->head_failed = lam_alloc(max_rows, sizeof *f->head_failed);
    bool ok = lam_attend_init(&f->attend, c, pool, kernels, max_rows, NULL) == LAM_OK;
    f->attend.budget = model->targets.budget;
    if (!ok || !f->row_bytes || !f->overlays || !f->wanted || !f->failed || !f->head_failed) {
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

/* x += B (c·A of the token). */
static void embed_low_rank(const struct lam_overlay_op *op, uint32_t token, size_t n, float *x)
{
    const struct lam_lora *m = &op->module->lora;
    const float *a = m->embedding_a + (size_t)token * m->rank;
    for (size_t i = 0; i < n; i += LAM_TILE_ROWS) {
        const float *tile = lam_factor_float_tile(&m->b, i / LAM_TILE_ROWS);
        for (size_t r = 0; r < LAM_TILE_ROWS && i + r < n; r++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < m->rank; k++) sum = sum + tile[k * LAM_TILE_ROWS + r] * (op->scale * a[k]);
            x[i + r] = x[i + r] + sum;
        }
    }
}

/* other[n] is scratch. */
static void embed_adapters(struct lam_forward *f, const struct lam_overlay_slot *slot, uint32_t token, float *x, float *other)
{
    size_t n = f->model->config.d_model;
    for (size_t o = 0; o < slot->n_ops; o++) {
        const struct lam_overlay_op *op = &slot->ops[o];
        bool dense = op->method == LAM_METHOD_DENSE;
        if (op->method == LAM_METHOD_LORA) {
            embed_low_rank(op, token, n, x);
        } else if (op->method == LAM_METHOD_SPARSE) {
            lam_sparse_add_row(op->module, token, op->scale, x, 1);
        } else {
            lam_matrix_row(dense ? &op->module->dense : &op->module->weight, token, f->row_bytes, other);
            for (size_t k = 0; k < n; k++) x[k] = x[k] + op->scale * (dense ? other[k] : other[k] - x[k]);
        }
    }
}

static void embed(struct lam_forward *f, size_t i)
{
    const struct lam_config *c = &f->model->config;
    const struct lam_row *row = &f->rows[i];
    const struct lam_overlay_slot *slot = lam_overlay_slot(row->overlay, f->model->embedding.target);
    float *x = f->x + i * f->d_stride;
    lam_matrix_row(slot->weight ? slot->weight : &f->model->embedding, row->token, f->row_bytes, x);
    embed_adapters(f, slot, row->token, x, f->h);
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

/* The norm's weights for a row: its overlay's, or the base's. */
static const float *norm_weights(const struct lam_norm *norm, const struct lam_row *row)
{
    if (!norm->w) return NULL;
    const float *own = lam_overlay_slot(row->overlay, norm->target)->vector;
    return own ? own : norm->w;
}

static const struct lam_layer *layer_of(const struct lam_forward *f) { return &f->model->layers[f->layer]; }

static void attn_norm(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    (void)thread;
    f->kernels->rms_norm(f->x + i * f->d_stride, norm_weights(&layer_of(f)->attn_norm, &f->rows[i]), c->d_model, c->norm_eps, f->h + i * f->d_stride);
}

static void ffn_norm(void *context, size_t i, unsigned thread)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    (void)thread;
    f->kernels->rms_norm(f->x + i * f->d_stride, norm_weights(&layer_of(f)->ffn_norm, &f->rows[i]), c->d_model, c->norm_eps, f->h + i * f->d_stride);
}

/* x += h, through the norm that some architectures put after a block. */
static void add_block(struct lam_forward *f, size_t i, const struct lam_norm *after)
{
    const struct lam_config *c = &f->model->config;
    float *x = f->x + i * f->d_stride, *h = f->h + i * f->d_stride;
    const float *norm = norm_weights(after, &f->rows[i]);
    if (norm) f->kernels->rms_norm(h, norm, c->d_model, c->norm_eps, h);
    for (size_t k = 0; k < c->d_model; k++) x[k] = x[k] + h[k];
}

static void add_attention(void *context, size_t i, unsigned thread)
{
    (void)thread;
    add_block(context, i, &layer_of(context)->post_attn_norm);
}

static void add_ffn(void *context, size_t i, unsigned thread)
{
    (void)thread;
    add_block(context, i, &layer_of(context)->post_ffn_norm);
}

/* act(gate) · up for a run of columns of every row, as soon as both are there. */
static void activate(void *context, size_t first, size_t n, float *gate, size_t gate_stride)
{
    const struct lam_forward *f = context;
    for (size_t i = 0; i < f->n_rows; i++) {
        float *g = gate + i * gate_stride;
        const float *up = f->up + i * f->ff_stride + first;
        if (f->model->config.activation == LAM_SILU) f->kernels->silu_mul(g, up, n, g);
        else f->kernels->gelu_mul(g, up, n, g);
    }
}

static void rotate_heads(struct lam_forward *f, float *heads, uint32_t n, const float *norm, const float *cosine, const float *sine)
{
    const struct lam_config *c = &f->model->config;
    for (uint32_t h = 0; h < n; h++) {
        float *x = heads + (size_t)h * c->head_dim;
        if (norm) f->kernels->rms_norm(x, norm, c->head_dim, c->norm_eps, x);
        f->kernels->rotate(x, c->head_dim / 2, cosine, sine, c->rope_interleaved);
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
    rotate_heads(f, f->q + i * f->q_stride, c->n_heads, norm_weights(&l->q_norm, row), cosine, sine);
    rotate_heads(f, k, c->n_kv_heads, norm_weights(&l->k_norm, row), cosine, sine);
    size_t page = row->position / LAM_KV_PAGE, at = row->position % LAM_KV_PAGE;
    for (uint32_t h = 0; h < c->n_kv_heads; h++)
        if (!f->kernels->kv_store(row->kv->type, c->head_dim, k + (size_t)h * c->head_dim, v + (size_t)h * c->head_dim, at,
                                  lam_kv_k(row->kv, page, f->layer, h), lam_kv_v(row->kv, page, f->layer, h)))
            f->failed[i] = true;
}

static lam_code linears(struct lam_forward *f, const float *x, size_t x_stride, const struct lam_linear *list, size_t n,
                        lam_linear_done_fn done, lam_error *err)
{
    struct lam_linear_call call = {.x = x, .x_stride = x_stride, .n_rows = f->n_rows, .overlays = f->overlays, .linears = list, .n = n,
                                   .failed = f->failed, .done = done, .context = f};
    return lam_linear_run(&f->linear, f->pool, f->kernels, &call, err);
}

static lam_code attention_block(struct lam_forward *f, lam_error *err)
{
    const struct lam_layer *l = layer_of(f);
    each_row(f, attn_norm);
    struct lam_linear qkv[] = {{&l->q, l->q_bias, f->q, f->q_stride},
                               {&l->k, l->k_bias, f->k, f->kv_stride},
                               {&l->v, l->v_bias, f->v, f->kv_stride}};
    LAM_TRY(linears(f, f->h, f->d_stride, qkv, 3, NULL, err));
    each_row(f, rotate_and_store);
    lam_attend_run(&f->attend, f->layer, f->q, f->mixed, f->q_stride);
    struct lam_linear o = {&l->o, l->o_bias, f->h, f->d_stride};
    LAM_TRY(linears(f, f->mixed, f->q_stride, &o, 1, NULL, err));
    each_row(f, add_attention);
    return LAM_OK;
}

static lam_code ffn_block(struct lam_forward *f, lam_error *err)
{
    const struct lam_layer *l = layer_of(f);
    each_row(f, ffn_norm);
    struct lam_linear gate_up[] = {{&l->gate, l->gate_bias, f->gate, f->ff_stride}, {&l->up, l->up_bias, f->up, f->ff_stride}};
    LAM_TRY(linears(f, f->h, f->d_stride, gate_up, 2, activate, err));
    struct lam_linear down = {&l->down, l->down_bias, f->h, f->d_stride};
    LAM_TRY(linears(f, f->gate, f->ff_stride, &down, 1, NULL, err));
    each_row(f, add_ffn);
    return LAM_OK;
}

/* True if every one of n floats is finite: 0 times another is not a number. */
static bool all_finite(const float *x, size_t n)
{
    float lane[16] = {0}, sum = 0.0f;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 16; k++) lane[k] = lane[k] + x[i + k] * 0.0f;
    for (; i < n; i++) sum = sum + x[i] * 0.0f;
    for (size_t k = 0; k < 16; k++) sum = sum + lane[k];
    return sum == 0.0f;
}

/* The last norm of every row, so that a row's end doesn't hang on who wants its logits; the wanted rows come first in h. */
static size_t output_norms(struct lam_forward *f)
{
    const struct lam_config *c = &f->model->config;
    size_t n_wanted = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        float *h = f->h + n_wanted * f->d_stride;
        f->kernels->rms_norm(f->x + i * f->d_stride, norm_weights(&f->model->output_norm, &f->rows[i]), c->d_model, c->norm_eps, h);
        if (!all_finite(h, c->d_model)) f->failed[i] = true;
        if (!f->rows[i].logits) continue;
        f->overlays[n_wanted] = f->rows[i].overlay;
        f->head_failed[n_wanted] = false;
        f->wanted[n_wanted++] = i;
    }
    return n_wanted;
}

/* Hands a run of logits of every wanted row to its owner. */
static void give_logits(void *context, size_t first, size_t n, float *y, size_t y_stride)
{
    struct lam_forward *f = context;
    const struct lam_config *c = &f->model->config;
    if (first + n > c->n_vocab) n = c->n_vocab - first;
    for (size_t w = 0; w < f->n_wanted; w++) {
        float *logits = y + w * y_stride;
        for (size_t k = 0; c->logit_softcap != 0.0f && k < n; k++)
            logits[k] = (float)((double)c->logit_softcap * lam_tanh64((double)logits[k] / (double)c->logit_softcap));
        if (!all_finite(logits, n)) atomic_store_explicit(&f->head_failed[w], true, memory_order_relaxed);
        memcpy(f->rows[f->wanted[w]].logits + first, logits, n * sizeof *logits);
    }
}

static lam_code head(struct lam_forward *f, lam_error *err)
{
    struct lam_linear output = {.w = &f->model->output};
    struct lam_linear_call call = {.x = f->h, .x_stride = f->d_stride, .n_rows = f->n_wanted, .overlays = f->overlays, .linears = &output,
                                   .n = 1, .failed = f->head_failed, .done = give_logits, .context = f};
    LAM_TRY(lam_linear_run(&f->linear, f->pool, f->kernels, &call, err));
    for (size_t w = 0; w < f->n_wanted; w++)
        if (f->head_failed[w]) f->failed[f->wanted[w]] = true;
    return LAM_OK;
}

static lam_code check_tokens(const struct lam_forward *f, lam_error *err)
{
    for (size_t i = 0; i < f->n_rows; i++)
        if (f->rows[i].token >= f->model->config.n_vocab)
            return LAM_RAISE(err, LAM_E_TOKEN, "token %u is outside the vocabulary of %u", f->rows[i].token, f->model->config.n_vocab);
    return LAM_OK;
}

uint64_t lam_forward_plans(const struct lam_forward *f) { return f->n_plans; }

lam_code lam_forward_run(struct lam_forward *f, struct lam_row *rows, size_t n_rows, lam_error *err)
{
    if (n_rows == 0 || n_rows > f->max_rows)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "a plan of %zu rows; 1 to %zu are possible", n_rows, f->max_rows);
    f->rows = rows;
    f->n_rows = n_rows;
    f->n_plans++;
    LAM_TRY(check_tokens(f, err));
    LAM_TRY(lam_attend_plan(&f->attend, rows, n_rows, err));
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
    f->n_wanted = output_norms(f);
    if (f->n_wanted) LAM_TRY(head(f, err));
    for (size_t i = 0; i < n_rows; i++) rows[i].failed = f->failed[i];
    return LAM_OK;
}
