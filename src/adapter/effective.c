#include "adapter/effective.h"
#include "adapter/factor.h"
#include "adapter/sparse.h"
#include "tensor/rows.h"
#include "tensor/tiles.h"

#define N LAM_TILE_ROWS

/* Another tile, and what decoding takes. */
size_t lam_effective_scratch(const struct lam_matrix *w) { return (size_t)w->cols * N + lam_matrix_tile_scratch(w); }

/* w += c·(B A), or DoRA's step. The products of a tile are those of its 16 rows of B with every column of A. */
static void add_low_rank(const struct lam_overlay_op *op, size_t tile, const struct lam_kernels *kernels, size_t cols, size_t n_rows,
                         float *product, float *out)
{
    uint32_t rank = op->module->lora.rank;
    float rows[N] = {0};
    kernels->gemm_float(LAM_F32, (const uint8_t *)lam_factor_float_tile(&op->b, tile), rank, op->a, rank, cols, product, N);
    if (!op->rows) {
        for (size_t i = 0; i < cols * N; i++) out[i] = out[i] + op->scale * product[i];
        return;
    }
    for (size_t r = 0; r < n_rows; r++) rows[r] = op->rows[tile * N + r];
    for (size_t k = 0; k < cols; k++)
        for (size_t r = 0; r < N; r++) {
            float *w = &out[k * N + r];
            *w = *w + ((rows[r] - 1.0f) * *w + rows[r] * (op->scale * product[k * N + r]));
        }
}

static void apply(const struct lam_overlay_op *op, size_t tile, const struct lam_kernels *kernels, size_t cols, size_t n_rows, float *scratch,
                  float *out)
{
    float *other = scratch, *more = scratch + cols * N;
    switch (op->method) {
    case LAM_METHOD_LORA: case LAM_METHOD_DORA: add_low_rank(op, tile, kernels, cols, n_rows, other, out); return;
    case LAM_METHOD_IA3_OUTPUT:
        for (size_t k = 0; k < cols; k++)
            for (size_t r = 0; r < n_rows; r++) out[k * N + r] = out[k * N + r] * op->rows[tile * N + r];
        return;
    case LAM_METHOD_SPARSE:
        for (size_t r = 0; r < n_rows; r++) lam_sparse_add_row(op->module, tile * N + r, op->scale, out + r, N);
        return;
    case LAM_METHOD_DENSE:
        lam_matrix_tile(&op->module->dense, tile, more, other);
        for (size_t i = 0; i < cols * N; i++) out[i] = out[i] + op->scale * other[i];
        return;
    case LAM_METHOD_NONE:
        lam_matrix_tile(&op->module->weight, tile, more, other);
        for (size_t i = 0; i < cols * N; i++) out[i] = out[i] + op->scale * (other[i] - out[i]);
        return;
    case LAM_METHOD_IA3_INPUT: return; /* in the slot's input */
    }
}

void lam_effective_tile(const struct lam_overlay_slot *slot, const struct lam_matrix *base, size_t tile, const struct lam_kernels *kernels,
                        float *scratch, float *out)
{
    const struct lam_matrix *w = slot->weight ? slot->weight : base;
    size_t n_rows = w->rows - tile * N < N ? w->rows - tile * N : N;
    lam_matrix_tile(w, tile, scratch, out);
    for (size_t o = 0; o < slot->n_ops; o++) apply(&slot->ops[o], tile, kernels, w->cols, n_rows, scratch, out);
    for (size_t k = 0; slot->input && k < w->cols; k++)
        for (size_t r = 0; r < n_rows; r++) out[k * N + r] = out[k * N + r] * slot->input[k];
}
