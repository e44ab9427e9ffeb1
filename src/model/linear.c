#include "model/linear.h"
#include "model/residual.h"
#include "adapter/effective.h"
#include "adapter/factor.h"
#include "adapter/sparse.h"
#include "base/alloc.h"
#include "base/budget.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <stdatomic.h>
#include <string.h>

/* One operator applied to a run of rows that share an overlay. Those without factors have no t. */
struct lam_delta {
    const struct lam_overlay_op *op;
    size_t linear, first, n_rows;
    bool low_rank;
    float *t;                /* [n_rows, t_stride]: A x */
    size_t t_stride;         /* rank rounded up to 16 */
    struct lam_q14_rows tq;  /* w·s·A x in 14 bits; quantised factors only */
};

/* One call at work: what the items of the pool read. */
struct job {
    const struct lam_linear_call *call;
    struct lam_linear_scratch *s;
    const struct lam_kernels *kernels;
    size_t cols;
    bool need_q8, need_q14, biased;
    bool shared; /* all rows are multiplied by the base's weights, of every linear */
    size_t chunk[LAM_LINEAR_MAX], first_item[LAM_LINEAR_MAX + 1]; /* tiles per item of each linear, and its first item */
    /* The A factors' tiles, numbered through all deltas, are claimed before an item's own work; t is whole once all are done. */
    size_t n_a;
    _Alignas(64) atomic_size_t next_a;
    atomic_size_t done_a;
    atomic_bool t_ready;
    size_t tile_out_floats; /* scratch of a thread: a delta's tile, the item's columns, a materialised tile */
    size_t item_floats, effective_floats;
};

/* Weights that one item reads: a share of what there is, for an even end, and long runs, because each change from the base's stream to
 * the adapters' and back costs about a tenth of a microsecond. */
#define ITEMS_A_THREAD 8
#define ITEM_LEAST ((size_t)16 << 10)
#define ITEM_MOST ((size_t)512 << 10)
#define SERIAL_WORK ((size_t)128 << 10) /* weight bytes times rows below which waking threads costs more than it saves */
#define SERIAL_ROWS ((size_t)8192)      /* elements of x below which the caller quantises them alone */

static size_t tiles_of(uint32_t rows) { return ((size_t)rows + LAM_TILE_ROWS - 1) / LAM_TILE_ROWS; }

/* On failure what there was stays. */
static lam_code grow(struct lam_budget *budget, void **block, size_t *have, size_t need, size_t size, lam_error *err)
{
    void *fresh;
    if (need <= *have) return LAM_OK;
    LAM_TRY(lam_budget_alloc(budget, need, size, "scratch of a linear layer", &fresh, err));
    lam_budget_free(*block);
    *block = fresh;
    *have = need;
    return LAM_OK;
}

void lam_linear_scratch_release(struct lam_linear_scratch *s)
{
    lam_budget_free(s->q8.q);
    lam_budget_free(s->q8.scale);
    lam_budget_free(s->q8.half);
    lam_budget_free(s->q14.q);
    lam_budget_free(s->q14.scale);
    lam_budget_free(s->deltas);
    lam_budget_free(s->t);
    lam_budget_free(s->tq);
    lam_budget_free(s->tq_scale);
    lam_budget_free(s->tile_out);
    lam_budget_free(s->scaled);
    *s = (struct lam_linear_scratch){0};
}

/* The end of the run of rows that share row first's overlay. */
static size_t run_end(const struct lam_linear_call *c, size_t first)
{
    size_t end = first + 1;
    while (end < c->n_rows && c->overlays[end] == c->overlays[first]) end++;
    return end;
}

static const struct lam_overlay_slot *slot_of(const struct lam_linear_call *c, size_t linear, size_t row)
{
    return lam_overlay_slot(c->overlays[row], c->linears[linear].w->target);
}

/* Applies visit to every (linear, run of rows, operator) in order. */
typedef void (*delta_fn)(struct job *j, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op, void *context);

