/* An adapter file while it is opened: how the methods get at their tensors. */
#ifndef LAM_ADAPTER_OPENING_H
#define LAM_ADAPTER_OPENING_H

#include "adapter/adapter.h"
#include "base/budget.h"
#include "base/json.h"

struct lam_opening {
    const char *path;
    struct lam_slm *file;
    const struct lam_base_targets *base;
    struct lam_budget *budget;   /* may be NULL */
    struct lam_adapter *adapter;
    size_t n_used;  /* tensors that belong to a module */
    size_t bytes;   /* staged by the module at work */
};

/* The tensor of one part of a target, checked to be rows × cols of the part's type; *out is NULL if it is absent. */
lam_code lam_opening_part(struct lam_opening *o, const struct lam_target *target, enum lam_adapter_part part, uint32_t rows,
                          uint32_t cols, const struct lam_slm_entry **out, lam_error *err);

/* A whole float tensor as float32, owned by the caller (lam_budget_free); refused if a value is not finite. */
lam_code lam_opening_floats(const struct lam_opening *o, const struct lam_slm_entry *e, float **out, lam_error *err);

/* lam_opening_part and lam_opening_floats: *out is NULL if the tensor is absent. */
lam_code lam_opening_vector(struct lam_opening *o, const struct lam_target *target, enum lam_adapter_part part, uint32_t n, float **out,
                            lam_error *err);

/* A whole matrix in row tiles of its own type, tiles owned by the caller; refused if a value is not finite. */
lam_code lam_opening_matrix(struct lam_opening *o, const struct lam_slm_entry *e, struct lam_matrix *out, lam_error *err);

/* One method each. Which one a module has follows from its tensors; item is the module's entry in the metadata. */
lam_code lam_lora_open(struct lam_opening *o, const json_t *item, struct lam_module *m, lam_error *err);
lam_code lam_dora_open(struct lam_opening *o, struct lam_module *m, lam_error *err); /* after lam_lora_open */
lam_code lam_ia3_open(struct lam_opening *o, struct lam_module *m, lam_error *err);
lam_code lam_sparse_open(struct lam_opening *o, struct lam_module *m, lam_error *err);
lam_code lam_dense_open(struct lam_opening *o, struct lam_module *m, lam_error *err);
lam_code lam_replaced_open(struct lam_opening *o, struct lam_module *m, lam_error *err); /* weight, norm, bias */

void lam_lora_release(struct lam_lora *l);
void lam_dora_release(struct lam_dora *d);
void lam_sparse_release(struct lam_sparse *s);

#endif
