#include "base/alloc.h"
#include "run/objects.h"

#include <string.h>

#define DEFAULT_CONTEXT 4096
#define MAX_CONTEXT ((size_t)1 << 27)
#define PLAN_STEP 8 /* rows that a product takes together */

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
    s->tokens = lam_alloc(context, sizeof *s->tokens);
    s->logits = lam_alloc(c->n_vocab, sizeof *s->logits);
    s->next_logits = lam_alloc(c->n_vocab, sizeof *s->next_logits);
    lam_code code = s->tokens && s->logits && s->next_logits ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a session of %zu positions", context);
    if (code == LAM_OK)
        code = lam_kv_init(&s->kv, composition->kv, c->n_layers, c->n_kv_heads, c->head_dim, context, err);
    if (code == LAM_OK) *out = s;
    else lam_session_free(s);
    return code;
}

void lam_session_free(lam_session *s)
{
    if (!s) return;
    lam_kv_release(&s->kv);
    lam_free(s->tokens);
    lam_free(s->logits);
    lam_free(s->next_logits);
    lam_composition_free(s->composition);
    lam_free(s);
}

size_t lam_session_length(const lam_session *s) { return s->length; }
size_t lam_session_context(const lam_session *s) { return s->context; }
const char *lam_session_composition_id(const lam_session *s) { return s->composition->id; }
const float *lam_session_logits(const lam_session *s) { return s->has_logits ? s->logits : NULL; }

lam_code lam_session_truncate(lam_session *s, size_t length, lam_error *err)
{
    if (length > s->length) return LAM_RAISE(err, LAM_E_ARGUMENT, "cannot shorten %zu tokens to %zu", s->length, length);
    s->has_logits &= length == s->length;
    s->length = length;
    return LAM_OK;
}

static lam_code check_room(struct lam_session *s, size_t n, lam_error *err)
{
    if (n > s->context - s->length)
        return LAM_RAISE(err, LAM_E_CONTEXT, "%zu tokens after %zu do not fit a context of %zu", n, s->length, s->context);
    return lam_kv_reserve(&s->kv, s->length + n, err);
}

/* The computed logits become the session's. */
static void append(struct lam_session *s, const uint32_t *tokens, size_t n)
{
    float *old = s->logits;
    s->logits = s->next_logits;
    s->next_logits = old;
    memcpy(s->tokens + s->length, tokens, n * sizeof *tokens);
    s->length += n;
    s->has_logits = true;
}

/* What a feed does with one plan's results. */
struct feed {
    struct lam_session *session;
    lam_logits_fn each;
    void *context;
    float *every; /* [max rows, n_vocab] if each is given */
};

static lam_code feed_chunk(const struct feed *feed, const uint32_t *tokens, size_t start, size_t n, bool last, lam_error *err)
{
    struct lam_session *s = feed->session;
    struct lam_base *base = s->composition->base;
    struct lam_row *rows = base->rows;
    size_t n_vocab = base->model->config.n_vocab;
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct lam_row){.token = tokens[i], .position = start + i, .kv = &s->kv, .overlay = &s->composition->overlay,
                                   .logits = last && i + 1 == n ? s->next_logits : feed->each ? feed->every + i * n_vocab : NULL};
    LAM_TRY(lam_forward_run(base->forward, rows, n, err));
    for (size_t i = 0; i < n; i++) {
        if (rows[i].failed)
            return LAM_RAISE(err, LAM_E_ACTIVATION, "position %zu: an activation left the finite range", start + i);
        if (feed->each && !feed->each(feed->context, start + i, rows[i].logits, n_vocab))
            return LAM_RAISE(err, LAM_E_CANCELLED, "stopped at position %zu", start + i);
    }
    return LAM_OK;
}

/* Plans of about equal size: a last plan of a few rows would read all weights for little. */
static lam_code feed_all(const struct feed *feed, const uint32_t *tokens, size_t n, lam_error *err)
{
    struct lam_session *s = feed->session;
    size_t most = s->composition->base->engine->max_rows, plans = (n + most - 1) / most;
    for (size_t done = 0, now; done < n; done += now, plans--) {
        now = ((n - done) / plans + PLAN_STEP - 1) / PLAN_STEP * PLAN_STEP;
        if (now > most) now = most;
        if (now > n - done || plans == 1) now = n - done;
        LAM_TRY(feed_chunk(feed, tokens + done, s->length + done, now, done + now == n, err));
    }
    return LAM_OK;
}

/* Room for the logits of every row of a plan; NULL also where nobody wants them. */
static lam_code reserve_every(struct feed *feed, size_t n, lam_error *err)
{
    const struct lam_base *base = feed->session->composition->base;
    size_t rows = n < base->engine->max_rows ? n : base->engine->max_rows, row_bytes;
    if (!feed->each) return LAM_OK;
    if (lam_mul_size(base->model->config.n_vocab, sizeof *feed->every, &row_bytes)) feed->every = lam_alloc(rows, row_bytes);
    return feed->every ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu rows of logits", rows);
}

lam_code lam_session_feed(lam_session *s, const uint32_t *tokens, size_t n, lam_logits_fn each, void *context, lam_error *err)
{
    struct lam_base *base = s->composition->base;
    struct feed feed = {.session = s, .each = each, .context = context};
    if (n == 0) return LAM_OK;
    LAM_TRY(check_room(s, n, err));
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    LAM_TRY(reserve_every(&feed, n, err));
    lam_pool_lock(base->engine->pool);
    lam_code code = lam_verified_need(&base->verified, tokens, n, err);
    if (code == LAM_OK) code = feed_all(&feed, tokens, n, err);
    lam_pool_unlock(base->engine->pool);
    lam_free(feed.every);
    if (code == LAM_OK) append(s, tokens, n);
    return code;
}

static lam_code check_step(lam_session *const sessions[], size_t n, lam_error *err)
{
    struct lam_base *base = sessions[0]->composition->base;
    if (n > base->engine->max_rows)
        return LAM_RAISE(err, LAM_E_LIMIT, "%zu sessions in one step; %zu are possible", n, base->engine->max_rows);
    for (size_t i = 0; i < n; i++) {
        if (sessions[i]->composition->base != base)
            return LAM_RAISE(err, LAM_E_WRONG_BASE, "session %zu of the step has another base", i);
        for (size_t j = 0; j < i; j++)
            if (sessions[j] == sessions[i]) return LAM_RAISE(err, LAM_E_DUPLICATE, "session %zu occurs twice in the step", i);
        LAM_TRY(check_room(sessions[i], 1, err));
    }
    return lam_mapping_check(&base->model->file->file, err);
}

static lam_code step_locked(lam_session *const sessions[], const uint32_t tokens[], size_t n, lam_error *err)
{
    struct lam_base *base = sessions[0]->composition->base;
    struct lam_row *rows = base->rows;
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct lam_row){.token = tokens[i], .position = sessions[i]->length, .kv = &sessions[i]->kv,
                                   .overlay = &sessions[i]->composition->overlay, .logits = sessions[i]->next_logits};
    LAM_TRY(lam_forward_run(base->forward, rows, n, err));
    const struct lam_row *failed = NULL;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].failed) {
            if (!failed) failed = &rows[i];
            continue; /* one session's end is not the others' */
        }
        append(sessions[i], &tokens[i], 1);
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
    lam_pool_lock(base->engine->pool);
    lam_code code = lam_verified_need(&base->verified, tokens, n, err);
    if (code == LAM_OK) code = step_locked(sessions, tokens, n, err);
    lam_pool_unlock(base->engine->pool);
    return code;
}
