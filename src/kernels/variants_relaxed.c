/* The list of variants in the WebAssembly module with relaxed instructions, which an engine without them refuses as a whole. */
#include "kernels/scalar.h"
#include "kernels/simd128.h"

static bool always(void) { return true; }

const struct lam_variant lam_variants[] = {
    {&lam_kernels_scalar, always},
    {&lam_kernels_simd128, always},
    {&lam_kernels_relaxed, lam_relaxed_dot_is_exact},
};
const size_t lam_n_variants = sizeof lam_variants / sizeof *lam_variants;
