/* Low-rank factors: LoRA, rsLoRA, and the factors of DoRA. */
#include "adapter/factor.h"
#include "adapter/lora.h"
#include "adapter/opening.h"
#include "base/alloc.h"

#include <math.h>
#include <string.h>

double lam_lora_scale(const struct lam_lora *m)
{
    return m->alpha / (m->rank_stabilised ? sqrt((double)m->rank) : (double)m->rank);
}

static bool all_zero(const float *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (f[i] != 0.0f) return false;
    return true;
}

static lam_code read_scaling(const struct lam_opening *o, const json_t *item, struct lam_module *m, lam_error *err)
{
    const char *name = NULL, *scaling = NULL;
    json_int_t rank = 0;
    json_error_t problem;
    if (json_unpack_ex((json_t *)item, &problem, 0, "{s:s,s:I,s:F,s:s}", "name", &name, "rank", &rank, "alpha", &m->lora.alpha, "scaling",
                       &scaling) != 0)
        return lam_json_refuse(&problem, o->path, err);
    if (json_object_size(item) != 4) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s: module %s has unknown fields", o->path, name);
    if (rank < 1 || rank > INT32_MAX) return LAM_RAISE(err, LAM_E_RANK, "%s: %s has rank %lld", o->path, name, (long long)rank);
    if (!isfinite(m->lora.alpha)) return LAM_RAISE(err, LAM_E_NON_FINITE, "%s: %s: alpha is not finite", o->path, name);
    m->lora.rank = (uint32_t)rank;
    m->lora.rank_stabilised = strcmp(scaling, "alpha/sqrt(r)") == 0;
    if (!m->lora.rank_stabilised && strcmp(scaling, "alpha/r") != 0)
        return LAM_RAISE(err, LAM_E_METHOD, "%s: %s: scaling rule %s", o->path, name, scaling);
    return LAM_OK;
}

static lam_code stage(struct lam_opening *o, const struct lam_slm_entry *e, uint32_t rows, uint32_t cols, bool quantised,
                      struct lam_factor *out, bool *zero, lam_error *err)
{
    float *values;
    size_t bytes = 0;
    LAM_TRY(lam_opening_floats(o, e, &values, err));
    *zero = all_zero(values, (size_t)rows * cols);
    lam_code code = lam_factor_stage(values, rows, cols, quantised, o->budget, out, err);
    lam_budget_free(values);
    if (code == LAM_OK && lam_factor_bytes(rows, cols, quantised, &bytes)) o->bytes += bytes;
    return code;
}

lam_code lam_lora_open(struct lam_opening *o, const json_t *item, struct lam_module *m, lam_error *err)
{
    const struct lam_target *t = m->target;
    const struct lam_slm_entry *a, *b;
    bool embedding = t->role == LAM_ROLE_EMBEDDING, quantised = lam_dtype_is_quantised(t->dtype) && !embedding, zero;
    uint32_t d_out = embedding ? t->cols : t->rows;
    if (!t->matrix) return LAM_RAISE(err, LAM_E_METHOD, "%s: factors for %s, which is no matrix", o->path, t->name);
    LAM_TRY(read_scaling(o, item, m, err));
    uint32_t rank = m->lora.rank;
    LAM_TRY(lam_opening_part(o, t, LAM_PART_A, embedding ? t->rows : rank, embedding ? rank : t->cols, &a, err));
    LAM_TRY(lam_opening_part(o, t, LAM_PART_B, d_out, rank, &b, err));
    if (!a || !b) return LAM_RAISE(err, LAM_E_MISSING_PAIR, "%s: %s has no %s", o->path, t->name, a ? "lora_b" : "lora_a");
    m->method = LAM_METHOD_LORA;
    LAM_TRY(stage(o, b, d_out, rank, quantised, &m->lora.b, &m->no_effect, err));
    LAM_TRY(lam_opening_vector(o, t, LAM_PART_B_BIAS, d_out, &m->lora.b_bias, err));
    if (m->lora.b_bias && embedding) return LAM_RAISE(err, LAM_E_METHOD, "%s: a bias of B on the embedding", o->path);
    if (m->lora.b_bias) m->no_effect &= all_zero(m->lora.b_bias, d_out);
    if (!embedding) return stage(o, a, rank, t->cols, quantised, &m->lora.a, &zero, err);
    o->bytes += (size_t)t->rows * rank * sizeof(float);
    return lam_opening_floats(o, a, &m->lora.embedding_a, err);
}

lam_code lam_lora_read(struct lam_slm *file, const struct lam_module *m, struct lam_budget *budget, float **a, struct lam_factor *b,
                       lam_error *err)
{
    struct lam_opening o = {.path = file->file.path, .file = file, .budget = budget};
    const struct lam_target *t = m->target;
    uint32_t rank = m->lora.rank;
    const struct lam_slm_entry *entry;
    float *values;
    LAM_TRY(lam_opening_part(&o, t, LAM_PART_B, t->rows, rank, &entry, err));
    LAM_TRY(lam_opening_floats(&o, entry, &values, err));
    lam_code code = lam_factor_stage(values, t->rows, rank, false, budget, b, err);
    lam_budget_free(values);
    if (code != LAM_OK) return code;
    LAM_TRY(lam_opening_part(&o, t, LAM_PART_A, rank, t->cols, &entry, err));
    LAM_TRY(lam_opening_floats(&o, entry, &values, err));
    code = lam_budget_alloc(budget, (size_t)t->cols * rank, sizeof **a, "a materialised factor", a, err);
    for (size_t k = 0; *a && k < t->cols; k++)
        for (size_t r = 0; r < rank; r++) (*a)[k * rank + r] = values[r * t->cols + k];
    lam_budget_free(values);
    return code;
}

void lam_lora_release(struct lam_lora *l)
{
    lam_factor_release(&l->a);
    lam_factor_release(&l->b);
    lam_budget_free(l->embedding_a);
    lam_budget_free(l->b_bias);
}
