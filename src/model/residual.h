/* Outlier residuals in a product. */
#ifndef LAM_MODEL_RESIDUAL_H
#define LAM_MODEL_RESIDUAL_H

#include "model/model.h"

/* y[n, 16] += the residual values of the tile's rows times x[n, cols], in index order (docs/numeric.md); strides count elements.
 * Rows of the tile behind the matrix's last are left alone. */
void lam_residual_product(const struct lam_matrix *w, size_t tile, const float *x, size_t x_stride, size_t n, float *y, size_t y_stride);

#endif
