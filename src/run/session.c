#include "run/session.h"
#include "base/alloc.h"
#include "run/activation.h"
#include "run/lease.h"
#include "run/pass.h"

#include <string.h>

#define DEFAULT_CONTEXT 4096
#define MAX_CONTEXT ((size_t)1 << 27)

lam_code lam_session_new(lam_composition *composition, size_t context, lam_session **out, lam_error *err)
{
    *out = NULL;
    const struct lam_config *c = &composition->base->model->config;
    if (context == 0) context = c->n_context < DEFAULT_CONTEXT ? c->n_context : DEFAULT_CONTEXT;
    if (context > MAX_CONTEXT) return LAM_RAISE(err, LAM_E_LIMIT, "a context of %zu positions; %zu are possible", context, MAX_CONTEXT);
    struct lam_session *s = lam_alloc(1, sizeof *s);
    if (!s) return LAM_RAISE(err, LAM_E_NO_MEMORY, "a session");
    atomic_fetch_add(&composition->holders, 1);
    s->composition = composition;
    s->context = context;
    s->stale = lam_composition_n_activated(composition) > 0;
    for (size_t i = 0; i < LAM_MAX_ACTIVATED; i++) s->starts[i] = LAM_NO_START;
    struct lam_budget *budget = &composition->base->engine->budget;
    lam_code code = lam_budget_alloc(budget, context, sizeof *s->tokens, "a session's tokens", &s->tokens, err);
    if (code == LAM_OK) code = lam_budget_alloc(budget, c->n_vocab, sizeof *s->logits, "logits", &s->logits, err);
    if (code == LAM_OK) code = lam_budget_alloc(budget, c->n_vocab, sizeof *s->next_logits, "logits", &s->next_logits, err);
    if (code == LAM_OK) code = lam_session_new_kv(s, composition, &s->kv, err);
    if (code == LAM_OK) *out = s;
    else lam_session_free(s);
    return code;
}

void lam_session_free(lam_session *s)
{
    if (!s) return;
    struct lam_engine *engine = s->composition->base->engine;
    if (engine->prefix && s->length > s->n_published) {
        lam_pool_lock(engine->pool);
        lam_session_publish(s);
        lam_pool_unlock(engine->pool);
    }
    lam_session_free(s->drafter);
    lam_kv_release(&s->kv);
    lam_budget_free(s->tokens);
    lam_budget_free(s->logits);
    lam_budget_free(s->next_logits);
    lam_budget_free(s->ahead.logits);
    lam_composition_free(s->composition);
    lam_lease_release(s->lease);
    lam_free(s);
}

size_t lam_session_length(const lam_session *s) { return s->length; }
size_t lam_session_context(const lam_session *s) { return s->context; }
const char *lam_session_composition_id(const lam_session *s) { return s->composition->id; }
const float *lam_session_logits(const lam_session *s) { return s->has_logits ? s->logits : NULL; }
void lam_session_allow_base(lam_session *s, bool allow) { s->allow_base = allow; }

lam_code lam_session_new_kv(const struct lam_session *s, const struct lam_composition *c, struct lam_kv *out, lam_error *err)
{
    const struct lam_config *m = &c->base->model->config;
    LAM_TRY(lam_kv_init(out, c->kv, m->n_layers, m->n_kv_heads, m->head_dim, s->context, err));
    out->budget = &c->base->engine->budget;
    return LAM_OK;
}

void lam_session_take_logits(struct lam_session *s)
{
    float *old = s->logits;
    s->logits = s->next_logits;
    s->next_logits = old;
    s->has_logits = true;
}

void lam_session_drop_ahead(struct lam_session *s) { s->ahead.n = s->ahead.at = 0; }

