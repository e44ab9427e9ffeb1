/* Outlier residuals: a matrix's few largest errors of encoding, kept as sparse float16 values beside its blocks.
 * Row-sorted; in a row the columns rise strictly. What they add, and in which order: docs/numeric.md. */
#ifndef LAM_TENSOR_RESIDUAL_H
#define LAM_TENSOR_RESIDUAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one matrix w[rows, cols], as it lies in memory (docs/format.md, "Residuals"); borrowed. All zero: the matrix has none. */
struct lam_residual {
    uint32_t n;             /* values */
    const uint32_t *starts; /* [rows + 1]: row r has the values starts[r] .. starts[r + 1] - 1 */
    const uint16_t *columns16; /* [n]; NULL where there are more than 65536 columns */
    const uint32_t *columns32; /* [n] then */
    const uint16_t *values; /* [n], float16 */
};

/* Bytes of n values of a matrix. False on overflow. */
bool lam_residual_bytes(uint64_t rows, uint64_t cols, uint32_t n, size_t *bytes);

/* The parts of bytes[lam_residual_bytes], which are aligned to 4 and not looked at. */
struct lam_residual lam_residual_view(const void *bytes, uint64_t rows, uint64_t cols, uint32_t n);

/* Whether starts rise from 0 to n, columns rise strictly within their row and are below cols, and values are finite: LAM_E_FORMAT,
 * LAM_E_DUPLICATE, LAM_E_OVERFLOW, LAM_E_NON_FINITE naming the tensor name[len]. */
lam_code lam_residual_check(const struct lam_residual *r, uint64_t rows, uint64_t cols, const char *name, int len, lam_error *err);

uint32_t lam_residual_column(const struct lam_residual *r, uint32_t i);

/* x[cols] += the values of a row, each at its column. */
void lam_residual_add_row(const struct lam_residual *r, size_t row, float *x);

#endif
