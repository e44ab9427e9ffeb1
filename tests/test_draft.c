/* Speculative decoding: with drafts of either kind, tokens, logits and draws are those without. */
#include "reuse_fixture.h"

#include "run/draft.h"
#include "run/objects.h"

enum { LORA, ACTIVATED, PLAIN, N_ADAPTERS };
static const struct reuse_adapter adapters[N_ADAPTERS] = {
    [LORA] = {"lora", {ALL, Q | V}, false, 1, {0}, 0, false},
    [ACTIVATED] = {"activated", {ALL, ALL}, true, 3, {99, 100}, 2, false},
    [PLAIN] = {"plain", {ALL, ALL}, true, 3, {0}, 0, false}, /* the same factors, on every row */
};

#define MOST 150

struct said {
    uint32_t tokens[MOST + 8];
    size_t n, stop_after;
    char text[4096];
};

static bool hear(void *context, const char *text, uint32_t token)
{
    struct said *s = context;
    if (s->n < MOST) s->tokens[s->n++] = token;
    if (strlen(s->text) + strlen(text) < sizeof s->text) strcat(s->text, text);
    return s->n != s->stop_after;
}

static const uint32_t prompt[] = {5, 6, 7, 99, 100, 8, 5, 6, 7, 9, 5, 6};

static lam_session *begin(lam_composition *c, size_t context)
{
    lam_session *s = fixture_session(c, context);
    reuse_feed(s, prompt, sizeof prompt / sizeof *prompt);
    return s;
}

static void assert_same_session(lam_session *a, lam_session *b)
{
    lam_error err;
    size_t n = lam_session_length(a);
    assert_int_equal(n, lam_session_length(b));
    assert_int_equal(a->n_draws, b->n_draws);
    assert_memory_equal(a->tokens, b->tokens, n * sizeof *a->tokens);
    assert_memory_equal(lam_session_logits(a), lam_session_logits(b), REUSE_VOCAB * sizeof(float));
    if (n + 2 > lam_session_context(a)) return;
    for (uint32_t t = 0; t < 2; t++) { /* and its cache */
        assert_ok(lam_session_step(&a, &t, 1, &err), err);
        assert_ok(lam_session_step(&b, &t, 1, &err), err);
        assert_memory_equal(lam_session_logits(a), lam_session_logits(b), REUSE_VOCAB * sizeof(float));
    }
}

static void check(lam_composition *c, const lam_sampling *p, const lam_generate_options *o, size_t context, size_t most, size_t stop_after,
                  lam_generate_report *report)
{
    lam_error err;
    struct said plain = {.stop_after = stop_after}, drafted = {.stop_after = stop_after};
    size_t n;
    lam_session *a = begin(c, context), *b = begin(c, context);
    assert_ok(lam_generate(a, p, most, hear, &plain, &n, &err), err);
    assert_ok(lam_generate_with(b, p, o, most, hear, &drafted, report, &err), err);
    assert_int_equal(report->n_tokens, n);
    assert_int_equal(report->n_passes + report->n_accepted, n);
    assert_true(report->n_accepted <= report->n_drafted);
    assert_int_equal(plain.n, drafted.n);
    assert_memory_equal(plain.tokens, drafted.tokens, plain.n * sizeof *plain.tokens);
    assert_string_equal(plain.text, drafted.text);
    assert_same_session(a, b);
    lam_session_free(a);
    lam_session_free(b);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const sources[] = {REUSE_BASE, REUSE_Q4};
    static const lam_sampling samplings[] = {
        {.temperature = 0.0f, .top_p = 1.0f, .repeat_penalty = 1.0f},
        {.temperature = 0.7f, .top_k = 5, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 3},
        {.temperature = 1.5f, .top_p = 0.9f, .min_p = 0.02f, .repeat_penalty = 1.2f, .repeat_window = 16, .seed = 4},
    };
    size_t accepted[3] = {0};
    for (size_t k = 0; k < 2; k++) {
        struct reuse r;
        reuse_open(&r, sources[k], adapters, N_ADAPTERS, &(lam_engine_options){.threads = 2, .max_rows = k ? 0 : 5});
        lam_composition *list[] = {r.bare, r.with[LORA], r.with[ACTIVATED]};
        for (size_t i = 0; i < 3; i++)
            for (size_t p = 0; p < 3; p++)
                for (int d = LAM_DRAFT_NONE; d <= LAM_DRAFT_BASE; d++) {
                    static const size_t drafts[] = {0, 1, 3, LAM_MAX_DRAFT};
                    lam_generate_report report;
                    lam_generate_options o = {.draft = (lam_draft)d, .n_draft = drafts[(i + p + (size_t)d) % 4]};
                    check(list[i], &samplings[p], &o, 220, MOST, 0, &report);
                    accepted[d] += report.n_accepted;
                    if (d == LAM_DRAFT_NONE) assert_int_equal(report.n_drafted, 0);
                    if (d == LAM_DRAFT_BASE && i == 0) assert_true(report.n_drafted == 0 || report.n_accepted > 0); /* it guesses itself */
                }
        reuse_close(&r);
    }
    assert_true(accepted[LAM_DRAFT_LOOKUP] > 20 && accepted[LAM_DRAFT_BASE] > 200); /* or nothing was shown */
}

