/* The list of variants on 64-bit ARM. Every such CPU has Advanced SIMD; the dot product is an option of ARMv8.2. */
#include "kernels/scalar.h"

#include <sys/auxv.h>

extern const struct lam_kernels lam_kernels_neon, lam_kernels_neondot;

/* Linux's HWCAP_ASIMDDP, which <sys/auxv.h> names only where _DEFAULT_SOURCE is asked for. */
#define HAS_DOT_PRODUCT (1ul << 20)

static bool always(void) { return true; }

static bool has_dot_product(void) { return (getauxval(AT_HWCAP) & HAS_DOT_PRODUCT) != 0; }

const struct lam_variant lam_variants[] = {
    {&lam_kernels_scalar, always},
    {&lam_kernels_neon, always},
    {&lam_kernels_neondot, has_dot_product},
};
const size_t lam_n_variants = sizeof lam_variants / sizeof *lam_variants;
