/* Tensors in place of the base's own: matrices and norms (PEFT's modules_to_save), biases. */
#include "adapter/opening.h"

static lam_code open_norm(struct lam_opening *o, struct lam_module *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    LAM_TRY(lam_opening_vector(o, t, LAM_PART_WEIGHT, t->cols, &m->vector, err));
    for (uint32_t i = 0; m->vector && t->offset != 0.0f && i < t->cols; i++) m->vector[i] = m->vector[i] + t->offset;
    return LAM_OK;
}

lam_code lam_replaced_open(struct lam_opening *o, struct lam_module *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    const struct lam_slm_entry *e;
    if (!t->matrix) return open_norm(o, m, err);
    LAM_TRY(lam_opening_part(o, t, LAM_PART_WEIGHT, t->rows, t->cols, &e, err));
    if (e) LAM_TRY(lam_opening_matrix(o, e, &m->weight, err));
    m->weight.target = t;
    LAM_TRY(lam_opening_vector(o, t, LAM_PART_BIAS, t->rows, &m->bias, err));
    if (m->bias && !lam_role_bias(t->role))
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "%s: %s.bias: this module has no bias", o->path, t->name);
    return LAM_OK;
}