/* A full context, a stop in the midst of a draft, a limit within one. */
static void test_ends(void **state)
{
    (void)state;
    struct reuse r;
    lam_generate_report report;
    const lam_sampling greedy = {.temperature = 0.0f, .top_p = 1.0f, .repeat_penalty = 1.0f};
    reuse_open(&r, REUSE_Q4, adapters, N_ADAPTERS, NULL);
    for (int d = LAM_DRAFT_LOOKUP; d <= LAM_DRAFT_BASE; d++)
        for (size_t i = 1; i < 24; i++) {
            lam_generate_options o = {.draft = (lam_draft)d};
            check(r.with[LORA], &greedy, &o, 12 + i, MOST, 0, &report);
            check(r.with[ACTIVATED], &greedy, &o, 100, i, 0, &report);
            check(r.bare, &greedy, &o, 100, MOST, i, &report);
        }
    reuse_close(&r);
}

/* What lies ahead is forgotten by whatever else happens to the session. */
static void test_discarded(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    reuse_open(&r, REUSE_Q4, adapters, N_ADAPTERS, NULL);
    for (int what = 0; what < 4; what++) {
        lam_session *s = begin(r.bare, 100), *t = begin(what == 3 ? r.with[LORA] : r.bare, 100);
        static const uint32_t guesses[] = {20, 21, 22};
        uint32_t first = 19, next = 20;
        assert_ok(lam_ahead_step(s, first, guesses, 3, &err), err);
        assert_int_equal(s->ahead.n, 3);
        assert_ok(lam_session_step(&t, &first, 1, &err), err);
        if (what == 0) {
            assert_ok(lam_session_step(&s, &next, 1, &err), err);
            assert_ok(lam_session_step(&t, &next, 1, &err), err);
        } else if (what == 1) {
            reuse_feed(s, &next, 1);
            reuse_feed(t, &next, 1);
        } else if (what == 2) {
            assert_ok(lam_session_truncate(s, 10, &err), err);
            assert_ok(lam_session_truncate(t, 10, &err), err);
            assert_false(lam_ahead_take(s, next));
            reuse_feed(s, &next, 1);
            reuse_feed(t, &next, 1);
        } else {
            size_t kept;
            assert_ok(lam_session_rebase(s, r.with[LORA], &kept, &err), err);
        }
        assert_false(lam_ahead_take(s, 20));
        assert_false(lam_ahead_take(s, 21));
        assert_same_session(s, t);
        lam_session_free(s);
        lam_session_free(t);
    }
    /* A draft's session of its own goes with the switch. */
    lam_session *s = begin(r.with[LORA], 100);
    lam_generate_options o = {.draft = LAM_DRAFT_BASE};
    lam_sampling p = {.temperature = 0.9f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 2};
    lam_generate_report report;
    assert_ok(lam_generate_with(s, &p, &o, 10, NULL, NULL, &report, &err), err);
    assert_non_null(s->drafter);
    assert_ok(lam_session_rebase(s, r.bare, NULL, &err), err);
    assert_null(s->drafter);
    o.n_draft = LAM_MAX_DRAFT + 1;
    assert_int_equal(lam_generate_with(s, &p, &o, 10, NULL, NULL, &report, &err), LAM_E_ARGUMENT);
    o = (lam_generate_options){.draft = (lam_draft)9};
    assert_int_equal(lam_generate_with(s, &p, &o, 10, NULL, NULL, &report, &err), LAM_E_ARGUMENT);
    lam_session_free(s);
    reuse_close(&r);
}

