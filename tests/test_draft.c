/* Speculative decoding: with drafts of either kind, tokens, logits and draws are those without. */
#include "reuse_fixture.h"

#include "run/draft.h"
#include "run/objects.h"

enum { LORA, ACTIVATED, N_ADAPTERS };
static const struct reuse_adapter adapters[N_ADAPTERS] = {
    [LORA] = {"lora", {ALL, Q | V}, false, 1, {0}, 0, false},
    [ACTIVATED] = {"activated", {ALL, ALL}, true, 3, {99, 100}, 2, false},
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
                                       cmocka_unit_test(test_look_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
