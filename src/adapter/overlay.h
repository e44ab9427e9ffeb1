/* An overlay: what a stack of adapters lays over the base, in order, looked up by target. It borrows the adapters. */
#ifndef LAM_ADAPTER_OVERLAY_H
#define LAM_ADAPTER_OVERLAY_H

#include "adapter/adapter.h"

/* One step y ← … of a matrix (docs/numeric.md, "Adapters"). */
struct lam_overlay_op {
    const struct lam_module *module;
    enum lam_method method;    /* NONE: the module's weight at a weight other than 1, y ← y + w·(W'x − y) */
    float scale;               /* LoRA, DoRA: w·s, the product in float64, rounded once; sparse, dense, NONE: w */
    float *rows;               /* [rows], owned. DoRA: m'; IA³: 1 + w·(l − 1); else NULL */
    float *shift;              /* [rows], owned: scale times B's bias; NULL: none */
    float *a;                  /* materialised slots: the file's A as float32 [cols, rank], owned */
    struct lam_factor b;       /* and B in float32 tiles, owned */
};

struct lam_overlay_slot {
    struct lam_overlay_op *ops; /* in stack order, a NONE before all others */
    size_t n_ops;
    const struct lam_matrix *weight; /* in place of the base's; NULL: keep it. Borrowed from its adapter */
    float *input;              /* [cols], owned: the product of the IA³ factors of what goes in; NULL: none */
    float *bias;               /* [rows], owned: in place of the base's; NULL: keep it */
    float *vector;             /* [cols], owned: a norm in place of the base's; NULL: keep it */
    bool materialize;          /* the sum W + Δ is formed in float32 and multiplied by the float-matrix rule */
    float *shift;              /* [rows], owned: what the biases of B come to where it is; NULL: nothing */
};

struct lam_overlay {
    struct lam_overlay_slot *slots; /* one a target, in the order of the base's targets */
    struct lam_overlay_op *ops;
    const struct lam_target *first_target;
    size_t n_slots;
};

enum lam_rule {
    LAM_RULE_ADD,     /* its operators come after those before it */
    LAM_RULE_REPLACE  /* on its modules nothing of those before it is left */
};

struct lam_stack_item {
    const struct lam_adapter *adapter;
    double weight;             /* 0: leaves no trace */
    enum lam_rule rule;
    bool active;               /* false: an activated adapter before its invocation */
};

struct lam_stack {
    const struct lam_stack_item *items; /* [n], in order */
    size_t n;
    const size_t *owners;      /* [targets] or NULL: of a target that several claim alone (replace, a new weight, bias or norm), the item
                                * that has it; SIZE_MAX: none is named */
    const bool *materialize;   /* [targets] or NULL: none */
};

/* base_bias(context, target) gives the base's bias[rows] of a target or NULL. Two items of non-zero weight that claim one target
 * alone, with no owner, are LAM_E_CONFLICT; LAM_E_ARGUMENT where a weight leads out of float32. */
typedef const float *(*lam_base_bias_fn)(const void *context, const struct lam_target *target);
lam_code lam_overlay_build(const struct lam_base_targets *base, const struct lam_stack *stack, lam_base_bias_fn base_bias,
                           const void *context, struct lam_overlay *out, lam_error *err);
void lam_overlay_release(struct lam_overlay *o);

/* NULL overlay: no operators. */
const struct lam_overlay_slot *lam_overlay_slot(const struct lam_overlay *o, const struct lam_target *target);

#endif
