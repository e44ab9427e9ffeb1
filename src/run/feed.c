/* A submission: where activated adapters act is looked up, what the prefix cache has is taken, and the rest is computed. */
#include "base/alloc.h"
#include "run/activation.h"
#include "run/lease.h"
#include "run/pass.h"
#include "run/session.h"

#include <string.h>

struct feed {
    struct lam_session *session;
    size_t end;                       /* of the history with the new tokens, which lie in the session's tokens already */
    size_t starts[LAM_MAX_ACTIVATED]; /* in the new history */
    size_t from;                      /* the first row to compute */
    struct lam_kv kv;                 /* where they go if they cannot go into the session's; without pages otherwise */
    bool apart;                       /* kv is in use */
    size_t n_cached;
    struct lam_pass pass;
};

/* The first row of the session that acts otherwise under the new starts. */
static size_t first_change(const struct lam_session *s, const size_t *starts)
{
    size_t first = s->length;
    for (size_t i = 0; i < lam_composition_n_activated(s->composition); i++) {
        size_t lower = s->starts[i] < starts[i] ? s->starts[i] : starts[i];
        if (s->starts[i] != starts[i] && lower < first) first = lower;
    }
    return first;
}

lam_code lam_session_rows(const struct lam_session *s, struct lam_row_contract *contract, struct lam_run **runs, struct lam_rows *out,
                          lam_error *err)
{
    const struct lam_model *m = s->composition->base->model;
    lam_row_contract_here(m->base_digest, m->config.n_layers, s->composition->kv, s->name_space, contract);
    *out = (struct lam_rows){.contract = contract, .tokens = s->tokens, .n = s->length, .covered_end = s->length,
                             .complete_layers = m->config.n_layers, .frozen = true};
    LAM_TRY(lam_activation_runs(s->composition, s->starts, s->length, runs, &out->n_runs, err));
    out->runs = *runs;
    return LAM_OK;
}

/* Takes from the prefix cache what the new history begins with; the last token is computed in any case, for its logits. */
static lam_code take_prefix(struct feed *f, lam_error *err)
{
    struct lam_session *s = f->session;
    struct lam_row_contract contract;
    struct lam_rows want;
    struct lam_run *runs;
    struct lam_prefix_use use;
    struct lam_session wanted = *s;
    wanted.length = f->end;
    memcpy(wanted.starts, f->starts, sizeof wanted.starts);
    LAM_TRY(lam_session_rows(&wanted, &contract, &runs, &want, err));
    lam_prefix_begin(s->composition->base->engine->prefix, &want, &use);
    lam_code code = lam_prefix_authorise(&use, s->name_space, err);
    if (code == LAM_OK) code = lam_prefix_look_up(&use, f->end - 1, err);
    if (code == LAM_OK && use.n) {
        code = lam_prefix_hold(&use, err);
        if (code == LAM_OK) code = lam_session_new_kv(s, s->composition, &f->kv, err);
        if (code == LAM_OK) code = lam_prefix_fork(&use, &f->kv, err);
        f->apart = true;
        f->from = f->n_cached = use.n;
    }
    lam_prefix_end(&use);
    lam_free(runs);
    return code;
}

void lam_session_publish(struct lam_session *s)
{
    struct lam_engine *engine = s->composition->base->engine;
    struct lam_row_contract contract;
    struct lam_rows rows;
    struct lam_run *runs;
    struct lam_prefix_use use;
    struct lam_operators base = {.n_layers = s->composition->base->model->config.n_layers};
    uint8_t base_operators[LAM_SHA256_BYTES];
    if (!engine->prefix || s->restored || s->length == 0) return;
    if (lam_session_rows(s, &contract, &runs, &rows, NULL) != LAM_OK) return;
    lam_prefix_begin(engine->prefix, &rows, &use);
    if (lam_operators_digest(&base, LAM_CLOSURE_ROWS, base_operators, NULL) == LAM_OK &&
        lam_prefix_authorise(&use, s->name_space, NULL) == LAM_OK &&
        lam_prefix_publish(&use, &rows, &s->kv, base_operators, NULL) == LAM_OK)
        s->n_published = s->length;
    lam_prefix_end(&use);
    lam_free(runs);
}

/* A cache of its own for rows that replace some of the session's, which stay as they are until all is done. */
static lam_code fork_session(struct feed *f, lam_error *err)
{
    LAM_TRY(lam_session_new_kv(f->session, f->session->composition, &f->kv, err));
    f->apart = true;
    return lam_kv_fork(&f->session->kv, f->from, &f->kv, err);
}

