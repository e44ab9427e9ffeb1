#include "run/activation.h"
#include "base/alloc.h"
#include "base/utf8.h"
#include "text/detok.h"

#include <stdio.h>
#include <string.h>

static size_t last_occurrence(const uint32_t *tokens, size_t n, const struct lam_adapter *a)
{
    if (a->n_invocation == 0 || a->n_invocation > n) return LAM_NO_START;
    for (size_t at = n - a->n_invocation + 1; at-- > 0;)
        if (memcmp(tokens + at, a->invocation, a->n_invocation * sizeof *tokens) == 0) return at;
    return LAM_NO_START;
}

/* How many of the invocation's tokens end the history. */
static size_t begun(const uint32_t *tokens, size_t n, const struct lam_adapter *a)
{
    size_t most = a->n_invocation > n ? n : a->n_invocation ? a->n_invocation - 1 : 0;
    while (most && memcmp(tokens + n - most, a->invocation, most * sizeof *tokens) != 0) most--;
    return most;
}

#define SHOWN_TOKENS 6
#define SHOWN_BYTES 60

/* What the tokens read as, on one line and cut between characters: out[SHOWN_BYTES + 4]. Empty without memory for it. */
static void read_as(const struct lam_vocab *vocab, const struct lam_adapter *a, char *out)
{
    struct lam_str text = {0};
    size_t len = 0;
    if (lam_detokenize(vocab, a->invocation, a->n_invocation, LAM_DETOK_SPECIAL, &text, NULL) != LAM_OK) text.len = 0;
    for (size_t at = 0; at < text.len;) {
        const uint8_t *character = (const uint8_t *)text.data + at;
        uint32_t code;
        bool valid = true;
        size_t bytes = lam_utf8_decode(character, text.len - at, &code, &valid);
        if (len + bytes > SHOWN_BYTES) {
            memcpy(out + len, "...", 3);
            len += 3;
            break;
        }
        if (lam_utf8_control(character, text.len - at)) out[len++] = '?';
        else {
            memcpy(out + len, character, bytes);
            len += bytes;
        }
        at += bytes;
    }
    out[len] = 0;
    lam_str_release(&text);
}

/* The numbers of the first tokens: out[SHOWN_TOKENS * 12 + 24]. */
static void list_tokens(const struct lam_adapter *a, char *out, size_t room)
{
    size_t len = 0, shown = a->n_invocation < SHOWN_TOKENS ? a->n_invocation : SHOWN_TOKENS;
    for (size_t i = 0; i < shown; i++) len += (size_t)snprintf(out + len, room - len, "%s%u", i ? ", " : "", a->invocation[i]);
    if (shown < a->n_invocation) snprintf(out + len, room - len, " and %zu more", a->n_invocation - shown);
}

static lam_code refuse(const struct lam_vocab *vocab, const struct lam_adapter *a, const uint32_t *tokens, size_t n, lam_error *err)
{
    char text[SHOWN_BYTES + 4], numbers[SHOWN_TOKENS * 12 + 32];
    size_t cut = begun(tokens, n, a);
    read_as(vocab, a, text);
    list_tokens(a, numbers, sizeof numbers);
    if (cut)
        return LAM_RAISE(err, LAM_E_INVOCATION_CUT, "adapter %s: the history ends after %zu of the %zu tokens of its invocation \"%s\" (tokens %s)",
                         a->name, cut, a->n_invocation, text, numbers);
    return LAM_RAISE(err, LAM_E_INVOCATION, "adapter %s: its invocation \"%s\" (tokens %s) is not in the history", a->name, text, numbers);
}

lam_code lam_activation_scan(const struct lam_composition *c, const uint32_t *tokens, size_t n, bool allow_base, size_t *starts,
                             lam_error *err)
{
    for (size_t i = 0; i < lam_composition_n_activated(c); i++) {
        const struct lam_adapter *a = lam_composition_activated(c, i);
        starts[i] = last_occurrence(tokens, n, a);
        if (starts[i] == LAM_NO_START && !allow_base) return refuse(&c->base->vocab, a, tokens, n, err);
    }
    return LAM_OK;
}

uint64_t lam_activation_mask(const size_t *starts, size_t n_activated, size_t position)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < n_activated; i++)
        if (starts[i] <= position) mask |= (uint64_t)1 << i;
    return mask;
}

size_t lam_activation_until(const size_t *starts, size_t n_activated, size_t position)
{
    size_t until = SIZE_MAX;
    for (size_t i = 0; i < n_activated; i++)
        if (starts[i] > position && starts[i] < until) until = starts[i];
    return until;
}

lam_code lam_activation_operators(struct lam_composition *c, uint64_t active, enum lam_closure closure, uint8_t out[LAM_SHA256_BYTES],
                                  lam_error *err)
{
    struct lam_operators o = {.n_adapters = c->n_adapters, .n_layers = c->base->model->config.n_layers};
    const struct lam_adapter **adapters = lam_alloc(c->n_adapters, sizeof *adapters);
    if (!adapters) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu adapters", c->n_adapters);
    for (size_t i = 0; i < c->n_adapters; i++) adapters[i] = c->adapters[i]->staged;
    o.adapters = adapters;
    lam_code code = lam_composition_overlay(c, active, &o.overlay, err);
    if (code == LAM_OK) code = lam_operators_digest(&o, closure, out, err);
    lam_free(adapters);
    return code;
}

lam_code lam_activation_runs(struct lam_composition *c, const size_t *starts, size_t n, struct lam_run **runs, size_t *n_runs, lam_error *err)
{
    size_t n_activated = lam_composition_n_activated(c), count = 0;
    struct lam_run *list = *runs = lam_alloc(n_activated + 1, sizeof *list);
    if (!list) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu runs", n_activated + 1);
    for (size_t at = 0; at < n;) {
        struct lam_run run = {.end = lam_activation_until(starts, n_activated, at)};
        lam_code code = lam_activation_operators(c, lam_activation_mask(starts, n_activated, at), LAM_CLOSURE_ROWS, run.operators, err);
        if (code != LAM_OK) {
            lam_free(list);
            *runs = NULL;
            return code;
        }
        if (run.end > n) run.end = n;
        if (count && memcmp(list[count - 1].operators, run.operators, sizeof run.operators) == 0) list[count - 1].end = run.end;
        else list[count++] = run;
        at = run.end;
    }
    *n_runs = count;
    return LAM_OK;
}
