#include "tensor/rows.h"
#include "tensor/decode.h"
#include "tensor/tiles.h"

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
