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

struct generation {
    struct lam_session *session;
    struct lam_detok detok;
    struct lam_str text;
    lam_text_fn on_text;
    void *context;
    size_t n;        /* tokens appended; on_text may have changed the session's length */
    uint32_t last;
    bool stopped;    /* by on_text */
};

/* One token sampled and appended. *more is false when the generation has ended. */
static lam_code generate_one(struct generation *g, const lam_sampling *sampling, bool *more, lam_error *err)
{
    const struct lam_base *base = g->session->composition->base;
    uint32_t token;
    *more = false;
    LAM_TRY(lam_session_sample(g->session, sampling, &token, err));
    if (lam_token_is_end(base, token)) return LAM_OK;
    LAM_TRY(lam_session_feed(g->session, &token, 1, NULL, NULL, err));
    g->n++;
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

lam_code lam_generate(lam_session *s, const lam_sampling *sampling, size_t max_tokens, lam_text_fn on_text, void *context,
                      size_t *n_tokens, lam_error *err)
{
    struct generation g = {.session = s, .on_text = on_text, .context = context};
    lam_detok_init(&g.detok, &s->composition->base->vocab, 0);
    bool more = true;
    lam_code code = LAM_OK;
    while (code == LAM_OK && more && g.n < max_tokens && s->length < s->context)
        code = generate_one(&g, sampling, &more, err);
    if (code == LAM_OK && !g.stopped) code = finish(&g, err);
    lam_str_release(&g.text);
    if (n_tokens) *n_tokens = g.n;
    return code;
}