static void each_delta(struct job *j, delta_fn visit, void *context)
{
    const struct lam_linear_call *c = j->call;
    for (size_t l = 0; l < c->n; l++)
        for (size_t first = 0, end; first < c->n_rows; first = end) {
            end = run_end(c, first);
            const struct lam_overlay_slot *slot = slot_of(c, l, first);
            j->biased |= slot->bias || c->linears[l].bias;
            j->shared &= !slot->weight && !slot->materialize;
            for (size_t o = 0; o < slot->n_ops && !slot->materialize; o++) visit(j, l, first, end - first, &slot->ops[o], context);
        }
}

static bool is_low_rank(const struct lam_overlay_op *op) { return op->method == LAM_METHOD_LORA || op->method == LAM_METHOD_DORA; }

static size_t groups_of(size_t n) { return (n + LAM_GROUP - 1) / LAM_GROUP; }

#define ASK_BYTES ((size_t)12 << 10) /* the kernels' own prefetch takes over from here */

/* Factors lie apart from the base's stream: a thread asks for what it will read before it does something else. */
static void ask_for(const uint8_t *bytes, size_t n)
{
    for (size_t line = 0; line < n; line += 64) __builtin_prefetch(bytes + line, 0, 2);
}

static void ask_for_a(const struct lam_delta *d, size_t tile)
{
    const struct lam_factor *a = &d->op->module->lora.a;
    if (!d->low_rank || !a->quantised || tile >= tiles_of(a->rows)) return;
    size_t bytes = lam_q14_tile_bytes(a->cols);
    ask_for(lam_factor_q14(a, tile, 1).bytes, bytes < ASK_BYTES ? bytes : ASK_BYTES);
}

/* Needs of all deltas together, counted before anything is laid out. */
struct needs {
    size_t n_deltas, t_floats, tq_codes;
};

static void count_delta(struct job *j, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op, void *context)
{
    struct needs *needs = context;
    (void)linear, (void)first;
    needs->n_deltas++;
    if (!is_low_rank(op)) return;
    const struct lam_lora *lora = &op->module->lora;
    needs->t_floats += n_rows * tiles_of(lora->rank) * LAM_TILE_ROWS;
    needs->tq_codes += n_rows * groups_of(lora->rank) * LAM_GROUP;
    j->n_a += tiles_of(lora->a.rows);
    j->need_q14 |= lora->a.quantised;
}

static void lay_delta(struct job *j, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op, void *context)
{
    struct lam_linear_scratch *s = j->s;
    struct needs *at = context; /* what is laid so far */
    struct lam_delta *d = &s->deltas[at->n_deltas++];
    *d = (struct lam_delta){.op = op, .linear = linear, .first = first, .n_rows = n_rows, .low_rank = is_low_rank(op)};
    if (!d->low_rank) return;
    size_t groups = groups_of(op->module->lora.rank), t_stride = tiles_of(op->module->lora.rank) * LAM_TILE_ROWS;
    *d = (struct lam_delta){
        .op = op, .linear = linear, .first = first, .n_rows = n_rows, .low_rank = true, .t = s->t + at->t_floats, .t_stride = t_stride,
        .tq = {.q = s->tq + at->tq_codes, .scale = s->tq_scale + at->tq_codes / LAM_GROUP, .n_rows = n_rows, .groups = groups}};
    at->t_floats += n_rows * t_stride;
    at->tq_codes += n_rows * groups * LAM_GROUP;
}

static lam_code lay_deltas(struct job *j, lam_error *err)
{
    struct lam_linear_scratch *s = j->s;
    struct needs needs = {0}, laid = {0};
    s->n_deltas = 0;
    each_delta(j, count_delta, &needs);
    if (needs.n_deltas == 0) return LAM_OK;
    size_t scales = s->tq_codes / LAM_GROUP;
    LAM_TRY(grow(s->budget, (void **)&s->deltas, &s->max_deltas, needs.n_deltas, sizeof *s->deltas, err));
    LAM_TRY(grow(s->budget, (void **)&s->t, &s->t_floats, needs.t_floats, sizeof *s->t, err));
    LAM_TRY(grow(s->budget, (void **)&s->tq_scale, &scales, needs.tq_codes / LAM_GROUP, sizeof *s->tq_scale, err));
    LAM_TRY(grow(s->budget, (void **)&s->tq, &s->tq_codes, needs.tq_codes, sizeof *s->tq, err));
    each_delta(j, lay_delta, &laid);
    s->n_deltas = laid.n_deltas;
    for (size_t i = 0; i < s->n_deltas; i++) ask_for_a(&s->deltas[i], 0);
    return LAM_OK;
}