lam_code lam_session_truncate(lam_session *s, size_t length, lam_error *err)
{
    const struct lam_composition *c = s->composition;
    if (length > s->length) return LAM_RAISE(err, LAM_E_ARGUMENT, "cannot shorten %zu tokens to %zu", s->length, length);
    if (length == s->length) return LAM_OK;
    s->has_logits = false;
    s->length = length;
    if (s->n_published > length) s->n_published = length;
    lam_session_drop_ahead(s);
    for (size_t i = 0; i < lam_composition_n_activated(c); i++) {
        if (s->starts[i] == LAM_NO_START) continue;
        if (s->starts[i] + lam_composition_activated(c, i)->n_invocation > length) s->stale = true;
        if (s->starts[i] >= length) s->starts[i] = LAM_NO_START; /* no row that is left is its */
    }
    return LAM_OK;
}

lam_code lam_session_check_generated(const struct lam_session *s, lam_error *err)
{
    if (!s->stale) return LAM_OK;
    for (size_t i = 0; i < lam_composition_n_activated(s->composition); i++)
        if (!s->allow_base || s->starts[i] != LAM_NO_START)
            return LAM_RAISE(err, LAM_E_INVOCATION, "adapter %s: no submission says where it acts; feed the history first",
                             lam_composition_activated(s->composition, i)->name);
    return LAM_OK;
}

static lam_code check_step(lam_session *const sessions[], size_t n, lam_error *err)
{
    struct lam_base *base = sessions[0]->composition->base;
    if (n > base->engine->max_rows)
        return LAM_RAISE(err, LAM_E_LIMIT, "%zu sessions in one step; %zu are possible", n, base->engine->max_rows);
    for (size_t i = 0; i < n; i++) {
        struct lam_session *s = sessions[i];
        if (s->composition->base != base) return LAM_RAISE(err, LAM_E_WRONG_BASE, "session %zu of the step has another base", i);
        for (size_t j = 0; j < i; j++)
            if (sessions[j] == s) return LAM_RAISE(err, LAM_E_DUPLICATE, "session %zu occurs twice in the step", i);
        if (s->length == s->context)
            return LAM_RAISE(err, LAM_E_CONTEXT, "a token after %zu does not fit a context of %zu", s->length, s->context);
        LAM_TRY(lam_session_check_generated(s, err));
        LAM_TRY(lam_kv_write(&s->kv, s->length, s->length + 1, err));
    }
    return lam_mapping_check(&base->model->file->file, err);
}

static lam_code step_locked(lam_session *const sessions[], const uint32_t tokens[], size_t n, lam_error *err)
{
    struct lam_base *base = sessions[0]->composition->base;
    struct lam_row *rows = base->rows;
    LAM_TRY(lam_verified_need(&base->verified, tokens, n, err));
    for (size_t i = 0; i < n; i++)
        LAM_TRY(lam_pass_row(sessions[i]->composition, sessions[i]->starts, tokens[i], sessions[i]->length, &sessions[i]->kv,
                             sessions[i]->next_logits, &rows[i], err));
    LAM_TRY(lam_forward_run(base->forward, rows, n, err));
    const struct lam_row *failed = NULL;
    for (size_t i = 0; i < n; i++) {
        struct lam_session *s = sessions[i];
        if (rows[i].failed) {
            if (!failed) failed = &rows[i];
            continue; /* one session's end is not the others' */
        }
        s->tokens[s->length++] = tokens[i];
        lam_session_take_logits(s);
    }
    if (!failed) return LAM_OK;
    return LAM_RAISE(err, LAM_E_ACTIVATION, "session %zu of the step, position %zu: an activation left the finite range",
                     (size_t)(failed - rows), failed->position);
}

lam_code lam_session_step(lam_session *const sessions[], const uint32_t tokens[], size_t n, lam_error *err)
{
    if (n == 0) return LAM_OK;
    LAM_TRY(check_step(sessions, n, err));
    struct lam_base *base = sessions[0]->composition->base;
    LAM_TRY(lam_lease_begin(sessions, n, err));
    for (size_t i = 0; i < n; i++) lam_session_drop_ahead(sessions[i]);
    lam_pool_lock(base->engine->pool);
    lam_code code = step_locked(sessions, tokens, n, err);
    lam_pool_unlock(base->engine->pool);
    lam_lease_end(sessions, n);
    return code;
}
