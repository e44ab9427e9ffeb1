/* The list of variants on machines for which there is only the definition. */
#include "kernels/scalar.h"

static bool always(void) { return true; }

const struct lam_variant lam_variants[] = {{&lam_kernels_scalar, always}};
const size_t lam_n_variants = sizeof lam_variants / sizeof *lam_variants;