static lam_code reserve_inputs(struct job *j, unsigned n_threads, lam_error *err)
{
    struct lam_linear_scratch *s = j->s;
    size_t n_rows = j->call->n_rows, groups = groups_of(j->cols), n_groups = n_rows * groups, codes = n_groups * LAM_GROUP;
    j->item_floats = j->call->linears[0].y ? 0 : n_rows * LAM_TILE_ROWS * j->chunk[0]; /* where the caller has no place for y */
    j->effective_floats = j->shared ? 0 : j->cols * LAM_TILE_ROWS + lam_effective_scratch(j->call->linears[0].w);
    j->tile_out_floats = n_rows * LAM_TILE_ROWS + j->item_floats + j->effective_floats;
    size_t q8_scales = s->scales, q8_halves = s->scales * 2, q14_scales = s->scales;
    LAM_TRY(grow(s->budget, (void **)&s->q8.q, &s->q8_codes, codes, sizeof *s->q8.q, err));
    LAM_TRY(grow(s->budget, (void **)&s->q14.q, &s->q14_codes, codes, sizeof *s->q14.q, err));
    LAM_TRY(grow(s->budget, (void **)&s->q8.scale, &q8_scales, n_groups, sizeof *s->q8.scale, err));
    LAM_TRY(grow(s->budget, (void **)&s->q14.scale, &q14_scales, n_groups, sizeof *s->q14.scale, err));
    LAM_TRY(grow(s->budget, (void **)&s->q8.half, &q8_halves, n_groups * 2, sizeof *s->q8.half, err));
    LAM_TRY(grow(s->budget, (void **)&s->tile_out, &s->tile_out_floats, n_threads * j->tile_out_floats, sizeof *s->tile_out, err));
    if (n_groups > s->scales) s->scales = n_groups;
    s->q8.n_rows = s->q14.n_rows = n_rows;
    s->q8.groups = s->q14.groups = groups;
    return LAM_OK;
}

static void quantise_row(void *context, size_t i, unsigned thread)
{
    struct job *j = context;
    (void)thread;
    const float *x = j->call->x + i * j->call->x_stride;
    size_t groups = j->s->q8.groups, at = i * groups;
    bool ok = true;
    if (j->need_q8) ok &= j->kernels->quantise8(x, j->cols, j->s->q8.q + at * LAM_GROUP, j->s->q8.scale + at, j->s->q8.half + 2 * at);
    if (j->need_q14) ok &= j->kernels->quantise14(x, j->cols, j->s->q14.q + at * LAM_GROUP, j->s->q14.scale + at);
    if (!ok) atomic_store_explicit(&j->call->failed[i], true, memory_order_relaxed);
}

static void ask_for_b(const struct job *j, size_t linear, size_t from, size_t to)
{
    for (size_t i = 0; i < j->s->n_deltas; i++) {
        const struct lam_overlay_op *op = j->s->deltas[i].op;
        if (j->s->deltas[i].linear != linear || !j->s->deltas[i].low_rank || !op->module->lora.b.quantised) continue;
        struct lam_q14_tiles b = lam_factor_q14(&op->module->lora.b, from, to - from);
        ask_for(b.bytes, b.n * lam_q14_tile_bytes(b.cols));
    }
}

/* t = A x of one tile of A. */
static void product_a(const struct job *j, const struct lam_delta *d, size_t tile)
{
    const struct lam_linear_call *c = j->call;
    const struct lam_factor *a = &d->op->module->lora.a;
    float *out = d->t + tile * LAM_TILE_ROWS;
    if (a->quantised) {
        struct lam_q14_tiles q14 = lam_factor_q14(a, tile, 1);
        for (size_t i = 0; i < d->n_rows; i++) memset(out + i * d->t_stride, 0, LAM_TILE_ROWS * sizeof *out);
        j->kernels->add_q14(&q14, &j->s->q14, d->first, d->n_rows, out, d->t_stride);
    } else {
        j->kernels->gemm_float(LAM_F32, (const uint8_t *)lam_factor_float_tile(a, tile), a->cols, c->x + d->first * c->x_stride, c->x_stride, d->n_rows,
                               out, d->t_stride);
    }
}

