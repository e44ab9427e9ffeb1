#include "model/linear.h"
#include "model/residual.h"
#include "adapter/factor.h"
#include "base/alloc.h"
#include "tensor/group.h"
#include "tensor/tiles.h"

#include <stdatomic.h>
#include <string.h>

/* One operator applied to a run of rows that share an overlay. */
struct lam_delta {
    const struct lam_overlay_op *op;
    size_t linear, first, n_rows;
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
    size_t chunk[LAM_LINEAR_MAX], first_item[LAM_LINEAR_MAX + 1]; /* tiles per item of each linear, and its first item */
    /* The A factors' tiles, numbered through all deltas, are claimed before an item's own work; t is whole once all are done. */
    size_t n_a;
    _Alignas(64) atomic_size_t next_a;
    atomic_size_t done_a;
    atomic_bool t_ready;
    size_t tile_out_floats; /* scratch of a thread */
};

/* Weights that one item reads: a share of what there is, for an even end, and long runs, because each change from the base's stream to
 * the adapters' and back costs about a tenth of a microsecond. */
#define ITEMS_A_THREAD 8
#define ITEM_LEAST ((size_t)16 << 10)
#define ITEM_MOST ((size_t)512 << 10)
#define SERIAL_WORK ((size_t)128 << 10) /* weight bytes times rows below which waking threads costs more than it saves */
#define SERIAL_ROWS ((size_t)8192)      /* elements of x below which the caller quantises them alone */

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
typedef void (*delta_fn)(struct job *j, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op, void *context);

static void each_delta(struct job *j, delta_fn visit, void *context)
{
    const struct lam_linear_call *c = j->call;
    for (size_t l = 0; l < c->n; l++)
        for (size_t first = 0, end; first < c->n_rows; first = end) {
            for (end = first + 1; end < c->n_rows && c->overlays[end] == c->overlays[first]; end++) {}
            const struct lam_overlay_slot *slot = lam_overlay_slot(c->overlays[first], c->linears[l].w->target);
            j->biased |= slot->bias || c->linears[l].bias;
            for (size_t o = 0; o < slot->n_ops; o++) visit(j, l, first, end - first, &slot->ops[o], context);
        }
}

static size_t groups_of(size_t n) { return (n + LAM_GROUP - 1) / LAM_GROUP; }

#define ASK_BYTES ((size_t)12 << 10) /* the kernels' own prefetch takes over from here */

/* Factors lie apart from the base's stream: a thread asks for what it will read before it does something else. */
static void ask_for(const uint8_t *bytes, size_t n)
{
    for (size_t line = 0; line < n; line += 64) __builtin_prefetch(bytes + line, 0, 2);
}

static void ask_for_a(const struct lam_delta *d, size_t tile)
{
    const struct lam_factor *a = &d->op->lora->a;
    if (!a->quantised || tile >= tiles_of(a->rows)) return;
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
    needs->t_floats += n_rows * tiles_of(op->lora->rank) * LAM_TILE_ROWS;
    needs->tq_codes += n_rows * groups_of(op->lora->rank) * LAM_GROUP;
    j->n_a += tiles_of(op->lora->a.rows);
    j->need_q14 |= op->lora->a.quantised;
}

static void lay_delta(struct job *j, size_t linear, size_t first, size_t n_rows, const struct lam_overlay_op *op, void *context)
{
    struct lam_linear_scratch *s = j->s;
    struct needs *at = context; /* what is laid so far */
    size_t groups = groups_of(op->lora->rank), t_stride = tiles_of(op->lora->rank) * LAM_TILE_ROWS;
    s->deltas[at->n_deltas++] = (struct lam_delta){
        .op = op, .linear = linear, .first = first, .n_rows = n_rows, .t = s->t + at->t_floats, .t_stride = t_stride,
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
    if (!grow((void **)&s->deltas, &s->max_deltas, needs.n_deltas, sizeof *s->deltas) ||
        !grow((void **)&s->t, &s->t_floats, needs.t_floats, sizeof *s->t) ||
        !grow((void **)&s->tq_scale, &scales, needs.tq_codes / LAM_GROUP, sizeof *s->tq_scale) ||
        !grow((void **)&s->tq, &s->tq_codes, needs.tq_codes, sizeof *s->tq))
        return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapter operators", needs.n_deltas);
    each_delta(j, lay_delta, &laid);
    s->n_deltas = laid.n_deltas;
    for (size_t i = 0; i < s->n_deltas; i++) ask_for_a(&s->deltas[i], 0);
    return LAM_OK;
}

static lam_code reserve_inputs(struct job *j, unsigned n_threads, lam_error *err)
{
    struct lam_linear_scratch *s = j->s;
    size_t n_rows = j->call->n_rows, groups = groups_of(j->cols), n_groups = n_rows * groups, codes = n_groups * LAM_GROUP;
    /* One tile of a delta, and an item's columns where the caller has no place for y. */
    j->tile_out_floats = n_rows * LAM_TILE_ROWS * (j->call->linears[0].y ? 1 : 1 + j->chunk[0]);
    size_t q8_scales = s->scales, q8_halves = s->scales * 2, q14_scales = s->scales;
    bool ok = grow((void **)&s->q8.q, &s->q8_codes, codes, sizeof *s->q8.q) &&
              grow((void **)&s->q14.q, &s->q14_codes, codes, sizeof *s->q14.q) &&
              grow((void **)&s->q8.scale, &q8_scales, n_groups, sizeof *s->q8.scale) &&
              grow((void **)&s->q14.scale, &q14_scales, n_groups, sizeof *s->q14.scale) &&
              grow((void **)&s->q8.half, &q8_halves, n_groups * 2, sizeof *s->q8.half) &&
              grow((void **)&s->tile_out, &s->tile_out_floats, n_threads * j->tile_out_floats, sizeof *s->tile_out);
    if (!ok) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of %zu", n_rows, j->cols);
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
        if (j->s->deltas[i].linear != linear || !op->lora->b.quantised) continue;
        struct lam_q14_tiles b = lam_factor_q14(&op->lora->b, from, to - from);
        ask_for(b.bytes, b.n * lam_q14_tile_bytes(b.cols));
    }
}

