/* The list of variants on x86-64. __builtin_cpu_supports also asks whether the system saves the registers. */
#include "kernels/scalar.h"

extern const struct lam_kernels lam_kernels_avx2, lam_kernels_avx2vnni, lam_kernels_avx512;

static bool always(void) { return true; }

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }

static bool has_avx2vnni(void) { return has_avx2() && __builtin_cpu_supports("avxvnni"); }

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

const struct lam_variant lam_variants[] = {
    {&lam_kernels_scalar, always},
    {&lam_kernels_avx2, has_avx2},
    {&lam_kernels_avx2vnni, has_avx2vnni},
    {&lam_kernels_avx512, has_avx512},
};
const size_t lam_n_variants = sizeof lam_variants / sizeof *lam_variants;