/* t = (w·s)·(A x), in 14 bits where the factors are. */
static void scale_t(const struct job *j, const struct lam_delta *d)
{
    uint32_t rank = d->op->module->lora.rank;
    for (size_t i = 0; i < d->n_rows; i++) {
        float *t = d->t + i * d->t_stride;
        for (uint32_t k = 0; k < rank; k++) t[k] = d->op->scale * t[k];
        if (d->op->module->lora.b.quantised &&
            !j->kernels->quantise14(t, rank, d->tq.q + i * d->tq.groups * LAM_GROUP, d->tq.scale + i * d->tq.groups))
            atomic_store_explicit(&j->call->failed[d->first + i], true, memory_order_relaxed);
    }
}

/* Tiles of A as long as any is unclaimed; who finishes the last one makes t whole for all. */
static void work_on_a(struct job *j)
{
    const struct lam_linear_scratch *s = j->s;
    for (size_t i; (i = atomic_fetch_add_explicit(&j->next_a, 1, memory_order_relaxed)) < j->n_a;) {
        const struct lam_delta *d = s->deltas;
        size_t tile = i;
        for (size_t n; tile >= (n = d->low_rank ? tiles_of(d->op->module->lora.a.rows) : 0); d++) tile -= n;
        ask_for_a(d, tile + 1);
        product_a(j, d, tile);
        if (atomic_fetch_add(&j->done_a, 1) + 1 < j->n_a) continue;
        for (size_t k = 0; k < s->n_deltas; k++)
            if (s->deltas[k].low_rank) scale_t(j, &s->deltas[k]);
        atomic_store_explicit(&j->t_ready, true, memory_order_release);
    }
}

/* Where an item's columns of one linear lie: y[n_rows, stride], column 0 is the first of the item's. */
struct view {
    float *y;
    size_t stride;
};

/* y = W x of one tile for rows first .. first+n_rows-1, whose outputs begin at y. */
static void product_of(const struct job *j, const struct lam_matrix *w, size_t tile, size_t first, size_t n_rows, float *y, size_t y_stride)
{
    const struct lam_linear_call *c = j->call;
    const uint8_t *bytes = w->tiles + tile * w->stride;
    const float *x = c->x + first * c->x_stride;
    if (lam_dtype_is_quantised(w->dtype)) {
        size_t at = first * j->s->q8.groups;
        struct lam_q8_rows rows = {.q = j->s->q8.q + at * LAM_GROUP, .scale = j->s->q8.scale + at, .half = j->s->q8.half + 2 * at,
                                   .n_rows = n_rows, .groups = j->s->q8.groups};
        j->kernels->gemm_quant(w->dtype, bytes, &rows, y, y_stride);
    } else {
        j->kernels->gemm_float(w->dtype, bytes, j->cols, x, c->x_stride, n_rows, y, y_stride);
    }
    lam_residual_product(w, tile, x, c->x_stride, n_rows, y, y_stride);
}

/* The same for a run of rows whose overlay has weights of its own, or wants W + Δ in one piece. */
static void product_of_slot(const struct job *j, const struct lam_overlay_slot *slot, const struct lam_matrix *base, size_t tile,
                            size_t first, size_t n_rows, float *effective, float *y, size_t y_stride)
{
    const struct lam_linear_call *c = j->call;
    if (!slot->materialize) {
        product_of(j, slot->weight ? slot->weight : base, tile, first, n_rows, y, y_stride);
        return;
    }
    lam_effective_tile(slot, base, tile, j->kernels, effective + j->cols * LAM_TILE_ROWS, effective);
    j->kernels->gemm_float(LAM_F32, (const uint8_t *)effective, j->cols, c->x + first * c->x_stride, c->x_stride, n_rows, y, y_stride);
    for (size_t r = 0; slot->shift && r < LAM_TILE_ROWS && tile * LAM_TILE_ROWS + r < base->rows; r++)
        for (size_t i = 0; i < n_rows; i++) y[i * y_stride + r] = y[i * y_stride + r] + slot->shift[tile * LAM_TILE_ROWS + r];
}

