#include "model/residual.h"
#include "tensor/tiles.h"

#include <string.h>

#define ROWS 8 /* of x whose outputs stay in registers */

/* The value of a finite float16, exactly: its bits as a float32 are 2^112 times too small, subnormal ones too. */
static inline float finite_f16(uint16_t half)
{
    uint32_t bits = (uint32_t)(half & 0x7fff) << 13, sign = (uint32_t)(half & 0x8000) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    value = value * 0x1p112f;
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* y[k] += values of one row times x[k], for n <= ROWS rows of x; n and wide are constants. */
static inline void add_values(const struct lam_residual *r, bool wide, uint32_t from, uint32_t to, const float *x, size_t x_stride,
                              size_t n, float *y, size_t y_stride)
{
    float sum[ROWS];
    for (size_t k = 0; k < n; k++) sum[k] = y[k * y_stride];
    for (uint32_t i = from; i < to; i++) {
        const float *column = x + (wide ? r->columns32[i] : r->columns16[i]);
        float value = finite_f16(r->values[i]);
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
