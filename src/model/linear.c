#include "model/linear.h"
#include "adapter/factor.h"
#include "base/alloc.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <string.h>

/* One operator applied to a run of rows that share an overlay. */
struct lam_delta {
    const struct lam_overlay_op *op;
    size_t linear, first, n_rows;
    float *t;                /* [n_rows, t_stride]: A x */
    size_t t_stride;         /* rank rounded up to 16 */
    struct lam_q14_rows tq;  /* w·s·A x in 14 bits; quantised factors only */
};

/* One call: what the items of the pool read. */
struct call {
    struct lam_linear_scratch *s;
    const struct lam_kernels *kernels;
    const float *x;
    size_t x_stride, n_rows, cols;
    const struct lam_overlay *const *overlays;
    const struct lam_linear *linears;
    size_t n;
    bool *failed;
    bool need_q8, need_q14;
    size_t chunk[3], first_item[4]; /* tiles per item of each linear, and its first item */
};

#define ITEM_BYTES ((size_t)64 << 10) /* weights that one item reads: enough to hide the claim, small enough to share out evenly */
#define SERIAL_WORK ((size_t)128 << 10) /* weight bytes times rows below which waking threads costs more than it saves */

static size_t tiles_of(uint32_t rows) { return ((size_t)rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS; }

static bool grow(void **block, size_t *have, size_t need, size_t size)
{
    if (need <= *have) return true;
    size_t bytes;
    void *fresh = lam_mul_size(need, size, &bytes) ? lam_alloc_aligned(bytes) : NULL;
    if (!fresh) return false;
    lam_free_aligned(*block);
    *block = fresh;
    *have = need;
    return true;
}

void lam_linear_scratch_release(struct lam_linear_scratch *s)
{
    lam_free_aligned(s->q8.q);
    lam_free_aligned(s->q8.scale);
    lam_free_aligned(s->q8.half);
    lam_free_aligned(s->q14.q);
    lam_free_aligned(s->q14.scale);
    lam_free_aligned(s->deltas);
    lam_free_aligned(s->t);
    lam_free_aligned(s->tq);
    lam_free_aligned(s->tq_scale);
    lam_free_aligned(s->tile_out);
    *s = (struct lam_linear_scratch){0};
}

/* Applies visit to every (linear, run of rows, operator) in order. */
typedef void (*delta_fn)(struct call *c, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op);

static void each_delta(struct call *c, delta_fn visit)
{
    for (size_t l = 0; l < c->n; l++)
        for (size_t first = 0, end; first < c->n_rows; first = end) {
            for (end = first + 1; end < c->n_rows && c->overlays[end] == c->overlays[first]; end++) {}
            const struct lam_overlay_slot *slot = lam_overlay_slot(c->overlays[first], c->linears[l].w->target);
            for (size_t o = 0; o < slot->n_ops; o++) visit(c, l, first, end - first, &slot->ops[o]);
        }
}

/* Needs of all deltas together, counted before anything is laid out. */
struct needs {
    struct call call;
    size_t n_deltas, t_floats, tq_codes;
};

static void count_delta(struct call *c, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op)
{
    struct needs *needs = (struct needs *)c;
    (void)linear, (void)first;
    size_t groups = (op->lora->rank + LAM_GROUP - 1) / LAM_GROUP;
    needs->n_deltas++;
    needs->t_floats += n_rows * tiles_of(op->lora->rank) * LAM_TILE_ROWS;
    needs->tq_codes += n_rows * groups * LAM_GROUP;
    c->need_q14 |= op->lora->a.quantised;
}

static void lay_delta(struct call *c, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op)
{
    struct lam_linear_scratch *s = c->s;
    const struct lam_delta *before = s->n_deltas ? &s->deltas[s->n_deltas - 1] : NULL;
    struct lam_delta *d = &s->deltas[s->n_deltas++];
    size_t groups = (op->lora->rank + LAM_GROUP - 1) / LAM_GROUP;
    *d = (struct lam_delta){.op = op, .linear = linear, .first = first, .n_rows = n_rows,
                            .t_stride = tiles_of(op->lora->rank) * LAM_TILE_ROWS};
    d->t = before ? before->t + before->n_rows * before->t_stride : s->t;
    d->tq = (struct lam_q14_rows){.q = before ? before->tq.q + before->tq.n_rows * before->tq.groups * LAM_GROUP : s->tq,
                                  .scale = before ? before->tq.scale + before->tq.n_rows * before->tq.groups : s->tq_scale,
                                  .n_rows = n_rows, .groups = groups};
}

static lam_code lay_deltas(struct call *c, lam_error *err)
{
    struct lam_linear_scratch *s = c->s;
    struct needs needs = {.call = *c};
    each_delta(&needs.call, count_delta);
    c->need_q14 = needs.call.need_q14;
    if (!grow((void **)&s->deltas, &s->max_deltas, needs.n_deltas, sizeof *s->deltas) ||
        !grow((void **)&s->t, &s->t_floats, needs.t_floats, sizeof *s->t))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapter operators", needs.n_deltas);
    if (needs.tq_codes > s->tq_codes) {
        size_t none = 0;
        if (!grow((void **)&s->tq_scale, &none, needs.tq_codes / LAM_GROUP, sizeof *s->tq_scale) ||
            !grow((void **)&s->tq, &s->tq_codes, needs.tq_codes, sizeof *s->tq))
            return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapter operators", needs.n_deltas);
    }
    s->n_deltas = 0;
    each_delta(c, lay_delta);
    return LAM_OK;
}

static lam_code reserve_inputs(struct call *c, unsigned n_threads, lam_error *err)
{
    struct lam_linear_scratch *s = c->s;
    size_t groups = (c->cols + LAM_GROUP - 1) / LAM_GROUP, n_groups = c->n_rows * groups, codes = n_groups * LAM_GROUP;
    size_t q8_scales = s->scales, q8_halves = s->scales * 2, q14_scales = s->scales;
    bool ok = grow((void **)&s->q8.q, &s->q8_codes, codes, sizeof *s->q8.q) &&
              grow((void **)&s->q14.q, &s->q14_codes, codes, sizeof *s->q14.q) &&
              grow((void **)&s->q8.scale, &q8_scales, n_groups, sizeof *s->q8.scale) &&
              grow((void **)&s->q14.scale, &q14_scales, n_groups, sizeof *s->q14.scale) &&
              grow((void **)&s->q8.half, &q8_halves, n_groups * 2, sizeof *s->q8.half) &&
              grow((void **)&s->tile_out, &s->tile_out_floats, n_threads * c->n_rows * LAM_TILE_ROWS, sizeof *s->tile_out);
    if (!ok) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of %zu", c->n_rows, c->cols);
    if (n_groups > s->scales) s->scales = n_groups;
    s->q8.n_rows = s->q14.n_rows = c->n_rows;
    s->q8.groups = s->q14.groups = groups;
    return LAM_OK;
}

static void quantise_row(void *context, size_t i, unsigned thread)
{
    struct call *c = context;
    (void)thread;
    const float *x = c->x + i * c->x_stride;
    size_t groups = c->s->q8.groups, at = i * groups;
    bool ok = true;
    if (c->need_q8) ok &= c->kernels->quantise8(x, c->cols, c->s->q8.q + at * LAM_GROUP, c->s->q8.scale + at, c->s->q8.half + 2 * at);
    if (c->need_q14) ok &= c->kernels->quantise14(x, c->cols, c->s->q14.q + at * LAM_GROUP, c->s->q14.scale + at);
    if (!ok) c->failed[i] = true;
}

/* y += bias for one tile of outputs, each row with its own overlay's bias or the base's. */
static void add_bias(const struct call *c, const struct lam_linear *l, size_t tile)
{
    size_t first = tile * LAM_TILE_ROWS, n = l->w->rows - first < LAM_TILE_ROWS ? l->w->rows - first : LAM_TILE_ROWS;
    for (size_t i = 0; i < c->n_rows; i++) {
        const float *replaced = lam_overlay_slot(c->overlays[i], l->w->target)->bias, *bias = replaced ? replaced : l->bias;
        float *y = l->y + i * l->y_stride + first;
        for (size_t r = 0; bias && r < n; r++) y[r] = y[r] + bias[first + r];
    }
}

static bool has_deltas(const struct call *c, size_t linear)
{
    for (size_t i = 0; i < c->s->n_deltas; i++)
        if (c->s->deltas[i].linear == linear) return true;
    return false;
}

static void base_tiles(const struct call *c, size_t linear, size_t from, size_t to)
{
    const struct lam_linear *l = &c->linears[linear];
    bool last = !has_deltas(c, linear);
    for (size_t t = from; t < to; t++) {
        const uint8_t *tile = l->w->tiles + t * l->w->stride;
        float *y = l->y + t * LAM_TILE_ROWS;
        if (lam_dtype_is_quantised(l->w->dtype)) c->kernels->gemm_quant(l->w->dtype, tile, &c->s->q8, y, l->y_stride);
        else c->kernels->gemm_float(l->w->dtype, tile, c->cols, c->x, c->x_stride, c->n_rows, y, l->y_stride);
        if (last) add_bias(c, l, t);
    }
}

static void delta_a(const struct call *c, const struct lam_delta *d)
{
    const struct lam_factor *a = &d->op->lora->a;
    for (size_t t = 0; t < tiles_of(a->rows); t++) {
        float *out = d->t + t * LAM_TILE_ROWS;
        if (a->quantised) {
            struct lam_q14_tile tile = lam_factor_q14_tile(a, t);
            c->kernels->gemm_q14(&tile, &c->s->q14, d->first, d->n_rows, out, d->t_stride);
        } else {
            c->kernels->gemm_float(LAM_F32, lam_factor_float_tile(a, t), a->cols, c->x + d->first * c->x_stride, c->x_stride,
                                   d->n_rows, out, d->t_stride);
        }
    }
}

/* The first pass: items are runs of base tiles, then one item a delta. */
static void first_pass(void *context, size_t item, unsigned thread)
{
    const struct call *c = context;
    (void)thread;
    for (size_t l = 0; l < c->n; l++) {
        if (item >= c->first_item[l + 1]) continue;
        size_t from = (item - c->first_item[l]) * c->chunk[l], to = from + c->chunk[l], n = tiles_of(c->linears[l].w->rows);
        base_tiles(c, l, from, to < n ? to : n);
        return;
    }
    delta_a(c, &c->s->deltas[item - c->first_item[c->n]]);
}

/* Between the passes: t = (w·s)·(A x), in 14 bits where the factors are. */
static void scale_delta(void *context, size_t item, unsigned thread)
{
    const struct call *c = context;
    (void)thread;
    struct lam_delta *d = &c->s->deltas[item];
    uint32_t rank = d->op->lora->rank;
    for (size_t i = 0; i < d->n_rows; i++) {
        float *t = d->t + i * d->t_stride;
        for (uint32_t k = 0; k < rank; k++) t[k] = d->op->scale * t[k];
        if (d->op->lora->b.quantised &&
            !c->kernels->quantise14(t, rank, d->tq.q + i * d->tq.groups * LAM_GROUP, d->tq.scale + i * d->tq.groups))
            c->failed[d->first + i] = true;
    }
}

/* The second pass: y += B t of every delta in order, then the bias, for one run of tiles. */
static void second_pass(void *context, size_t item, unsigned thread)
{
    const struct call *c = context;
    size_t l = 0;
    while (item >= c->first_item[l + 1]) l++;
    const struct lam_linear *linear = &c->linears[l];
    if (!has_deltas(c, l)) return;
    size_t from = (item - c->first_item[l]) * c->chunk[l], n = tiles_of(linear->w->rows);
    float *out = c->s->tile_out + (size_t)thread * c->n_rows * LAM_TILE_ROWS;
    for (size_t t = from; t < from + c->chunk[l] && t < n; t++) {
        for (size_t i = 0; i < c->s->n_deltas; i++) {
            const struct lam_delta *d = &c->s->deltas[i];
            const struct lam_factor *b = &d->op->lora->b;
            if (d->linear != l) continue;
            if (b->quantised) {
                struct lam_q14_tile tile = lam_factor_q14_tile(b, t);
                c->kernels->gemm_q14(&tile, &d->tq, 0, d->n_rows, out, LAM_TILE_ROWS);
            } else {
                c->kernels->gemm_float(LAM_F32, lam_factor_float_tile(b, t), b->cols, d->t, d->t_stride, d->n_rows, out,
                                       LAM_TILE_ROWS);
            }
            for (size_t r = 0; r < d->n_rows; r++) {
                float *y = linear->y + (d->first + r) * linear->y_stride + t * LAM_TILE_ROWS;
                for (size_t k = 0; k < LAM_TILE_ROWS; k++) y[k] = y[k] + out[r * LAM_TILE_ROWS + k];
            }
        }
        add_bias(c, linear, t);
    }
}

static void run(struct lam_pool *pool, bool serial, size_t n_items, lam_pool_fn fn, struct call *c)
{
    if (!serial) {
        lam_pool_run(pool, n_items, fn, c);
        return;
    }
    for (size_t i = 0; i < n_items; i++) fn(c, i, 0);
}

lam_code lam_linear_run(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels, const float *x,
                        size_t x_stride, size_t n_rows, const struct lam_overlay *const *overlays, const struct lam_linear *linears,
                        size_t n, bool *failed, lam_error *err)
{
    struct call c = {.s = s, .kernels = kernels, .x = x, .x_stride = x_stride, .n_rows = n_rows, .cols = linears[0].w->cols,
                     .overlays = overlays, .linears = linears, .n = n, .failed = failed};
    size_t work = 0;
    for (size_t l = 0; l < n; l++) {
        const struct lam_matrix *w = linears[l].w;
        c.need_q8 |= lam_dtype_is_quantised(w->dtype);
        c.chunk[l] = w->stride >= ITEM_BYTES ? 1 : ITEM_BYTES / w->stride;
        c.first_item[l + 1] = c.first_item[l] + (tiles_of(w->rows) + c.chunk[l] - 1) / c.chunk[l];
        work += tiles_of(w->rows) * w->stride;
    }
    LAM_TRY(lay_deltas(&c, err));
    LAM_TRY(reserve_inputs(&c, lam_pool_threads(pool), err));
    bool serial = work * n_rows < SERIAL_WORK;
    if (c.need_q8 || c.need_q14) run(pool, serial || n_rows < 4, n_rows, quantise_row, &c);
    run(pool, serial, c.first_item[n] + s->n_deltas, first_pass, &c);
    if (s->n_deltas == 0) return LAM_OK;
    run(pool, true, s->n_deltas, scale_delta, &c);
    run(pool, serial, c.first_item[n], second_pass, &c);
    return LAM_OK;
}