/* y = W x for tiles from..to-1. */
static void product(const struct job *j, size_t linear, size_t from, size_t to, struct view v, float *effective)
{
    const struct lam_linear_call *c = j->call;
    const struct lam_matrix *w = c->linears[linear].w;
    for (size_t t = from; t < to; t++) {
        float *y = v.y + (t - from) * LAM_TILE_ROWS;
        if (j->shared) {
            product_of(j, w, t, 0, c->n_rows, y, v.stride);
            continue;
        }
        for (size_t first = 0, end; first < c->n_rows; first = end) {
            end = run_end(c, first);
            product_of_slot(j, slot_of(c, linear, first), w, t, first, end - first, effective, y + first * v.stride, v.stride);
        }
    }
}

/* B t of one tile into out[n_rows, 16]. */
static void product_b(const struct job *j, const struct lam_delta *d, size_t tile, float *out)
{
    const struct lam_factor *b = &d->op->module->lora.b;
    if (b->quantised) {
        struct lam_q14_tiles q14 = lam_factor_q14(b, tile, 1);
        memset(out, 0, d->n_rows * LAM_TILE_ROWS * sizeof *out);
        j->kernels->add_q14(&q14, &d->tq, 0, d->n_rows, out, LAM_TILE_ROWS);
    } else {
        j->kernels->gemm_float(LAM_F32, (const uint8_t *)lam_factor_float_tile(b, tile), b->cols, d->t, d->t_stride, d->n_rows, out,
                               LAM_TILE_ROWS);
    }
}

/* One operator that is not a sum of quantised factors, on one tile whose n outputs of a row begin at y; out[n_rows, 16] is scratch. */
static void add_delta(const struct job *j, const struct lam_delta *d, size_t tile, float *y, size_t y_stride, float *out)
{
    const struct lam_linear_call *c = j->call;
    const struct lam_overlay_op *op = d->op;
    const float *x = c->x + d->first * c->x_stride;
    size_t first = tile * LAM_TILE_ROWS, rows = c->linears[d->linear].w->rows, n = rows - first < LAM_TILE_ROWS ? rows - first : LAM_TILE_ROWS;
    const struct lam_matrix *w = op->method == LAM_METHOD_DENSE ? &op->module->dense : &op->module->weight;
    if (op->method == LAM_METHOD_SPARSE) {
        lam_sparse_product(op->module, tile, op->scale, x, c->x_stride, d->n_rows, y, y_stride);
        return;
    }
    if (d->low_rank) product_b(j, d, tile, out);
    else if (op->method != LAM_METHOD_IA3_OUTPUT)
        j->kernels->gemm_float(w->dtype, w->tiles + tile * w->stride, w->cols, x, c->x_stride, d->n_rows, out, LAM_TILE_ROWS);
    const float *factor = op->rows ? op->rows + first : NULL, *shift = op->shift ? op->shift + first : NULL;
    for (size_t i = 0; i < d->n_rows; i++) {
        float *row = y + i * y_stride;
        const float *delta = out + i * LAM_TILE_ROWS;
        for (size_t r = 0; r < n; r++) switch (op->method) {
            case LAM_METHOD_IA3_OUTPUT: row[r] = row[r] * factor[r]; break;
            case LAM_METHOD_DENSE: row[r] = row[r] + op->scale * delta[r]; break;
            case LAM_METHOD_NONE: row[r] = row[r] + op->scale * (delta[r] - row[r]); break;
            case LAM_METHOD_DORA:
                row[r] = row[r] + ((factor[r] - 1.0f) * row[r] + factor[r] * (shift ? delta[r] + shift[r] : delta[r]));
                break;
            default: row[r] = row[r] + delta[r]; break;
            }
    }
}

