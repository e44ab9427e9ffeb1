#include "kernels/kernels.h"
#include "base/str.h"

#include <string.h>

lam_code lam_kernels_pick(const char *name, const struct lam_kernels **out, lam_error *err)
{
    const struct lam_kernels *best = NULL;
    bool forced = name && *name, known = false;
    for (size_t i = 0; i < lam_n_variants; i++) {
        const struct lam_variant *v = &lam_variants[i];
        bool wanted = !forced || strcmp(name, v->kernels->name) == 0;
        known |= wanted;
        if (wanted && v->supported()) best = v->kernels;
    }
    *out = best;
    if (best) return LAM_OK;
    struct lam_str names = {0};
    for (size_t i = 0; i < lam_n_variants; i++) lam_str_printf(&names, "%s%s", i ? ", " : "", lam_variants[i].kernels->name);
    lam_code code = LAM_RAISE(err, LAM_E_ISA, "instruction set %s: %s; this program holds %s", name,
                              known ? "this CPU lacks it" : "unknown", names.data ? names.data : "");
    lam_str_release(&names);
    return code;
}
