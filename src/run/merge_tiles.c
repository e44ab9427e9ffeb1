/* The numbers of a merged matrix: exact, encoded, and what is between them. */
#include "adapter/effective.h"
#include "adapter/factor.h"
#include "adapter/sparse.h"
#include "base/alloc.h"
#include "run/merge.h"
#include "tensor/decode.h"
#include "tensor/encode.h"
#include "tensor/rows.h"
#include "tensor/tiles.h"

#include <string.h>

#define N LAM_TILE_ROWS

/* A thread's scratch. */
struct bench {
    float *tile, *effective; /* [cols][16]; lam_effective_scratch */
    float *exact, *stored, *base; /* rows */
    uint8_t *blocks, *bytes; /* 16 encoded rows; a row of the base as stored */
};

struct job {
    struct lam_merging *merge;
    struct lam_merge_tensor *tensor;
    struct bench *benches;       /* [threads], owned */
    struct lam_merge_sums *sums; /* [n tiles], owned */
    size_t first, stride;
    uint8_t *out;
    atomic_bool failed;
};

static bool open_bench(struct bench *b, const struct lam_matrix *w, size_t row_bytes)
{
    size_t cols = w->cols;
    b->tile = lam_alloc_aligned(cols * N * sizeof *b->tile);
    b->effective = lam_alloc_aligned(lam_effective_scratch(w) * sizeof *b->effective);
    b->exact = lam_alloc(cols, sizeof *b->exact);
    b->stored = lam_alloc(cols, sizeof *b->stored);
    b->base = lam_alloc(cols, sizeof *b->base);
    b->blocks = lam_alloc(row_bytes, N);
    b->bytes = lam_alloc(cols + 256, sizeof(float));
    return b->tile && b->effective && b->exact && b->stored && b->base && b->blocks && b->bytes;
}

static void close_bench(struct bench *b)
{
    lam_free_aligned(b->tile);
    lam_free_aligned(b->effective);
    lam_free(b->exact);
    lam_free(b->stored);
    lam_free(b->base);
    lam_free(b->blocks);
    lam_free(b->bytes);
}

/* Row r of what the embedding looks up: docs/numeric.md, "Embedding rows". */
static void embedding_row(const struct lam_overlay_slot *slot, const struct lam_matrix *w, size_t r, struct bench *b, float *x)
{
    size_t n = w->cols;
    lam_matrix_row(slot->weight ? slot->weight : w, r, b->bytes, x);
    for (size_t o = 0; o < slot->n_ops; o++) {
        const struct lam_overlay_op *op = &slot->ops[o];
        const struct lam_lora *lora = &op->module->lora;
        if (op->method == LAM_METHOD_SPARSE) {
            lam_sparse_add_row(op->module, r, op->scale, x, 1);
        } else if (op->method == LAM_METHOD_LORA) {
            const float *a = lora->embedding_a + r * lora->rank;
            for (size_t i = 0; i < n; i++) {
                const float *tile = lam_factor_float_tile(&lora->b, i / N) + i % N;
                float sum = 0.0f;
                for (uint32_t k = 0; k < lora->rank; k++) sum = sum + tile[k * N] * (op->scale * a[k]);
                x[i] = x[i] + sum;
            }
        } else {
            bool dense = op->method == LAM_METHOD_DENSE;
            lam_matrix_row(dense ? &op->module->dense : &op->module->weight, r, b->bytes, b->stored);
            for (size_t k = 0; k < n; k++) x[k] = x[k] + op->scale * (dense ? b->stored[k] : b->stored[k] - x[k]);
        }
    }
}

static void effective(const struct lam_merging *m, const struct lam_overlay_slot *slot, const struct lam_matrix *w, size_t tile, struct bench *b)
{
    lam_effective_tile(slot, w, tile, m->composition->base->engine->kernels, b->effective, b->tile);
}

static void measure(const struct bench *b, size_t cols, struct lam_merge_sums *s)
{
    for (size_t k = 0; k < cols; k++) {
        double exact = (double)b->exact[k], stored = (double)b->stored[k], base = (double)b->base[k], change = exact - base;
        s->exact = s->exact + exact * exact;
        s->change = s->change + change * change;
        s->error = s->error + (stored - exact) * (stored - exact);
        s->kept = s->kept + (stored - base) * change;
    }
}

