#include "run/draft.h"
#include "base/alloc.h"
#include "base/random.h"
#include "run/activation.h"
#include "run/lease.h"
#include "run/pass.h"
#include "run/sampler.h"
#include "run/session.h"

#include <string.h>

#define LONGEST_MATCH 4 /* last tokens that are looked for */
#define LEAST_MATCH 2

/* ---- by the history ---- */

void lam_draft_look_up(const struct lam_session *s, uint32_t next, uint32_t *tokens, size_t most, size_t *n)
{
    *n = 0;
    for (size_t match = LONGEST_MATCH; match >= LEAST_MATCH; match--) {
        size_t before = match - 1; /* tokens of the history that precede `next` */
        if (before >= s->length) continue;
        const uint32_t *last = s->tokens + s->length - before;
        for (size_t at = s->length; at-- > before;) { /* the latest occurrence first */
            if (s->tokens[at] != next || memcmp(s->tokens + at - before, last, before * sizeof *last) != 0) continue;
            while (*n < most && at + 1 + *n < s->length) {
                tokens[*n] = s->tokens[at + 1 + *n];
                ++*n;
            }
            if (*n) return;
        }
    }
}

/* ---- by the base ---- */

/* A session of the bare base, with the rows of s that are the base's too. */
static lam_code new_drafter(struct lam_session *s, lam_error *err)
{
    static const lam_kv choices[] = {[LAM_KV_F16] = LAM_KV_FLOAT16, [LAM_KV_F32] = LAM_KV_FLOAT32, [LAM_KV_I8] = LAM_KV_INT8};
    lam_compose_options options = {.kv = choices[s->composition->kv]};
    lam_composition *bare = NULL;
    LAM_TRY(lam_compose(s->composition->base, NULL, NULL, 0, &options, &bare, err));
    lam_code code = lam_session_new(bare, s->context, &s->drafter, err);
    lam_composition_free(bare);
    if (code == LAM_OK) memcpy(s->drafter->name_space, s->name_space, sizeof s->name_space);
    return code;
}

static lam_code share_rows(struct lam_session *s, lam_error *err)
{
    struct lam_session *d = s->drafter, as_base = *d;
    struct lam_row_contract contracts[2];
    struct lam_run *runs[2] = {NULL, NULL};
    struct lam_rows have, want;
    size_t n = 0;
    as_base.tokens = s->tokens;
    as_base.length = s->length;
    lam_pool_lock(d->composition->base->engine->pool);
    lam_code code = lam_session_rows(s, &contracts[0], &runs[0], &have, err);
    if (code == LAM_OK) code = lam_session_rows(&as_base, &contracts[1], &runs[1], &want, err);
    lam_pool_unlock(d->composition->base->engine->pool);
    if (code == LAM_OK) code = lam_rows_admit(&want, &have, false, &n, err);
    if (code == LAM_OK) code = lam_kv_fork(&s->kv, n, &d->kv, err);
    if (code == LAM_OK) {
        memcpy(d->tokens, s->tokens, n * sizeof *d->tokens);
        d->length = n;
    }
    lam_free(runs[0]);
    lam_free(runs[1]);
    return code;
}

/* Brings the drafter to the history and `next`. */
static lam_code follow(struct lam_session *s, uint32_t next, lam_error *err)
{
    struct lam_session *d = s->drafter;
    size_t same = 0, most = d->length < s->length ? d->length : s->length;
    while (same < most && d->tokens[same] == s->tokens[same]) same++;
    LAM_TRY(lam_session_truncate(d, same, err));
    if (d->length < s->length) LAM_TRY(lam_session_feed(d, s->tokens + same, s->length - same, NULL, NULL, err));
    return lam_session_step(&d, &next, 1, err);
}

lam_code lam_draft_base(struct lam_session *s, const lam_sampling *sampling, uint32_t next, uint32_t *tokens, size_t most, size_t *n,
                        lam_error *err)
{
    *n = 0;
    if (!s->drafter) {
        LAM_TRY(new_drafter(s, err));
        LAM_TRY(share_rows(s, err));
    }
    struct lam_session *d = s->drafter;
    LAM_TRY(follow(s, next, err));
    while (*n < most) {
        uint32_t token;
        LAM_TRY(lam_sample(d->logits, d->composition->base->model->config.n_vocab, sampling, d->tokens, d->length,
                           lam_uniform(sampling->seed, s->n_draws + *n), &token, err));
        if (lam_token_is_end(d->composition->base, token)) return LAM_OK;
        tokens[(*n)++] = token;
        if (*n < most && d->length < d->context) LAM_TRY(lam_session_step(&d, &token, 1, err));
        else break;
    }
    return LAM_OK;
}

