#include "tensor/residual.h"
#include "base/alloc.h"
#include "tensor/half.h"

#include <inttypes.h>

static size_t column_bytes(uint64_t cols) { return cols <= 65536 ? 2 : 4; }

bool lam_residual_bytes(uint64_t rows, uint64_t cols, uint32_t n, size_t *bytes)
{
    size_t starts, pairs;
    return rows < SIZE_MAX && lam_mul_size((size_t)rows + 1, sizeof(uint32_t), &starts) &&
           lam_mul_size(n, column_bytes(cols) + sizeof(uint16_t), &pairs) && lam_add_size(starts, pairs, bytes);
}

struct lam_residual lam_residual_view(const void *bytes, uint64_t rows, uint64_t cols, uint32_t n)
{
    struct lam_residual r = {.n = n, .starts = bytes};
    const uint32_t *columns = r.starts + rows + 1;
    if (column_bytes(cols) == 2) {
        r.columns16 = (const uint16_t *)(const void *)columns;
        r.values = r.columns16 + n;
    } else {
        r.columns32 = columns;
        r.values = (const uint16_t *)(const void *)(columns + n);
    }
    return r;
}

uint32_t lam_residual_column(const struct lam_residual *r, uint32_t i) { return r->columns16 ? r->columns16[i] : r->columns32[i]; }

lam_code lam_residual_check(const struct lam_residual *r, uint64_t rows, uint64_t cols, const char *name, int len, lam_error *err)
{
    if (r->n == 0) return LAM_OK;
    if (r->starts[0] != 0 || r->starts[rows] != r->n)
        return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.*s: residual rows go from %" PRIu32 " to %" PRIu32 " of %" PRIu32 " values", len, name,
                         r->starts[0], r->starts[rows], r->n);
    for (uint64_t row = 0; row < rows; row++) {
        uint32_t from = r->starts[row], to = r->starts[row + 1];
        if (to < from || to > r->n)
            return LAM_RAISE(err, LAM_E_FORMAT, "tensor %.*s: residual row %" PRIu64 " goes from %" PRIu32 " to %" PRIu32, len, name, row,
                             from, to);
        for (uint32_t i = from; i < to; i++) {
            uint32_t column = lam_residual_column(r, i);
            if (column >= cols)
                return LAM_RAISE(err, LAM_E_OVERFLOW, "tensor %.*s: residual in column %" PRIu32 " of %" PRIu64, len, name, column, cols);
            if (i > from && column <= lam_residual_column(r, i - 1))
                return LAM_RAISE(err, column == lam_residual_column(r, i - 1) ? LAM_E_DUPLICATE : LAM_E_FORMAT,
                                 "tensor %.*s: residual columns of row %" PRIu64 " don't rise at %" PRIu32, len, name, row, column);
        }
    }
    for (uint32_t i = 0; i < r->n; i++)
        if ((r->values[i] & 0x7c00) == 0x7c00)
            return LAM_RAISE(err, LAM_E_NON_FINITE, "tensor %.*s: residual value %" PRIu32 " is NaN or infinite", len, name, i);
    return LAM_OK;
}

void lam_residual_add_row(const struct lam_residual *r, size_t row, float *x)
{
    if (r->n == 0) return;
    for (uint32_t i = r->starts[row]; i < r->starts[row + 1]; i++) {
        float *at = &x[lam_residual_column(r, i)];
        *at = *at + lam_f16_to_f32(r->values[i]);
    }
}