/* y += c times the bias of B. */
static void add_shift(const struct job *j, const struct lam_delta *d, size_t from, size_t to, float *y, size_t y_stride)
{
    size_t first = from * LAM_TILE_ROWS, rows = j->call->linears[d->linear].w->rows, end = to * LAM_TILE_ROWS < rows ? to * LAM_TILE_ROWS : rows;
    for (size_t i = 0; i < d->n_rows; i++)
        for (size_t r = first; r < end; r++) y[i * y_stride + r - first] = y[i * y_stride + r - first] + d->op->shift[r];
}

/* Every operator of a linear, in order. */
static void add_deltas(struct job *j, size_t linear, size_t from, size_t to, struct view v, float *out)
{
    for (size_t i = 0; i < j->s->n_deltas; i++) {
        const struct lam_delta *d = &j->s->deltas[i];
        float *y = v.y + d->first * v.stride;
        if (d->linear != linear) continue;
        if (d->op->method == LAM_METHOD_LORA && d->op->module->lora.b.quantised) {
            struct lam_q14_tiles b = lam_factor_q14(&d->op->module->lora.b, from, to - from);
            j->kernels->add_q14(&b, &d->tq, 0, d->n_rows, y, v.stride);
        } else {
            for (size_t t = from; t < to; t++) add_delta(j, d, t, y + (t - from) * LAM_TILE_ROWS, v.stride, out);
        }
        if (d->op->method == LAM_METHOD_LORA && d->op->shift) add_shift(j, d, from, to, y, v.stride);
    }
}

/* y += bias, each row with its own overlay's bias or the base's. */
static void add_bias(const struct job *j, const struct lam_linear *l, size_t from, size_t to, struct view v)
{
    const struct lam_linear_call *c = j->call;
    size_t first = from * LAM_TILE_ROWS, n = (to * LAM_TILE_ROWS < l->w->rows ? to * LAM_TILE_ROWS : l->w->rows) - first;
    for (size_t i = 0; i < c->n_rows; i++) {
        const float *replaced = lam_overlay_slot(c->overlays[i], l->w->target)->bias, *bias = replaced ? replaced : l->bias;
        float *y = v.y + i * v.stride;
        for (size_t r = 0; bias && r < n; r++) y[r] = y[r] + bias[first + r];
    }
}

/* A run of tiles of one linear, or of all of a joined call: base, then adapters in order, then bias (docs/numeric.md). */
static void run_item(void *context, size_t item, unsigned thread)
{
    struct job *j = context;
    const struct lam_linear_call *c = j->call;
    size_t first = 0, last = c->n - 1;
    if (!c->done) {
        while (item >= j->first_item[first + 1]) first++;
        last = first;
    }
    size_t n_tiles = tiles_of(c->linears[first].w->rows), from = (item - j->first_item[first]) * j->chunk[first];
    size_t to = from + j->chunk[first] < n_tiles ? from + j->chunk[first] : n_tiles;
    float *scratch = j->s->tile_out + thread * j->tile_out_floats, *columns = scratch + c->n_rows * LAM_TILE_ROWS;
    struct view views[LAM_LINEAR_MAX];
    for (size_t l = first; l <= last; l++)
        views[l] = c->linears[l].y ? (struct view){c->linears[l].y + from * LAM_TILE_ROWS, c->linears[l].y_stride}
                                   : (struct view){columns, j->chunk[l] * LAM_TILE_ROWS};
    if (j->n_a) work_on_a(j);
    for (size_t l = first; l <= last && j->n_a; l++) ask_for_b(j, l, from, to);
    for (size_t l = first; l <= last; l++) product(j, l, from, to, views[l], columns + j->item_floats);
    if (j->n_a) lam_pool_wait(&j->t_ready); /* for another thread's last tile of A */
    for (size_t l = first; l <= last; l++) {
        if (j->s->n_deltas) add_deltas(j, l, from, to, views[l], scratch);
        if (j->biased) add_bias(j, &c->linears[l], from, to, views[l]);
    }
    if (c->done) c->done(c->context, from * LAM_TILE_ROWS, (to - from) * LAM_TILE_ROWS, views[0].y, views[0].stride);
}