/* ---- ahead ---- */

bool lam_ahead_take(struct lam_session *s, uint32_t token)
{
    struct lam_ahead *a = &s->ahead;
    size_t n_vocab = s->composition->base->model->config.n_vocab;
    if (a->at == a->n || a->tokens[a->at] != token) return false;
    memcpy(s->logits, a->logits + a->at * n_vocab, n_vocab * sizeof *s->logits);
    s->tokens[s->length++] = token;
    a->at++;
    return true;
}

static lam_code plan_ahead(struct lam_session *s, uint32_t token, const uint32_t *guesses, size_t n, lam_error *err)
{
    struct lam_base *base = s->composition->base;
    struct lam_row *rows = base->rows;
    size_t n_vocab = base->model->config.n_vocab;
    LAM_TRY(lam_verified_need(&base->verified, guesses, n, err));
    for (size_t i = 0; i <= n; i++)
        LAM_TRY(lam_pass_row(s->composition, s->starts, i ? guesses[i - 1] : token, s->length + i, &s->kv,
                             i ? s->ahead.logits + (i - 1) * n_vocab : s->next_logits, &rows[i], err));
    return lam_forward_run(base->forward, rows, n + 1, err);
}

static lam_code step_ahead(struct lam_session *s, uint32_t token, const uint32_t *guesses, size_t n, lam_error *err)
{
    struct lam_base *base = s->composition->base;
    LAM_TRY(lam_verified_need(&base->verified, &token, 1, err));
    if (n && plan_ahead(s, token, guesses, n, NULL) != LAM_OK) n = 0; /* a guess that cannot be computed is none */
    if (n == 0) LAM_TRY(plan_ahead(s, token, guesses, 0, err));
    if (base->rows[0].failed)
        return LAM_RAISE(err, LAM_E_ACTIVATION, "position %zu: an activation left the finite range", s->length);
    size_t good = 0;
    while (good < n && !base->rows[good + 1].failed) good++;
    memcpy(s->ahead.tokens, guesses, good * sizeof *guesses);
    s->ahead.n = good;
    s->tokens[s->length++] = token;
    lam_session_take_logits(s);
    return LAM_OK;
}

static lam_code reserve_ahead(struct lam_session *s, size_t n, lam_error *err)
{
    struct lam_ahead *a = &s->ahead;
    size_t row_bytes;
    float *more;
    if (n <= a->room) return LAM_OK;
    if (!lam_mul_size(s->composition->base->model->config.n_vocab, sizeof *a->logits, &row_bytes)) row_bytes = SIZE_MAX;
    LAM_TRY(lam_budget_alloc(&s->composition->base->engine->budget, n, row_bytes, "logits of drafts", &more, err));
    lam_budget_free(a->logits); /* nothing is ahead now */
    a->logits = more;
    a->room = n;
    return LAM_OK;
}

lam_code lam_ahead_step(struct lam_session *s, uint32_t token, const uint32_t *guesses, size_t n, lam_error *err)
{
    struct lam_base *base = s->composition->base;
    lam_session_drop_ahead(s);
    if (n > s->context - s->length - 1) n = s->context - s->length - 1;
    if (n > base->engine->max_rows - 1) n = base->engine->max_rows - 1;
    LAM_TRY(reserve_ahead(s, n, err));
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    LAM_TRY(lam_session_check_generated(s, err));
    LAM_TRY(lam_kv_write(&s->kv, s->length, s->length + n + 1, err));
    LAM_TRY(lam_lease_begin(&s, 1, err));
    lam_pool_lock(base->engine->pool);
    lam_code code = step_ahead(s, token, guesses, n, err);
    lam_pool_unlock(base->engine->pool);
    lam_lease_end(&s, 1);
    return code;
}