/* ---- where activated adapters act ---- */

#define GENERATED 40
#define OPENING 6

/* What c says after the opening, row by row: it has no start that could move. tokens[OPENING + GENERATED] begins with the opening. NULL if the
 * generation ends. */
static lam_session *write_out(lam_composition *c, const lam_sampling *p, uint32_t *tokens)
{
    lam_error err;
    lam_session *s = fixture_session(c, 100);
    reuse_feed(s, tokens, OPENING);
    for (size_t i = OPENING; i < OPENING + GENERATED; i++) {
        assert_ok(lam_session_sample(s, p, &tokens[i], &err), err);
        if (lam_token_is_end(c->base, tokens[i])) {
            lam_session_free(s);
            return NULL;
        }
        assert_ok(lam_session_step(&s, &tokens[i], 1, &err), err);
    }
    return s;
}

/* c, which has an invocation that it will generate, generates as the reference did: rows, history and draws; only the next submission
 * moves the start. */
static size_t check_unmoved(lam_composition *c, lam_session *reference, const lam_sampling *p, const uint32_t *tokens, lam_draft draft)
{
    lam_error err;
    lam_generate_report report;
    char moved[LAM_DIGEST_TEXT], kept[LAM_DIGEST_TEXT];
    uint32_t history[OPENING + GENERATED + 1];
    const size_t n = OPENING + GENERATED;
    lam_session *s = fixture_session(c, 100);
    lam_session_allow_base(s, true);
    reuse_feed(s, tokens, OPENING);
    assert_ok(lam_generate_with(s, p, &(lam_generate_options){.draft = draft}, GENERATED, NULL, NULL, &report, &err), err);
    assert_int_equal(report.n_tokens, GENERATED);
    assert_int_equal(lam_session_length(s), n);
    assert_memory_equal(s->tokens, tokens, n * sizeof *tokens);
    assert_memory_equal(lam_session_logits(s), lam_session_logits(reference), REUSE_VOCAB * sizeof(float));
    memcpy(history, tokens, n * sizeof *tokens);
    history[n] = 30;
    reuse_feed(s, history + n, 1);
    assert_future(s, c, history, n + 1);
    reuse_fresh(c, history, n + 1, 0, moved);
    reuse_fresh(reference->composition, history, n + 1, 0, kept);
    assert_string_not_equal(moved, kept); /* the submission did move it */
    lam_session_free(s);
    return report.n_accepted;
}

/* The factors of PLAIN from an invocation on. */
static void check_invocation(struct reuse *r, const uint32_t *invocation, size_t n, lam_session *reference, const lam_sampling *p,
                             const uint32_t *tokens)
{
    static const lam_draft drafts[] = {LAM_DRAFT_NONE, LAM_DRAFT_LOOKUP, LAM_DRAFT_BASE};
    struct reuse_adapter a = adapters[PLAIN];
    char path[512];
    lam_error err;
    lam_adapter *adapter;
    lam_composition *c;
    size_t accepted = 0;
    a.name = n == 1 ? "invoked-1" : "invoked-2";
    memcpy(a.invocation, invocation, n * sizeof *invocation);
    a.n_invocation = n;
    reuse_import(r->folder, r->base_path, &a, path);
    assert_ok(lam_adapter_load(r->base, path, false, &adapter, &err), err);
    assert_ok(lam_compose(r->base, &adapter, (double[]){1.0}, 1, NULL, &c, &err), err);
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) accepted += check_unmoved(c, reference, p, tokens, drafts[i]);
    assert_true(accepted > 0); /* or drafts showed nothing */
    lam_composition_free(c);
    lam_adapter_unload(adapter);
}

