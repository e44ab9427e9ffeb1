#include "tensor/rows.h"
#include "tensor/decode.h"
#include "tensor/half.h"
#include "tensor/tiles.h"

#include <string.h>

#define N LAM_TILE_ROWS

size_t lam_matrix_row_bytes(const struct lam_matrix *w)
{
    size_t bytes = 0;
    lam_dtype_row_bytes(w->dtype, w->cols, &bytes);
    return bytes;
}

void lam_matrix_row(const struct lam_matrix *w, size_t r, uint8_t *bytes, float *out)
{
    lam_untile_row(w->dtype, w->cols, w->tiles + r / LAM_TILE_ROWS * w->stride, r % LAM_TILE_ROWS, bytes);
    lam_decode_row(w->dtype, bytes, w->cols, out);
    lam_residual_add_row(&w->residual, r, out);
}

/* A tile of rows as they are decoded, and one as it is stored, which takes four bytes a weight at most. */
size_t lam_matrix_tile_scratch(const struct lam_matrix *w) { return (size_t)w->cols * (N + 1) + N; }

/* Elements of a float type lie in the tile as they shall lie in out. */
static void decode_floats(enum lam_dtype dtype, const uint8_t *bytes, size_t cols, float *out)
{
    if (dtype == LAM_F32) {
        memcpy(out, bytes, cols * N * sizeof *out);
        return;
    }
    for (size_t k = 0; k < cols; k++) {
        uint16_t half[N];
        memcpy(half, bytes + k * sizeof half, sizeof half);
        for (size_t r = 0; r < N; r++) out[k * N + r] = dtype == LAM_F16 ? lam_finite_f16_to_f32(half[r]) : lam_bf16_to_f32(half[r]);
    }
}

void lam_matrix_tile(const struct lam_matrix *w, size_t tile, float *scratch, float *out)
{
    size_t cols = w->cols, n_rows = w->rows - tile * N < N ? w->rows - tile * N : N;
    if (!lam_dtype_is_quantised(w->dtype) && w->residual.n == 0) {
        decode_floats(w->dtype, w->tiles + tile * w->stride, cols, out);
        return;
    }
    for (size_t r = 0; r < N; r++) {
        if (r < n_rows) lam_matrix_row(w, tile * N + r, (uint8_t *)(scratch + N * cols), scratch + r * cols);
        else memset(scratch + r * cols, 0, cols * sizeof *scratch);
    }
    for (size_t k = 0; k < cols; k++)
        for (size_t r = 0; r < N; r++) out[k * N + r] = scratch[r * cols + k];
}
