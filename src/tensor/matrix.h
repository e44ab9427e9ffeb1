/* A matrix in row tiles, in the form that the kernels read. */
#ifndef LAM_TENSOR_MATRIX_H
#define LAM_TENSOR_MATRIX_H

#include "tensor/dtype.h"
#include "tensor/residual.h"

struct lam_target;

/* w[rows, cols]: of a base in its mapped file, of an adapter in memory of its own. */
struct lam_matrix {
    enum lam_dtype dtype;
    uint32_t rows, cols;
    const uint8_t *tiles;
    size_t stride;        /* bytes from tile to tile */
    struct lam_residual residual;
    const struct lam_target *target; /* what adapters know a base's matrix as */
};

#endif
