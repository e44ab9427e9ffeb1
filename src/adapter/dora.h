/* What DoRA multiplies the rows of a module by. */
#ifndef LAM_ADAPTER_DORA_H
#define LAM_ADAPTER_DORA_H

#include "adapter/adapter.h"

/* m' = magnitude / ‖W + scale·BA‖ of each row, → out[rows]; scale is w·s. A value may be not finite. */
void lam_dora_factors(const struct lam_module *m, double scale, float *out);

#endif
