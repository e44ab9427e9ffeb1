/* Sparse deltas at work. */
#ifndef LAM_ADAPTER_SPARSE_H
#define LAM_ADAPTER_SPARSE_H

#include "adapter/adapter.h"

/* y[n, 16] += weight · δ x for the rows of one tile: each row's products are summed on their own in column order. x[n, cols]. */
void lam_sparse_product(const struct lam_module *m, size_t tile, float weight, const float *x, size_t x_stride, size_t n, float *y,
                        size_t y_stride);

/* w[cols] += weight · δ_row, element by element, the elements stride apart. */
void lam_sparse_add_row(const struct lam_module *m, size_t row, float weight, float *w, size_t stride);

#endif
