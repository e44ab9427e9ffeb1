/* IA³: a learnt vector that scales what comes out of a module, or what goes in. */
#include "adapter/opening.h"
#include "base/alloc.h"

lam_code lam_ia3_open(struct lam_opening *o, struct lam_module *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    float *output, *input;
    LAM_TRY(lam_opening_vector(o, t, LAM_PART_IA3_OUTPUT, t->rows, &output, err));
    m->ia3 = output;
    LAM_TRY(lam_opening_vector(o, t, LAM_PART_IA3_INPUT, t->cols, &input, err));
    if (!output && !input) return LAM_OK;
    if (!output) m->ia3 = input;
    m->no_effect = true;
    for (uint32_t i = 0; i < (output ? t->rows : t->cols); i++) m->no_effect &= m->ia3[i] == 1.0f;
    if (output && input) {
        lam_budget_free(input);
        return LAM_RAISE(err, LAM_E_DUPLICATE, "%s: %s has both of ia3_output and ia3_input", o->path, t->name);
    }
    if (!t->matrix || t->role == LAM_ROLE_EMBEDDING) return LAM_RAISE(err, LAM_E_METHOD, "%s: IA³ on %s", o->path, t->name);
    m->method = output ? LAM_METHOD_IA3_OUTPUT : LAM_METHOD_IA3_INPUT;
    return LAM_OK;
}