static lam_code compute(struct feed *f, lam_error *err)
{
    struct lam_session *s = f->session;
    f->from = first_change(s, f->starts);
    if (f->from < s->length) LAM_TRY(fork_session(f, err));
    else if (s->length == 0 && s->composition->base->engine->prefix && !f->pass.each) LAM_TRY(take_prefix(f, err));
    struct lam_kv *kv = f->apart ? &f->kv : &s->kv;
    LAM_TRY(lam_kv_write(kv, f->from, f->end, err));
    f->pass.composition = s->composition;
    f->pass.kv = kv;
    f->pass.tokens = s->tokens;
    f->pass.starts = f->starts;
    f->pass.from = f->from;
    f->pass.end = f->end;
    f->pass.told = s->length;
    f->pass.logits = s->next_logits;
    return lam_pass_run(&f->pass, err);
}

static void commit(struct feed *f)
{
    struct lam_session *s = f->session;
    if (f->apart) {
        struct lam_kv old = s->kv;
        s->kv = f->kv;
        f->kv = old;
    }
    memcpy(s->starts, f->starts, sizeof s->starts);
    s->stale = false;
    s->length = f->end;
    s->n_cached = f->n_cached;
    if (s->n_published > f->from) s->n_published = f->from;
    lam_session_take_logits(s);
    lam_session_publish(s);
}

static lam_code submit(struct lam_session *s, const uint32_t *tokens, size_t n, const struct lam_pass *told, lam_error *err)
{
    struct lam_base *base = s->composition->base;
    struct feed f = {.session = s, .pass = *told};
    if (n == 0) return LAM_OK;
    if (!tokens) return LAM_RAISE(err, LAM_E_NO_TOKENS, "%zu rows without tokens", n);
    if (n > s->context - s->length)
        return LAM_RAISE(err, LAM_E_CONTEXT, "%zu tokens after %zu do not fit a context of %zu", n, s->length, s->context);
    LAM_TRY(lam_mapping_check(&base->model->file->file, err));
    lam_session_drop_ahead(s);
    f.end = s->length + n;
    memcpy(s->tokens + s->length, tokens, n * sizeof *tokens); /* beyond the history: they count once it is longer */
    memcpy(f.starts, s->starts, sizeof f.starts);
    LAM_TRY(lam_activation_scan(s->composition, s->tokens, f.end, s->allow_base, f.starts, err));
    LAM_TRY(lam_lease_begin(&s, 1, err));
    lam_pool_lock(base->engine->pool);
    lam_code code = compute(&f, err);
    if (code == LAM_OK) commit(&f);
    lam_pool_unlock(base->engine->pool);
    lam_lease_end(&s, 1);
    lam_kv_release(&f.kv);
    return code;
}

lam_code lam_session_feed(lam_session *s, const uint32_t *tokens, size_t n, lam_logits_fn each, void *context, lam_error *err)
{
    return submit(s, tokens, n, &(struct lam_pass){.each = each, .context = context}, err);
}

lam_code lam_session_prefill(lam_session *s, const uint32_t *tokens, size_t n, lam_feed_progress_fn progress, void *context, lam_error *err)
{
    return submit(s, tokens, n, &(struct lam_pass){.progress = progress, .progress_context = context}, err);
}

size_t lam_session_cached(const lam_session *s) { return s->n_cached; }

lam_code lam_session_isolate(lam_session *s, const char *salt, lam_error *err)
{
    if (s->length) return LAM_RAISE(err, LAM_E_CONFLICT, "the session has %zu tokens already", s->length);
    if (*salt) lam_digest_bytes(salt, strlen(salt), s->name_space);
    else s->name_space[0] = 0;
    return LAM_OK;
}

void lam_engine_prefix(lam_engine *engine, lam_prefix_figures *out)
{
    struct lam_prefix_counters c = {0};
    lam_pool_lock(engine->pool);
    if (engine->prefix) lam_prefix_count(engine->prefix, &c);
    lam_pool_unlock(engine->pool);
    *out = (lam_prefix_figures){.lookups = c.lookups, .hits = c.hits, .tokens_asked = c.tokens_asked, .tokens_found = c.tokens_found,
                                .pages = c.pages, .bytes = c.bytes, .budget = c.budget, .evicted = c.evicted};
}
