/* The list of variants in the WebAssembly module that every engine runs. Relaxed instructions would keep an engine without them from
 * loading it: they are in another module (variants_relaxed.c), here the list just knows their name. */
#include "kernels/scalar.h"
#include "kernels/simd128.h"

static const struct lam_kernels relaxed = {.name = "relaxed-simd"};

static bool always(void) { return true; }
static bool never(void) { return false; }

const struct lam_variant lam_variants[] = {
    {&lam_kernels_scalar, always},
    {&lam_kernels_simd128, always},
    {&relaxed, never},
};
const size_t lam_n_variants = sizeof lam_variants / sizeof *lam_variants;
