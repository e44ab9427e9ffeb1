/* Staging of adapter factors into the form that the kernels read. */
#ifndef LAM_ADAPTER_FACTOR_H
#define LAM_ADAPTER_FACTOR_H

#include "adapter/adapter.h"
#include "kernels/kernels.h"

/* f[rows, cols], row-major float32 → staged. quantised: 14-bit groups of 32 along cols, else float32 tiles.
 * budget may be NULL. LAM_E_BUDGET, LAM_E_NO_MEMORY, LAM_E_NON_FINITE. */
lam_code lam_factor_stage(const float *f, uint32_t rows, uint32_t cols, bool quantised, struct lam_budget *budget, struct lam_factor *out,
                          lam_error *err);
void lam_factor_release(struct lam_factor *f);

/* Tiles first .. first+n-1 of a quantised factor. */
struct lam_q14_tiles lam_factor_q14(const struct lam_factor *f, size_t first, size_t n);
/* Tile t of a float factor, [cols][16]. */
const float *lam_factor_float_tile(const struct lam_factor *f, size_t t);

/* Bytes that a staged factor takes; false on overflow. */
bool lam_factor_bytes(uint32_t rows, uint32_t cols, bool quantised, size_t *bytes);

#endif