static bool occurs(const uint32_t *tokens, size_t n, uint32_t token)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] == token) return true;
    return false;
}

/* A generation writes the invocation of an adapter that nobody invoked: the base goes on. */
static void test_generated_invocation(void **state)
{
    (void)state;
    struct reuse r;
    lam_sampling p = {.temperature = 0.7f, .top_k = 5, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 1};
    uint32_t tokens[OPENING + GENERATED] = {5, 6, 7, 8, 5, 6};
    const uint32_t *invocation = tokens + OPENING + 8;
    lam_session *reference;
    reuse_open(&r, REUSE_Q4, adapters, N_ADAPTERS, &(lam_engine_options){.threads = 2});
    while (!(reference = write_out(r.bare, &p, tokens)) || occurs(tokens, OPENING, invocation[1])) {
        lam_session_free(reference);
        assert_true(++p.seed < 100);
    }
    check_invocation(&r, invocation, 2, reference, &p, tokens);
    lam_session_free(reference);
    reuse_close(&r);
}

/* It writes the one that it began with once more. */
static void test_repeated_invocation(void **state)
{
    (void)state;
    struct reuse r;
    lam_sampling p = {.temperature = 0.7f, .top_k = 5, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 3};
    uint32_t tokens[OPENING + GENERATED] = {3, 6, 7, 8, 5, 6};
    lam_session *reference;
    reuse_open(&r, REUSE_Q4, adapters, N_ADAPTERS, &(lam_engine_options){.threads = 2});
    while (!(reference = write_out(r.with[PLAIN], &p, tokens)) || occurs(tokens + 1, OPENING - 1, tokens[0]) ||
           !occurs(tokens + OPENING, GENERATED - 2, tokens[0])) {
        lam_session_free(reference);
        assert_true(++tokens[0] < REUSE_VOCAB);
    }
    check_invocation(&r, tokens, 1, reference, &p, tokens);
    lam_session_free(reference);
    reuse_close(&r);
}

/* Look-up: the longest match, the latest of equals, and never more than there is. */
static void test_look_up(void **state)
{
    (void)state;
    uint32_t history[] = {1, 2, 3, 4, 5, 9, 2, 3, 4, 6, 7, 2, 3}, out[8];
    struct lam_session s = {.tokens = history, .length = 13};
    size_t n;
    lam_draft_look_up(&s, 4, out, 8, &n); /* 2 3 4 twice before; the latest is followed by 6 7 2 3 */
    assert_int_equal(n, 4);
    assert_memory_equal(out, ((uint32_t[]){6, 7, 2, 3}), 16);
    lam_draft_look_up(&s, 4, out, 2, &n);
    assert_int_equal(n, 2);
    lam_draft_look_up(&s, 8, out, 8, &n);
    assert_int_equal(n, 0);
    s.length = 1;
    lam_draft_look_up(&s, 1, out, 8, &n);
    assert_int_equal(n, 0);
    uint32_t longer[] = {7, 1, 2, 3, 8, 6, 2, 3, 9, 5, 7, 1, 2};
    s = (struct lam_session){.tokens = longer, .length = 13};
    lam_draft_look_up(&s, 3, out, 1, &n); /* 7 1 2 3 before 2 3, though that is later */
    assert_true(n == 1 && out[0] == 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_ends), cmocka_unit_test(test_discarded),
                                       cmocka_unit_test(test_generated_invocation), cmocka_unit_test(test_repeated_invocation),
                                       cmocka_unit_test(test_look_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