/* bytes: weights of all linears together. */
static void cut_items(struct job *j, size_t bytes, unsigned n_threads)
{
    const struct lam_linear_call *c = j->call;
    size_t joined = 0, item = bytes / (n_threads * ITEMS_A_THREAD);
    item = item < ITEM_LEAST ? ITEM_LEAST : item > ITEM_MOST ? ITEM_MOST : item;
    for (size_t l = 0; l < c->n; l++) joined += c->linears[l].w->stride;
    for (size_t l = 0; l < c->n; l++) {
        size_t stride = c->done ? joined : c->linears[l].w->stride;
        j->chunk[l] = stride >= item ? 1 : item / stride;
        j->first_item[l + 1] = j->first_item[l] + (tiles_of(c->linears[l].w->rows) + j->chunk[l] - 1) / j->chunk[l];
    }
}

static void run(struct lam_pool *pool, bool serial, size_t n_items, lam_pool_fn fn, struct job *j)
{
    if (!serial) {
        lam_pool_run(pool, n_items, fn, j);
        return;
    }
    for (size_t i = 0; i < n_items; i++) fn(j, i, 0);
}

static lam_code run_call(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels,
                         const struct lam_linear_call *c, lam_error *err)
{
    struct job j = {.call = c, .s = s, .kernels = kernels, .cols = c->linears[0].w->cols, .shared = true};
    size_t bytes = 0;
    for (size_t l = 0; l < c->n; l++) {
        const struct lam_matrix *w = c->linears[l].w;
        j.need_q8 |= lam_dtype_is_quantised(w->dtype);
        bytes += tiles_of(w->rows) * w->stride;
    }
    cut_items(&j, bytes, lam_pool_threads(pool));
    LAM_TRY(lay_deltas(&j, err));
    LAM_TRY(reserve_inputs(&j, lam_pool_threads(pool), err));
    bool serial = bytes * c->n_rows < SERIAL_WORK;
    if (j.need_q8 || j.need_q14) run(pool, serial || c->n_rows * j.cols < SERIAL_ROWS, c->n_rows, quantise_row, &j);
    run(pool, serial, j.first_item[c->done ? 1 : c->n], run_item, &j);
    return LAM_OK;
}

/* The factors of a row's input, NULL if it goes in as it is. */
static const float *input_factors(const struct lam_linear_call *c, size_t linear, size_t row)
{
    const struct lam_overlay_slot *slot = slot_of(c, linear, row);
    return slot->materialize ? NULL : slot->input;
}

static bool scales_inputs(const struct lam_linear_call *c)
{
    for (size_t l = 0; l < c->n; l++)
        for (size_t i = 0; i < c->n_rows; i = run_end(c, i))
            if (input_factors(c, l, i)) return true;
    return false;
}

/* Where IA³ scales what goes into a linear, each linear has an input of its own and is a call of its own. */
static lam_code run_scaled(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels,
                           const struct lam_linear_call *c, lam_error *err)
{
    size_t cols = c->linears[0].w->cols, floats;
    if (!lam_mul_size(c->n_rows, c->x_stride, &floats)) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of %zu", c->n_rows, cols);
    LAM_TRY(grow(s->budget, (void **)&s->scaled, &s->scaled_floats, floats, sizeof *s->scaled, err));
    for (size_t l = 0; l < c->n; l++) {
        for (size_t i = 0; i < c->n_rows; i++) {
            const float *factors = input_factors(c, l, i), *x = c->x + i * c->x_stride;
            float *scaled = s->scaled + i * c->x_stride;
            for (size_t k = 0; k < cols; k++) scaled[k] = factors ? x[k] * factors[k] : x[k];
        }
        struct lam_linear_call one = *c;
        one.x = s->scaled;
        one.linears = &c->linears[l];
        one.n = 1;
        if (c->n > 1) one.done = NULL;
        LAM_TRY(run_call(s, pool, kernels, &one, err));
    }
    const struct lam_linear *first = &c->linears[0];
    if (c->done && c->n > 1) c->done(c->context, 0, tiles_of(first->w->rows) * LAM_TILE_ROWS, first->y, first->y_stride);
    return LAM_OK;
}

lam_code lam_linear_run(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels,
                        const struct lam_linear_call *c, lam_error *err)
{
    return scales_inputs(c) ? run_scaled(s, pool, kernels, c, err) : run_call(s, pool, kernels, c, err);
}