/* lam_pool_fn: one tile. */
static void tile_item(void *context, size_t item, unsigned thread)
{
    struct job *j = context;
    const struct lam_merge_tensor *t = j->tensor;
    struct bench *b = &j->benches[thread];
    struct lam_merge_sums s = {0};
    size_t tile = j->first + item, cols = t->cols, row_bytes = 0, n_rows = t->rows - tile * N < N ? t->rows - tile * N : N;
    lam_dtype_row_bytes(t->dtype, cols, &row_bytes);
    if (!t->by_row) effective(j->merge, t->slot, t->matrix, tile, b);
    for (size_t r = 0; r < n_rows; r++) {
        if (t->by_row) embedding_row(t->slot, t->matrix, tile * N + r, b, b->exact);
        else for (size_t k = 0; k < cols; k++) b->exact[k] = b->tile[k * N + r];
        if (!lam_encode_row(t->dtype, b->exact, cols, b->blocks + r * row_bytes)) atomic_store(&j->failed, true);
        lam_decode_row(t->dtype, b->blocks + r * row_bytes, cols, b->stored);
        lam_matrix_row(t->matrix, tile * N + r, b->bytes, b->base);
        measure(b, cols, &s);
    }
    lam_tile_rows(t->dtype, cols, b->blocks, n_rows, j->out + item * j->stride);
    j->sums[item] = s;
}

static void run(struct job *j, size_t n, lam_pool_fn fn)
{
    struct lam_pool *pool = j->merge->composition->base->engine->pool;
    lam_pool_lock(pool);
    lam_pool_run(pool, n, fn, j);
    lam_pool_unlock(pool);
}

static lam_code open_job(struct job *j, const struct lam_matrix *w, size_t row_bytes, size_t n, lam_error *err)
{
    unsigned n_threads = lam_pool_threads(j->merge->composition->base->engine->pool);
    j->benches = lam_alloc(n_threads, sizeof *j->benches);
    j->sums = lam_alloc(n, sizeof *j->sums);
    bool ok = j->benches && j->sums;
    for (unsigned i = 0; ok && i < n_threads; i++) ok = open_bench(&j->benches[i], w, row_bytes);
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "rows of %u", w->cols);
}

static void close_job(struct job *j)
{
    for (unsigned i = 0; j->benches && i < lam_pool_threads(j->merge->composition->base->engine->pool); i++) close_bench(&j->benches[i]);
    lam_free(j->benches);
    lam_free(j->sums);
}

lam_code lam_merge_tiles(struct lam_merging *m, struct lam_merge_tensor *t, size_t first, size_t n, uint8_t *out, lam_error *err)
{
    struct job j = {.merge = m, .tensor = t, .first = first, .out = out};
    size_t row_bytes = 0;
    lam_dtype_row_bytes(t->dtype, t->cols, &row_bytes);
    lam_tile_stride(t->dtype, t->cols, &j.stride);
    lam_code code = open_job(&j, t->matrix, row_bytes, n, err);
    if (code == LAM_OK) run(&j, n, tile_item);
    if (code == LAM_OK && atomic_load(&j.failed))
        code = LAM_RAISE(err, LAM_E_NON_FINITE, "tensor %s: a merged weight is out of the range of %s", t->name, lam_dtype_info(t->dtype)->name);
    for (size_t i = 0; code == LAM_OK && i < n; i++) {
        t->sums.exact = t->sums.exact + j.sums[i].exact;
        t->sums.change = t->sums.change + j.sums[i].change;
        t->sums.error = t->sums.error + j.sums[i].error;
        t->sums.kept = t->sums.kept + j.sums[i].kept;
    }
    close_job(&j);
    return code;
}

lam_code lam_merge_alike(struct lam_merging *m, const struct lam_overlay_slot *embedding, const struct lam_overlay_slot *head, bool *alike,
                         lam_error *err)
{
    const struct lam_matrix *w = &m->composition->base->model->embedding;
    struct job j = {.merge = m};
    lam_code code = open_job(&j, w, 1, 1, err);
    *alike = true;
    for (size_t tile = 0; code == LAM_OK && *alike && tile * N < w->rows; tile++) {
        struct bench *b = &j.benches[0];
        effective(m, head, w, tile, b);
        for (size_t r = 0; r < N && tile * N + r < w->rows; r++) {
            embedding_row(embedding, w, tile * N + r, b, b->exact);
            for (size_t k = 0; k < w->cols; k++) *alike &= memcmp(&b->exact[k], &b->tile[k * N + r], sizeof(float)) == 0;
        }
    }
    close_job(&j);
    return code;
}
