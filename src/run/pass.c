#include "run/pass.h"
#include "base/alloc.h"
#include "run/activation.h"

#define PLAN_STEP 8 /* rows that a product takes together */

lam_code lam_pass_row(struct lam_composition *c, const size_t *starts, uint32_t token, size_t position, struct lam_kv *kv, float *logits,
                      struct lam_row *out, lam_error *err)
{
    *out = (struct lam_row){.token = token, .position = position, .kv = kv, .logits = logits};
    return lam_composition_overlay(c, lam_activation_mask(starts, lam_composition_n_activated(c), position), &out->overlay, err);
}

/* Positions first .. first+n-1; every[n, n_vocab] takes the logits that `each` is told of. */
static lam_code run_plan(const struct lam_pass *p, size_t first, size_t n, float *every, lam_error *err)
{
    struct lam_base *base = p->composition->base;
    struct lam_row *rows = base->rows;
    size_t n_vocab = base->model->config.n_vocab;
    for (size_t i = 0; i < n; i++) {
        float *logits = first + i + 1 == p->end ? p->logits : p->each && first + i >= p->told ? every + i * n_vocab : NULL;
        LAM_TRY(lam_pass_row(p->composition, p->starts, p->tokens[first + i], first + i, p->kv, logits, &rows[i], err));
    }
    LAM_TRY(lam_forward_run(base->forward, rows, n, err));
    for (size_t i = 0; i < n; i++) {
        if (rows[i].failed)
            return LAM_RAISE(err, LAM_E_ACTIVATION, "position %zu: an activation left the finite range", first + i);
        if (p->each && first + i >= p->told && !p->each(p->context, first + i, rows[i].logits, n_vocab))
            return LAM_RAISE(err, LAM_E_CANCELLED, "stopped at position %zu", first + i);
    }
    if (p->progress && !p->progress(p->progress_context, first + n - p->from, p->end - p->from))
        return LAM_RAISE(err, LAM_E_CANCELLED, "stopped after %zu of %zu rows", first + n - p->from, p->end - p->from);
    return LAM_OK;
}

/* Plans of about equal size: a last plan of a few rows would read all weights for little. */
static lam_code run_plans(const struct lam_pass *p, float *every, lam_error *err)
{
    size_t n = p->end - p->from, most = p->composition->base->engine->max_rows, plans = (n + most - 1) / most;
    for (size_t done = 0, now; done < n; done += now, plans--) {
        now = ((n - done) / plans + PLAN_STEP - 1) / PLAN_STEP * PLAN_STEP;
        if (now > most) now = most;
        if (now > n - done || plans == 1) now = n - done;
        LAM_TRY(run_plan(p, p->from + done, now, every, err));
    }
    return LAM_OK;
}

lam_code lam_pass_run(const struct lam_pass *p, lam_error *err)
{
    struct lam_base *base = p->composition->base;
    size_t n = p->end - p->from, rows = n < base->engine->max_rows ? n : base->engine->max_rows, row_bytes;
    float *every = NULL;
    LAM_TRY(lam_verified_need(&base->verified, p->tokens + p->from, n, err));
    if (p->each) {
        if (!lam_mul_size(base->model->config.n_vocab, sizeof *every, &row_bytes)) row_bytes = SIZE_MAX;
        LAM_TRY(lam_budget_alloc(&base->engine->budget, rows, row_bytes, "logits of every position", &every, err));
    }
    lam_code code = run_plans(p, every, err);
    lam_budget_free(every);
    return code;
}
