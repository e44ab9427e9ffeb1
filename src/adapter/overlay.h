/* An overlay: the operators that a composition lays over the base, in order, looked up by matrix. It borrows the adapters. */
#ifndef LAM_ADAPTER_OVERLAY_H
#define LAM_ADAPTER_OVERLAY_H

#include "adapter/adapter.h"

struct lam_overlay_op {
    const struct lam_lora *lora;
    float scale;               /* w·s, the product in float64, rounded once */
};

struct lam_overlay_slot {
    const struct lam_overlay_op *ops; /* in composition order */
    size_t n_ops;
    const float *bias;         /* replaces the base's bias; NULL: keep it. Owned by the overlay */
};

struct lam_overlay {
    struct lam_overlay_slot *slots; /* one a target, in the order of the base's targets */
    struct lam_overlay_op *ops;
    const struct lam_target *first_target;
    size_t n_slots;
};

/* base_bias(context, target) gives the base's bias[rows] of a target or NULL. Adapters of weight 0 leave no trace: the slots are
 * then the base's. Two adapters of non-zero weight that both replace one bias are LAM_E_CONFLICT. */
typedef const float *(*lam_base_bias_fn)(const void *context, const struct lam_target *target);
lam_code lam_overlay_build(const struct lam_base_targets *base, struct lam_adapter *const *adapters, const double *weights,
                           size_t n_adapters, lam_base_bias_fn base_bias, const void *context, struct lam_overlay *out,
                           lam_error *err);
void lam_overlay_release(struct lam_overlay *o);

/* NULL overlay: no operators. */
const struct lam_overlay_slot *lam_overlay_slot(const struct lam_overlay *o, const struct lam_target *target);

#endif
