/* A module's factors as its file has them. */
#ifndef LAM_ADAPTER_LORA_H
#define LAM_ADAPTER_LORA_H

#include "adapter/adapter.h"

/* *a: float32 [cols, rank], A's transpose, owned by the caller (lam_budget_free); *b: B in float32 tiles (lam_factor_release). From the adapter's file, opened again. */
lam_code lam_lora_read(struct lam_slm *file, const struct lam_module *m, struct lam_budget *budget, float **a, struct lam_factor *b,
                       lam_error *err);

#endif
