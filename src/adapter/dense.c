/* Dense deltas: task vectors. */
#include "adapter/opening.h"

lam_code lam_dense_open(struct lam_opening *o, struct lam_module *m, lam_error *err)
{
    const struct lam_slm_entry *e;
    LAM_TRY(lam_opening_part(o, m->target, LAM_PART_DELTA, m->target->rows, m->target->cols, &e, err));
    if (!e) return LAM_OK;
    if (!m->target->matrix) return LAM_RAISE(err, LAM_E_METHOD, "%s: a dense delta of %s, which is no matrix", o->path, m->target->name);
    m->method = LAM_METHOD_DENSE;
    return lam_opening_matrix(o, e, &m->dense, err);
}
