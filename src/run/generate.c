#include "run/draft.h"
#include "run/objects.h"
#include "run/sampler.h"
#include "text/detok.h"

lam_code lam_session_sample(lam_session *s, const lam_sampling *sampling, uint32_t *token, lam_error *err)
{
    if (!s->has_logits) return LAM_RAISE(err, LAM_E_ARGUMENT, "nothing to sample from: the session has no logits");
    LAM_TRY(lam_sample(s->logits, s->composition->base->model->config.n_vocab, sampling, s->tokens, s->length,
                       lam_uniform(sampling->seed, s->n_draws), token, err));
    s->n_draws++;
    return LAM_OK;
}

bool lam_token_is_end(const lam_base *base, uint32_t token)
{
    return token < base->vocab.n_tokens && lam_vocab_is_eog(&base->vocab, token);
}

#define DEFAULT_DRAFT 7 /* with the certain token, as many rows as a product takes together */

struct generation {
    struct lam_session *session;
    const lam_sampling *sampling;
    lam_draft draft;
    size_t n_draft, n_next;     /* tokens of a draft at most, and of the next one */
    size_t n_ahead, n_taken;    /* of the last draft */
    struct lam_detok detok;
    struct lam_str text;
    lam_text_fn on_text;
    void *context;
    lam_generate_report report; /* on_text may have changed the session's length */
    uint32_t last;
    bool stopped;    /* by on_text */
};

/* A draft that came true is followed by one twice as long; one that did not, by what of it was true and one token more. */
static void adapt(struct generation *g)
{
    if (g->n_ahead == 0) return;
    size_t next = g->n_taken == g->n_ahead ? 2 * g->n_next : g->n_taken + 1;
    g->n_next = next < g->n_draft ? next : g->n_draft;
}

/* Appends a token that was drawn: it lies ahead, or it is computed, with guesses of the next ones. */
static lam_code append(struct generation *g, uint32_t token, lam_error *err)
{
    struct lam_session *s = g->session;
    uint32_t guesses[LAM_MAX_DRAFT];
    size_t n = 0;
    if (lam_ahead_take(s, token)) {
        g->report.n_accepted++;
        g->n_taken++;
        return LAM_OK;
    }
    adapt(g);
    size_t room = s->context - s->length - 1, most = g->n_next < room ? g->n_next : room;
    if (g->draft == LAM_DRAFT_LOOKUP) lam_draft_look_up(s, token, guesses, most, &n);
    /* Without a guess it goes on as without drafts. */
    if (g->draft == LAM_DRAFT_BASE && most && lam_draft_base(s, g->sampling, token, guesses, most, &n, NULL) != LAM_OK) n = 0;
    LAM_TRY(lam_ahead_step(s, token, guesses, n, err));
    g->report.n_passes++;
    g->report.n_drafted += g->n_ahead = s->ahead.n;
    g->n_taken = 0;
    return LAM_OK;
}

/* One token sampled and appended. *more is false when the generation has ended. */
static lam_code generate_one(struct generation *g, bool *more, lam_error *err)
{
    const struct lam_base *base = g->session->composition->base;
    uint32_t token;
    *more = false;
    LAM_TRY(lam_session_sample(g->session, g->sampling, &token, err));
    if (lam_token_is_end(base, token)) return LAM_OK;
    LAM_TRY(append(g, token, err));
    g->report.n_tokens++;
    g->last = token;
    lam_str_clear(&g->text);
    if (token < base->vocab.n_tokens) LAM_TRY(lam_detok_push(&g->detok, token, &g->text, err));
    g->stopped = g->on_text && !g->on_text(g->context, g->text.data ? g->text.data : "", token);
    *more = !g->stopped;
    return LAM_OK;
}

/* The beginning of a character that no further token completed. */
static lam_code finish(struct generation *g, lam_error *err)
{
    lam_str_clear(&g->text);
    LAM_TRY(lam_detok_flush(&g->detok, &g->text, err));
    if (g->on_text && g->text.len) g->on_text(g->context, g->text.data, g->last);
    return LAM_OK;
}

lam_code lam_generate_with(lam_session *s, const lam_sampling *sampling, const lam_generate_options *options, size_t max_tokens,
                           lam_text_fn on_text, void *context, lam_generate_report *report, lam_error *err)
{
    const lam_generate_options defaults = {0};
    if (!options) options = &defaults;
    if (report) *report = (lam_generate_report){0};
    if (options->n_draft > LAM_MAX_DRAFT)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "%zu tokens in a draft: %d are possible", options->n_draft, LAM_MAX_DRAFT);
    if (options->draft != LAM_DRAFT_NONE && options->draft != LAM_DRAFT_LOOKUP && options->draft != LAM_DRAFT_BASE)
        return LAM_RAISE(err, LAM_E_ARGUMENT, "there is no kind %d of drafts", (int)options->draft);
    if (options->n_beams > 1)
        return LAM_RAISE(err, LAM_E_BEAMS, "%zu beams: a session has one history; sample from several sessions instead", options->n_beams);
    struct generation g = {.session = s, .sampling = sampling, .draft = options->draft, .on_text = on_text, .context = context,
                           .n_draft = options->n_draft ? options->n_draft : DEFAULT_DRAFT};
    g.n_next = g.n_draft;
    lam_detok_init(&g.detok, &s->composition->base->vocab, 0);
    bool more = true;
    lam_code code = LAM_OK;
    while (code == LAM_OK && more && g.report.n_tokens < max_tokens && s->length < s->context) code = generate_one(&g, &more, err);
    if (code == LAM_OK && !g.stopped) code = finish(&g, err);
    lam_str_release(&g.text);
    if (report) *report = g.report;
    return code;
}

lam_code lam_generate(lam_session *s, const lam_sampling *sampling, size_t max_tokens, lam_text_fn on_text, void *context,
                      size_t *n_tokens, lam_error *err)
{
    lam_generate_report report;
    lam_code code = lam_generate_with(s, sampling, NULL, max_tokens, on_text, context, &report, err);
    if (n_tokens) *n_tokens = report.n_tokens;
    return code;
}
