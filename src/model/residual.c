#include "model/residual.h"
#include "tensor/half.h"
#include "tensor/tiles.h"

#define ROWS 8 /* of x whose outputs stay in registers */

/* y[k] += values of one row times x[k], for n <= ROWS rows of x; n and wide are constants. */
static inline void add_values(const struct lam_residual *r, bool wide, uint32_t from, uint32_t to, const float *x, size_t x_stride,
                              size_t n, float *y, size_t y_stride)
{
    float sum[ROWS];
    for (size_t k = 0; k < n; k++) sum[k] = y[k * y_stride];
    for (uint32_t i = from; i < to; i++) {
        const float *column = x + (wide ? r->columns32[i] : r->columns16[i]);
        float value = lam_finite_f16_to_f32(r->values[i]);
        for (size_t k = 0; k < n; k++) sum[k] = sum[k] + value * column[k * x_stride];
    }
    for (size_t k = 0; k < n; k++) y[k * y_stride] = sum[k];
}

static void add_row(const struct lam_residual *r, size_t row, const float *x, size_t x_stride, size_t n, float *y, size_t y_stride)
{
    uint32_t from = r->starts[row], to = r->starts[row + 1];
    bool wide = r->columns32 != NULL;
    size_t k = 0;
    for (; !wide && k + ROWS <= n; k += ROWS) add_values(r, false, from, to, x + k * x_stride, x_stride, ROWS, y + k * y_stride, y_stride);
    for (; k < n; k++) {
        if (wide) add_values(r, true, from, to, x + k * x_stride, x_stride, 1, y + k * y_stride, y_stride);
        else add_values(r, false, from, to, x + k * x_stride, x_stride, 1, y + k * y_stride, y_stride);
    }
}

void lam_residual_product(const struct lam_matrix *w, size_t tile, const float *x, size_t x_stride, size_t n, float *y, size_t y_stride)
{
    size_t row = tile * LAM_TILE_ROWS, end = row + LAM_TILE_ROWS < w->rows ? row + LAM_TILE_ROWS : w->rows;
    if (w->residual.n == 0) return;
    for (; row < end; row++, y++) add_row(&w->residual, row, x, x_stride, n, y, y_stride);
}