/* t = A x of one tile of A. */
static void product_a(const struct job *j, const struct lam_delta *d, size_t tile)
{
    const struct lam_linear_call *c = j->call;
    const struct lam_factor *a = &d->op->lora->a;
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
    uint32_t rank = d->op->lora->rank;
    for (size_t i = 0; i < d->n_rows; i++) {
        float *t = d->t + i * d->t_stride;
        for (uint32_t k = 0; k < rank; k++) t[k] = d->op->scale * t[k];
        if (d->op->lora->b.quantised &&
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
        for (; tile >= tiles_of(d->op->lora->a.rows); d++) tile -= tiles_of(d->op->lora->a.rows);
        ask_for_a(d, tile + 1);
        product_a(j, d, tile);
        if (atomic_fetch_add(&j->done_a, 1) + 1 < j->n_a) continue;
        for (size_t k = 0; k < s->n_deltas; k++) scale_t(j, &s->deltas[k]);
        atomic_store_explicit(&j->t_ready, true, memory_order_release);
    }
}

/* Where an item's columns of one linear lie: y[n_rows, stride], column 0 is the first of the item's. */
struct view {
    float *y;
    size_t stride;
};

/* y = W x for tiles from..to-1. */
static void product(const struct job *j, const struct lam_linear *l, size_t from, size_t to, struct view v)
{
    const struct lam_linear_call *c = j->call;
    const struct lam_matrix *w = l->w;
    bool quantised = lam_dtype_is_quantised(w->dtype);
    for (size_t t = from; t < to; t++) {
        const uint8_t *tile = w->tiles + t * w->stride;
        float *y = v.y + (t - from) * LAM_TILE_ROWS;
        if (quantised) j->kernels->gemm_quant(w->dtype, tile, &j->s->q8, y, v.stride);
        else j->kernels->gemm_float(w->dtype, tile, j->cols, c->x, c->x_stride, c->n_rows, y, v.stride);
        lam_residual_product(w, t, c->x, c->x_stride, c->n_rows, y, v.stride);
    }
}

/* y += B t of one operator with float factors for one tile, whose columns begin at y; out[n_rows, 16] is scratch. */
static void add_float_delta(const struct job *j, const struct lam_delta *d, size_t tile, float *y, size_t y_stride, float *out)
{
    const struct lam_factor *b = &d->op->lora->b;
    j->kernels->gemm_float(LAM_F32, (const uint8_t *)lam_factor_float_tile(b, tile), b->cols, d->t, d->t_stride, d->n_rows, out,
                           LAM_TILE_ROWS);
    for (size_t r = 0; r < d->n_rows; r++) {
        float *row = y + r * y_stride;
        for (size_t k = 0; k < LAM_TILE_ROWS; k++) row[k] = row[k] + out[r * LAM_TILE_ROWS + k];
    }
}

/* y += B t of every operator of a linear, in order. */
static void add_deltas(struct job *j, size_t linear, size_t from, size_t to, struct view v, float *out)
{
    for (size_t i = 0; i < j->s->n_deltas; i++) {
        const struct lam_delta *d = &j->s->deltas[i];
        float *y = v.y + d->first * v.stride;
        if (d->linear != linear) continue;
        if (d->op->lora->b.quantised) {
            struct lam_q14_tiles b = lam_factor_q14(&d->op->lora->b, from, to - from);
            j->kernels->add_q14(&b, &d->tq, 0, d->n_rows, y, v.stride);
        } else {
            for (size_t t = from; t < to; t++) add_float_delta(j, d, t, y + (t - from) * LAM_TILE_ROWS, v.stride, out);
        }
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
    float *scratch = j->s->tile_out + thread * j->tile_out_floats;
    struct view views[LAM_LINEAR_MAX];
    for (size_t l = first; l <= last; l++)
        views[l] = c->linears[l].y ? (struct view){c->linears[l].y + from * LAM_TILE_ROWS, c->linears[l].y_stride}
                                   : (struct view){scratch + c->n_rows * LAM_TILE_ROWS, j->chunk[l] * LAM_TILE_ROWS};
    if (j->n_a) work_on_a(j);
    for (size_t l = first; l <= last && j->n_a; l++) ask_for_b(j, l, from, to);
    for (size_t l = first; l <= last; l++) product(j, &c->linears[l], from, to, views[l]);
    if (j->n_a) lam_pool_wait(&j->t_ready); /* for another thread's last tile of A */
    for (size_t l = first; l <= last; l++) {
        if (j->n_a) add_deltas(j, l, from, to, views[l], scratch);
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

lam_code lam_linear_run(struct lam_linear_scratch *s, struct lam_pool *pool, const struct lam_kernels *kernels,
                        const struct lam_linear_call *c, lam_error *err)
{
    struct job j = {.call = c, .s = s, .kernels = kernels, .cols = c->linears[0].w->cols};
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
