/* The effective weights of a changed matrix: W and every operator of a slot in float32, one tile at a time (docs/numeric.md,
 * "materialize"). What the policy materialize computes with, and what merging writes. */
#ifndef LAM_ADAPTER_EFFECTIVE_H
#define LAM_ADAPTER_EFFECTIVE_H

#include "adapter/overlay.h"
#include "kernels/kernels.h"

/* Floats of scratch that lam_effective_tile needs for matrices of cols columns. */
size_t lam_effective_scratch(const struct lam_matrix *w);

/* out[cols][16] = the tile of W (the base's, or the slot's own) with the slot's operators in order and the factors of its input. The
 * slot is materialised. scratch[lam_effective_scratch], aligned to 64. */
void lam_effective_tile(const struct lam_overlay_slot *slot, const struct lam_matrix *base, size_t tile, const struct lam_kernels *kernels,
                        float *scratch, float *out);

#endif
