/* Rows and whole tiles of a tiled matrix, decoded. */
#ifndef LAM_TENSOR_ROWS_H
#define LAM_TENSOR_ROWS_H

#include "tensor/matrix.h"

/* Bytes of a row as GGUF stores it: what lam_matrix_row needs as scratch. */
size_t lam_matrix_row_bytes(const struct lam_matrix *w);

/* out[cols] = row r, residual included. bytes[lam_matrix_row_bytes] is scratch. */
void lam_matrix_row(const struct lam_matrix *w, size_t r, uint8_t *bytes, float *out);

/* Floats of scratch that lam_matrix_tile needs. */
size_t lam_matrix_tile_scratch(const struct lam_matrix *w);

/* out[cols][16] = the 16 rows of a tile, residuals included; rows that the matrix does not have are zero. Weights are finite. */
void lam_matrix_tile(const struct lam_matrix *w, size_t tile, float *scratch, float *out);

#endif
