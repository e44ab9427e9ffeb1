/* What DoRA multiplies the rows of a module by. */
#ifndef LAM_ADAPTER_DORA_H
#define LAM_ADAPTER_DORA_H

#include "adapter/adapter.h"

/* m' = magnitude / ‖W + scale·BA‖ of each row, [rows]; scale is w·s. The caller owns it; NULL without memory. A value may be not finite. */
float *lam_dora_factors(const struct lam_module *m, double scale);

#endif
