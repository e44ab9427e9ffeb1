/* What one computation leaves to the next: activated rows, another composition under a session, the prefix cache, saved sessions. Results are
 * compared, bit for bit, with those of a new session that was fed everything at once. */
#define _POSIX_C_SOURCE 200809L

#include "reuse_fixture.h"

#include "run/objects.h"

#include <pthread.h>

enum { LORA_A, LORA_B, ACT_A2, ACT_B2, ACT_A1, HEAD, LAST_MLP, FIRST_MLP, FIRST_Q, LAST_Q, LAST_K, ACT_HEAD, ACT_PLAIN, N_ADAPTERS };
static const struct reuse_adapter adapters[N_ADAPTERS] = {
    [LORA_A] = {"A", {ALL, ALL}, true, 1, {0}, 0, false},
    [LORA_B] = {"B", {ALL, ALL}, true, 2, {0}, 0, false},
    [ACT_A2] = {"A2", {ALL, ALL}, false, 3, {99, 100}, 2, false},
    [ACT_B2] = {"B2", {ALL, ALL}, false, 4, {99, 100}, 2, false},
    [ACT_A1] = {"A1", {ALL, ALL}, false, 3, {12}, 1, false},
    [HEAD] = {"head", {0, 0}, true, 5, {0}, 0, false},
    [LAST_MLP] = {"last-mlp", {0, MLP}, false, 6, {0}, 0, false},
    [FIRST_MLP] = {"first-mlp", {MLP, 0}, false, 7, {0}, 0, false},
    [FIRST_Q] = {"first-q", {Q, 0}, false, 8, {0}, 0, false},
    [LAST_Q] = {"last-q-o", {0, Q | O}, false, 9, {0}, 0, false},
    [LAST_K] = {"last-k", {0, K}, false, 10, {0}, 0, false},
    [ACT_HEAD] = {"act-head", {0, 0}, true, 11, {99, 100}, 2, false},
    [ACT_PLAIN] = {"plain", {ALL, ALL}, false, 3, {0}, 0, false}, /* A2's factors, on every row */
};

static const uint32_t four[] = {11, 12, 99, 100};

static void open_all(struct reuse *r, const char *source, const lam_engine_options *options)
{
    reuse_open(r, source, adapters, N_ADAPTERS, options);
}

/* ---- activated rows ---- */

struct rows {
    float logits[64][REUSE_VOCAB];
    size_t first;
};

static bool take_row(void *context, size_t position, const float *logits, size_t n_vocab)
{
    struct rows *rows = context;
    memcpy(rows->logits[position - rows->first], logits, n_vocab * sizeof *logits);
    return true;
}

static void rows_of(lam_composition *c, const uint32_t *tokens, size_t n, struct rows *out)
{
    lam_error err;
    lam_session *s = fixture_session(c, n);
    assert_ok(lam_session_feed(s, tokens, n, take_row, out, &err), err);
    lam_session_free(s);
}

/* Rows before the invocation are the base's; with it at the start all rows are those of the same factors without activation; and the
 * last occurrence decides. */
static void test_activation(void **state)
{
    (void)state;
    static const char *const sources[] = {REUSE_BASE, REUSE_Q4};
    static const uint32_t early[] = {99, 100, 11, 12, 13}, twice[] = {99, 100, 11, 99, 100, 12};
    struct rows *got = calloc(1, sizeof *got), *want = calloc(1, sizeof *want);
    for (size_t k = 0; k < 2; k++) {
        struct reuse r;
        open_all(&r, sources[k], NULL);
        rows_of(r.with[ACT_A2], early, 5, got);
        rows_of(r.with[ACT_PLAIN], early, 5, want);
        assert_memory_equal(got->logits, want->logits, 5 * sizeof *got->logits);
        rows_of(r.with[ACT_A2], four, 4, got);
        rows_of(r.bare, four, 4, want);
        assert_memory_equal(got->logits, want->logits, 2 * sizeof *got->logits);
        assert_memory_not_equal(got->logits[2], want->logits[2], sizeof *got->logits);
        rows_of(r.with[ACT_A2], twice, 6, got);
        rows_of(r.bare, twice, 6, want);
        assert_memory_equal(got->logits, want->logits, 3 * sizeof *got->logits);
        assert_memory_not_equal(got->logits[3], want->logits[3], sizeof *got->logits);
        reuse_close(&r);
    }
    free(got);
    free(want);
}

#define ACT_A2_SOUGHT "\"`a\" (tokens 99, 100)" /* the text by Hugging Face tokenizers, from the base's tokenizer.json */

static void test_missing_invocation(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    open_all(&r, REUSE_BASE, NULL);
    static const uint32_t none[] = {11, 12, 13}, cut[] = {11, 12, 99}, wrong[] = {11, 12, 99, 101};
    lam_session *s = fixture_session(r.with[ACT_A2], 40);
    assert_int_equal(lam_session_step(&s, none, 1, &err), LAM_E_INVOCATION); /* nothing was submitted */
    assert_int_equal(lam_session_feed(s, none, 3, NULL, NULL, &err), LAM_E_INVOCATION);
    assert_non_null(strstr(err.message, "its invocation " ACT_A2_SOUGHT " is not in the history"));
    assert_int_equal(lam_session_feed(s, wrong, 4, NULL, NULL, &err), LAM_E_INVOCATION);
    assert_int_equal(lam_session_feed(s, cut, 3, NULL, NULL, &err), LAM_E_INVOCATION_CUT);
    assert_non_null(strstr(err.message, "ends after 1 of the 2 tokens of its invocation " ACT_A2_SOUGHT));
    assert_int_equal(lam_session_feed(s, NULL, 3, NULL, NULL, &err), LAM_E_NO_TOKENS);
    assert_int_equal(lam_session_length(s), 0);
    reuse_feed(s, four, 4);
    assert_future(s, r.with[ACT_A2], four, 4);
    lam_session_free(s);
    s = fixture_session(r.with[ACT_A2], 40);
    lam_session_allow_base(s, true);
    reuse_feed(s, none, 3);
    assert_future(s, r.bare, none, 3);
    lam_session_free(s);
    reuse_close(&r);
}

/* Text whose invocation merges with what surrounds it into other tokens: as text it is there, as tokens it is not. */
static void test_merged_invocation(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    struct reuse_adapter a = {.name = "text", .layer = {Q, 0}, .seed = 1};
    reuse_open(&r, REUSE_BASE, NULL, 0, NULL);
    static const char *const texts[] = {"the", " the", "and", "in", "er", "is", "he", "re"};
    static const char *const around[] = {"a", "s", " ", "n", "t", "e", "the", "r"};
    uint32_t *marker = NULL, *whole = NULL;
    size_t n_marker = 0, n_whole = 0;
    bool found = false;
    for (size_t i = 0; i < 64 && !found; i++) { /* a pair whose tokens merge */
        char text[32];
        lam_memory_free(marker);
        lam_memory_free(whole);
        snprintf(text, sizeof text, "%s%s", around[i % 8], texts[i / 8]);
        assert_ok(lam_tokenize(r.base, texts[i / 8], strlen(texts[i / 8]), 0, &marker, &n_marker, &err), err);
        assert_ok(lam_tokenize(r.base, text, strlen(text), 0, &whole, &n_whole, &err), err);
        found = n_marker && n_marker <= 4;
        for (size_t at = 0; at + n_marker <= n_whole; at++) found &= memcmp(whole + at, marker, n_marker * sizeof *marker) != 0;
    }
    assert_true(found);
    memcpy(a.invocation, marker, n_marker * sizeof *marker);
    a.n_invocation = n_marker;
    char path[512];
    reuse_import(r.folder, r.base_path, &a, path);
    lam_adapter *adapter;
    lam_composition *c;
    assert_ok(lam_adapter_load(r.base, path, false, &adapter, &err), err);
    assert_ok(lam_compose(r.base, &adapter, (double[]){1.0}, 1, NULL, &c, &err), err);
    lam_session *s = fixture_session(c, 64);
    lam_code code = lam_session_feed(s, whole, n_whole, NULL, NULL, &err);
    assert_true(code == LAM_E_INVOCATION || code == LAM_E_INVOCATION_CUT);
    assert_int_equal(lam_session_length(s), 0);
    lam_session_free(s);
    lam_composition_free(c);
    lam_adapter_unload(adapter);
    lam_memory_free(marker);
    lam_memory_free(whole);
    reuse_close(&r);
}

/* A new submission moves the start: rows that act otherwise are computed again, however the history came. Two activated adapters and one
 * that always acts, any chunks, threads and plans. */
static void test_moved_starts(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {5, 99, 100, 7, 8, 12, 9, 10, 99, 100, 20, 21, 12, 22, 23, 24};
    static const size_t cuts[][5] = {{16}, {3, 16}, {6, 10, 16}, {7, 8, 9, 16}, {6, 13, 14, 15, 16}};
    static const lam_engine_options options[] = {{.threads = 1, .max_rows = 1}, {.threads = 2, .max_rows = 3}, {.threads = 2}};
    char want[LAM_DIGEST_TEXT] = "";
    for (size_t o = 0; o < 3; o++) {
        struct reuse r;
        lam_error err;
        lam_composition *c;
        open_all(&r, REUSE_Q4, &options[o]);
        lam_adapter *stack[] = {r.adapters[ACT_B2], r.adapters[LORA_A], r.adapters[ACT_A1]};
        assert_ok(lam_compose(r.base, stack, (double[]){1.0, 0.5, 0.7}, 3, NULL, &c, &err), err);
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
            lam_session *s = fixture_session(c, 40);
            lam_session_allow_base(s, true);
            for (size_t i = 0, at = 0; at < 16; at = cuts[k][i++]) reuse_feed(s, tokens + at, cuts[k][i] - at);
            char got[LAM_DIGEST_TEXT];
            reuse_future(s, got);
            if (!want[0]) strcpy(want, got);
            assert_string_equal(got, want);
            lam_session_free(s);
        }
        lam_composition_free(c);
        reuse_close(&r);
    }
}

/* Generated tokens never move a start; the next submission does. A shortened history is scanned again. */
static void test_generated_and_shortened(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {11, 99, 100, 12, 99, 100, 13, 14};
    struct reuse r;
    lam_error err;
    char got[LAM_DIGEST_TEXT], want[LAM_DIGEST_TEXT];
    open_all(&r, REUSE_Q4, NULL);
    lam_composition *c = r.with[ACT_A2];
    lam_session *s = fixture_session(c, 60);
    reuse_feed(s, tokens, 4);
    for (size_t i = 4; i < 8; i++) assert_ok(lam_session_step(&s, &tokens[i], 1, &err), err);
    assert_ok(lam_session_truncate(s, 7, &err), err); /* behind both */
    assert_ok(lam_session_step(&s, &tokens[7], 1, &err), err);
    reuse_future(s, got);
    reuse_fresh(c, tokens, 4, 4, want);
    assert_string_equal(got, want);
    assert_ok(lam_session_truncate(s, 7, &err), err);
    reuse_feed(s, tokens + 7, 1); /* now the second occurrence is the last */
    assert_future(s, c, tokens, 8);
    /* into the second occurrence: the first acts again */
    static const size_t lengths[] = {6, 5, 4, 3, 2, 1, 0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t next[16];
        size_t n = lengths[i];
        memcpy(next, tokens, n * sizeof *next);
        assert_ok(lam_session_truncate(s, n, &err), err);
        bool whole = n >= 3;
        if (n == 5 || n < 3) assert_int_equal(lam_session_step(&s, tokens, 1, &err), LAM_E_INVOCATION);
        next[n] = 30;
        next[n + 1] = 31;
        lam_code code = lam_session_feed(s, next + n, 2, NULL, NULL, &err);
        assert_int_equal(code, whole ? LAM_OK : LAM_E_INVOCATION);
        if (whole) assert_future(s, c, next, n + 2);
    }
    lam_session_free(s);
    reuse_close(&r);
}

static bool refuse_at(void *context, size_t position, const float *logits, size_t n_vocab)
{
    (void)logits, (void)n_vocab;
    return position != *(size_t *)context;
}

/* A submission that would compute rows again and fails leaves the session as it was. */
static void test_failed_submission(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {99, 100, 11, 12, 99, 100, 13};
    struct reuse r;
    lam_error err;
    open_all(&r, REUSE_BASE, &(lam_engine_options){.threads = 1, .max_rows = 2});
    lam_session *s = fixture_session(r.with[ACT_A2], 40);
    reuse_feed(s, tokens, 4);
    size_t at = 6;
    assert_int_equal(lam_session_feed(s, tokens + 4, 3, refuse_at, &at, &err), LAM_E_CANCELLED);
    assert_int_equal(lam_session_feed(s, (uint32_t[]){99, 100, REUSE_VOCAB}, 3, NULL, NULL, &err), LAM_E_TOKEN);
    assert_int_equal(lam_session_length(s), 4);
    assert_future(s, r.with[ACT_A2], tokens, 4);
    lam_session_free(s);
    reuse_close(&r);
}

/* Sessions with activated adapters beside others in one step. */
static void test_mixed_step(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    open_all(&r, REUSE_Q4, NULL);
    lam_composition *list[] = {r.with[ACT_A2], r.bare, r.with[ACT_A1], r.with[LORA_A]};
    lam_session *s[4];
    for (size_t i = 0; i < 4; i++) {
        s[i] = fixture_session(list[i], 30);
        reuse_feed(s[i], four, 4);
    }
    for (uint32_t t = 0; t < 5; t++) assert_ok(lam_session_step(s, (uint32_t[]){t, t, t, t}, 4, &err), err);
    for (size_t i = 0; i < 4; i++) {
        static const uint32_t tokens[] = {11, 12, 99, 100, 0, 1, 2, 3, 4};
        assert_future(s[i], list[i], tokens, 9);
        lam_session_free(s[i]);
    }
    reuse_close(&r);
}

/* ---- another composition ---- */

static void check_rebase(struct reuse *r, lam_composition *from, lam_composition *to, const uint32_t *tokens, size_t n, size_t want_kept)
{
    lam_error err;
    size_t kept = SIZE_MAX;
    lam_sampling p = {.temperature = 1.3f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 9};
    uint32_t token, fresh_token;
    lam_session *s = fixture_session(from, n + 10), *fresh = fixture_session(to, n + 10);
    reuse_feed(s, tokens, n);
    reuse_feed(fresh, tokens, n);
    for (int i = 0; i < 3; i++) assert_ok(lam_session_sample(s, &p, &token, &err), err);
    assert_ok(lam_session_rebase(s, to, &kept, &err), err);
    assert_int_equal(kept, want_kept);
    assert_string_equal(lam_session_composition_id(s), lam_composition_id(to));
    assert_ok(lam_session_sample(s, &p, &token, &err), err); /* draws begin anew */
    assert_ok(lam_session_sample(fresh, &p, &fresh_token, &err), err);
    assert_int_equal(token, fresh_token);
    assert_future(s, to, tokens, n);
    /* and back, behind what came since */
    assert_ok(lam_session_rebase(s, from, &kept, &err), err);
    lam_session_free(fresh);
    lam_session_free(s);
    (void)r;
}

static void test_rebase(void **state)
{
    (void)state;
    static const char *const sources[] = {REUSE_BASE, REUSE_Q4};
    for (size_t k = 0; k < 2; k++) {
        struct reuse r;
        open_all(&r, sources[k], NULL);
        lam_composition **with = r.with;
        const struct { lam_composition *from, *to; size_t kept; } cases[] = {
            {with[LORA_A], with[LORA_B], 0},    {r.bare, with[ACT_A2], 2},       {with[ACT_A2], r.bare, 2},
            {with[ACT_A2], with[ACT_B2], 2},    {with[ACT_A2], with[ACT_A1], 1}, {r.bare, with[HEAD], 4},
            {with[HEAD], r.bare, 4},            {r.bare, with[LAST_MLP], 4},     {r.bare, with[FIRST_MLP], 0},
            {r.bare, with[FIRST_Q], 0},         {r.bare, with[LAST_Q], 4},       {r.bare, with[LAST_K], 0},
            {with[LAST_MLP], with[LAST_Q], 4},  {r.bare, with[ACT_HEAD], 4},     {r.bare, with[LORA_A], 0},
            {with[LORA_A], with[LORA_A], 4},    {with[LORA_A], with[ACT_A2], 0},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_rebase(&r, cases[i].from, cases[i].to, four, 4, cases[i].kept);
        reuse_close(&r);
    }
}

/* A weight is part of what acts; a weight of 0 and a change of nothing are the base. The same file opened again is the same adapter, another one
 * of its name is not. */
static void test_rebase_by_effect(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    open_all(&r, REUSE_Q4, NULL);
    lam_adapter *a = r.adapters[LORA_A], *again, *renamed, *zero;
    lam_composition *half, *none, *moved, *revised, *nothing, *wide;
    char path[512];
    assert_ok(lam_compose(r.base, &a, (double[]){0.5}, 1, NULL, &half, &err), err);
    assert_ok(lam_compose(r.base, &a, (double[]){0.0}, 1, NULL, &none, &err), err);
    assert_ok(lam_adapter_load(r.base, r.paths[LORA_A], false, &again, &err), err);
    assert_ok(lam_compose(r.base, &again, (double[]){1.0}, 1, NULL, &moved, &err), err);
    reuse_import(r.folder, r.base_path, &(struct reuse_adapter){"A", {ALL, ALL}, true, 77, {0}, 0, false}, path);
    assert_ok(lam_adapter_load(r.base, path, false, &renamed, &err), err);
    assert_ok(lam_compose(r.base, &renamed, (double[]){1.0}, 1, NULL, &revised, &err), err);
    reuse_import(r.folder, r.base_path, &(struct reuse_adapter){"zero", {ALL, ALL}, false, 78, {0}, 0, true}, path);
    assert_ok(lam_adapter_load(r.base, path, false, &zero, &err), err);
    assert_ok(lam_compose(r.base, &zero, (double[]){1.0}, 1, NULL, &nothing, &err), err);
    assert_ok(lam_compose(r.base, &a, (double[]){1.0}, 1, &(lam_compose_options){.kv = LAM_KV_FLOAT32}, &wide, &err), err);
    check_rebase(&r, r.with[LORA_A], half, four, 4, 0);
    check_rebase(&r, r.bare, none, four, 4, 4);
    check_rebase(&r, r.with[LORA_A], moved, four, 4, 4);
    check_rebase(&r, r.with[LORA_A], revised, four, 4, 0);
    check_rebase(&r, r.bare, nothing, four, 4, 4);
    check_rebase(&r, r.with[LORA_A], wide, four, 4, 0); /* another format of the cache */
    /* The policy counts where it reaches rows, and so does the order of a stack. */
    lam_compose_options formed = {.policy = LAM_POLICY_MATERIALIZE};
    lam_adapter *stack[] = {a, r.adapters[LORA_B]}, *back[] = {r.adapters[LORA_B], a};
    lam_composition *all_formed, *mlp_formed, *ab, *ba, *replaced;
    assert_ok(lam_compose(r.base, &a, (double[]){1.0}, 1, &formed, &all_formed, &err), err);
    assert_ok(lam_compose(r.base, &r.adapters[LAST_MLP], (double[]){1.0}, 1, &formed, &mlp_formed, &err), err);
    assert_ok(lam_compose(r.base, stack, (double[]){1.0, 1.0}, 2, NULL, &ab, &err), err);
    assert_ok(lam_compose(r.base, back, (double[]){1.0, 1.0}, 2, NULL, &ba, &err), err);
    assert_ok(lam_compose(r.base, stack, (double[]){1.0, 1.0}, 2,
                          &(lam_compose_options){.rules = (lam_stack_rule[]){LAM_STACK_ADD, LAM_STACK_REPLACE}}, &replaced, &err), err);
    check_rebase(&r, r.with[LORA_A], all_formed, four, 4, 0);
    check_rebase(&r, r.with[LAST_MLP], mlp_formed, four, 4, 4);
    check_rebase(&r, ab, ba, four, 4, 0);
    check_rebase(&r, replaced, r.with[LORA_B], four, 4, 4); /* nothing is left of what it replaced */
    lam_composition *made[] = {half, none, moved, revised, nothing, wide, all_formed, mlp_formed, ab, ba, replaced};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) lam_composition_free(made[i]);
    lam_adapter_unload(again);
    lam_adapter_unload(renamed);
    lam_adapter_unload(zero);
    reuse_close(&r);
}

/* Over several pages, after truncation, with generated tokens, on an empty history, and what is refused. */
static void test_rebase_long(void **state)
{
    (void)state;
    struct reuse r, other;
    lam_error err;
    uint32_t tokens[620];
    size_t kept;
    open_all(&r, REUSE_Q4, NULL);
    fixture_tokens(3, 90, tokens, 620);
    tokens[300] = 99;
    tokens[301] = 100;
    check_rebase(&r, r.bare, r.with[ACT_A2], tokens, 600, 300);
    check_rebase(&r, r.with[ACT_A2], r.with[ACT_B2], tokens, 600, 300);
    check_rebase(&r, r.bare, r.with[HEAD], tokens, 512, 512);
    lam_session *s = fixture_session(r.bare, 640);
    assert_ok(lam_session_rebase(s, r.with[ACT_A2], &kept, &err), err); /* empty */
    assert_int_equal(kept, 0);
    assert_int_equal(lam_session_step(&s, tokens, 1, &err), LAM_E_INVOCATION);
    reuse_feed(s, tokens, 610);
    assert_ok(lam_session_truncate(s, 400, &err), err);
    assert_ok(lam_session_rebase(s, r.bare, &kept, &err), err);
    assert_int_equal(kept, 300);
    assert_future(s, r.bare, tokens, 400);
    assert_ok(lam_session_truncate(s, 200, &err), err);
    assert_int_equal(lam_session_rebase(s, r.with[ACT_A2], &kept, &err), LAM_E_INVOCATION);
    assert_string_equal(lam_session_composition_id(s), lam_composition_id(r.bare));
    reuse_feed(s, tokens + 200, 1);
    assert_future(s, r.bare, tokens, 201);
    reuse_open(&other, REUSE_BASE, NULL, 0, NULL);
    assert_int_equal(lam_session_rebase(s, other.bare, &kept, &err), LAM_E_WRONG_BASE);
    lam_session_free(s);
    reuse_close(&other);
    reuse_close(&r);
}

/* interval_digest: equal where rows are, and only there. */
static void test_intervals(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    char one[LAM_DIGEST_TEXT], two[LAM_DIGEST_TEXT];
    open_all(&r, REUSE_Q4, NULL);
    lam_session *base = fixture_session(r.bare, 10), *act = fixture_session(r.with[ACT_A2], 10);
    reuse_feed(base, four, 4);
    reuse_feed(act, four, 4);
    assert_ok(lam_session_interval(base, 0, 2, one, &err), err);
    assert_ok(lam_session_interval(act, 0, 2, two, &err), err);
    assert_string_equal(one, two);
    assert_ok(lam_session_interval(base, 0, 1, two, &err), err);
    assert_string_not_equal(one, two);
    assert_ok(lam_session_interval(base, 2, 4, one, &err), err);
    assert_ok(lam_session_interval(act, 2, 4, two, &err), err);
    assert_string_not_equal(one, two);
    assert_int_equal(lam_session_interval(act, 2, 5, two, &err), LAM_E_ARGUMENT);
    lam_session_free(base);
    lam_session_free(act);
    reuse_close(&r);
}

/* ---- the prefix cache ---- */

static size_t cached_feed(lam_composition *c, const uint32_t *tokens, size_t n, const char *salt, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    lam_session *s = fixture_session(c, n + 10);
    assert_ok(lam_session_isolate(s, salt, &err), err);
    reuse_feed(s, tokens, n);
    size_t cached = lam_session_cached(s);
    assert_int_equal(lam_session_isolate(s, salt, &err), LAM_E_CONFLICT);
    reuse_future(s, out);
    lam_session_free(s);
    return cached;
}

#define LONG 700

static void test_prefix_cache(void **state)
{
    (void)state;
    struct reuse cold, warm;
    lam_error err;
    uint32_t tokens[LONG];
    char got[LAM_DIGEST_TEXT], want[LAM_DIGEST_TEXT];
    open_all(&cold, REUSE_Q4, NULL);
    open_all(&warm, REUSE_Q4, &(lam_engine_options){.prefix_cache = 64u << 20});
    fixture_tokens(8, 90, tokens, LONG);
    lam_composition *half[2];
    assert_ok(lam_compose(cold.base, &cold.adapters[LORA_A], (double[]){0.5}, 1, NULL, &half[0], &err), err);
    assert_ok(lam_compose(warm.base, &warm.adapters[LORA_A], (double[]){0.5}, 1, NULL, &half[1], &err), err);
    const struct { lam_composition *cold, *warm; } order[] = {{cold.with[LORA_A], warm.with[LORA_A]}, {cold.with[LORA_B], warm.with[LORA_B]},
                                                              {cold.bare, warm.bare}, {half[0], half[1]}};
    for (int round = 0; round < 2; round++) /* across identities nothing; under the same one all but the last token */
        for (size_t i = 0; i < 4; i++) {
            size_t cached = cached_feed(order[i].warm, tokens, LONG, "", got);
            assert_int_equal(cached, round ? LONG - 1 : 0);
            reuse_fresh(order[i].cold, tokens, LONG, 0, want);
            assert_string_equal(got, want);
        }
    /* Another ending: what is common, within a page too. */
    static const size_t same[] = {1, 100, 255, 256, 257, 600};
    for (size_t i = 0; i < 6; i++) {
        uint32_t other[LONG];
        memcpy(other, tokens, sizeof other);
        other[same[i]] = 120 + (uint32_t)i;
        size_t cached = cached_feed(warm.bare, other, LONG, "", got);
        assert_int_equal(cached, same[i]);
        reuse_fresh(cold.bare, other, LONG, 0, want);
        assert_string_equal(got, want);
    }
    /* Whose K and V are the base's shares its rows; an activated adapter those before its invocation. */
    assert_int_equal(cached_feed(warm.with[HEAD], tokens, LONG, "", got), LONG - 1);
    reuse_fresh(cold.with[HEAD], tokens, LONG, 0, want);
    assert_string_equal(got, want);
    tokens[400] = 99;
    tokens[401] = 100;
    assert_int_equal(cached_feed(warm.with[ACT_A2], tokens, LONG, "", got), 400);
    reuse_fresh(cold.with[ACT_A2], tokens, LONG, 0, want);
    assert_string_equal(got, want);
    assert_int_equal(cached_feed(warm.with[ACT_A2], tokens, LONG, "", got), LONG - 1);
    assert_string_equal(got, want);
    /* Tenants apart. */
    assert_int_equal(cached_feed(warm.with[ACT_A2], tokens, LONG, "blue", got), 0);
    assert_int_equal(cached_feed(warm.with[ACT_A2], tokens, LONG, "red", got), 0);
    assert_int_equal(cached_feed(warm.with[ACT_A2], tokens, LONG, "blue", got), LONG - 1);
    assert_string_equal(got, want);
    lam_prefix_figures figures;
    lam_engine_prefix(warm.engine, &figures);
    assert_true(figures.hits > 0 && figures.hits < figures.lookups && figures.tokens_found > 0 && figures.evicted == 0);
    lam_engine_prefix(cold.engine, &figures);
    assert_int_equal(figures.lookups, 0);
    lam_composition_free(half[0]);
    lam_composition_free(half[1]);
    reuse_close(&warm);
    reuse_close(&cold);
}

/* Whole pages are shared by count; writing into a shared one copies it first. */
static void test_copy_on_write(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    uint32_t tokens[600], other[600];
    open_all(&r, REUSE_Q4, &(lam_engine_options){.prefix_cache = 64u << 20});
    fixture_tokens(8, 90, tokens, 600);
    memcpy(other, tokens, sizeof other);
    fixture_tokens(9, 90, other + 100, 500);
    lam_session *a = fixture_session(r.bare, 620), *b = fixture_session(r.bare, 620);
    reuse_feed(a, tokens, 600);
    reuse_feed(b, tokens, 600);
    assert_int_equal(lam_session_cached(b), 599);
    assert_ptr_equal(a->kv.pages[0], b->kv.pages[0]);
    assert_ptr_equal(a->kv.pages[1], b->kv.pages[1]);
    assert_ptr_not_equal(a->kv.pages[2], b->kv.pages[2]);
    assert_ok(lam_session_truncate(b, 100, &err), err);
    reuse_feed(b, other + 100, 500);
    assert_ptr_not_equal(a->kv.pages[0], b->kv.pages[0]);
    assert_future(a, r.bare, tokens, 600);
    assert_future(b, r.bare, other, 600);
    lam_session_free(a);
    lam_session_free(b);
    reuse_close(&r);
}

/* The budget holds, the least recently used goes, and nothing that is in use breaks. */
static void test_prefix_budget(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    uint32_t tokens[300];
    char got[LAM_DIGEST_TEXT], want[LAM_DIGEST_TEXT];
    const size_t budget = 600000;
    open_all(&r, REUSE_Q4, &(lam_engine_options){.prefix_cache = budget});
    lam_prefix_figures figures;
    for (uint64_t i = 0; i < 12; i++) {
        fixture_tokens(20 + i, 200, tokens, 300);
        assert_int_equal(cached_feed(r.bare, tokens, 300, "", want), 0);
        assert_int_equal(cached_feed(r.bare, tokens, 300, "", got), 299);
        assert_string_equal(got, want);
        fixture_tokens(20, 200, tokens, 300); /* used again and again, so it stays */
        assert_int_equal(cached_feed(r.bare, tokens, 300, "", want), 299);
        lam_engine_prefix(r.engine, &figures);
        assert_true(figures.bytes <= budget && figures.budget == budget);
    }
    assert_true(figures.evicted > 0 && figures.pages > 0);
    fixture_tokens(21, 200, tokens, 300);
    assert_int_equal(cached_feed(r.bare, tokens, 300, "", want), 0); /* long gone */
    (void)err;
    reuse_close(&r);
}

/* What a session generated is there for the next one. */
static void test_prefix_after_generation(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    uint32_t tokens[60];
    char got[LAM_DIGEST_TEXT], want[LAM_DIGEST_TEXT];
    open_all(&r, REUSE_BASE, &(lam_engine_options){.prefix_cache = 8u << 20});
    fixture_tokens(8, 90, tokens, 60);
    lam_session *s = fixture_session(r.with[LORA_B], 80);
    reuse_feed(s, tokens, 20);
    for (size_t i = 20; i < 50; i++) assert_ok(lam_session_step(&s, &tokens[i], 1, &err), err);
    lam_session_free(s);
    reuse_fresh(r.with[LORA_B], tokens, 60, 0, want); /* takes from the cache, too */
    assert_int_equal(cached_feed(r.with[LORA_B], tokens, 60, "", got), 59);
    assert_string_equal(got, want);
    reuse_close(&r);
}

/* ---- many threads ---- */

struct worker {
    struct reuse *r;
    unsigned index;
    const uint32_t *tokens;
    float want[3][REUSE_VOCAB];
    const char *failure; /* cmocka's assertions belong to the main thread */
};

/* Sessions that share pages, write into them, generate, switch and end, beside those of other threads. */
static void *work(void *argument)
{
    struct worker *w = argument;
    lam_composition *list[] = {w->r->bare, w->r->with[LORA_A], w->r->with[HEAD]};
    for (unsigned round = 0; round < 12 && !w->failure; round++) {
        size_t k = (round + w->index) % 3, to = (k + 1) % 3;
        lam_session *s;
        uint32_t token = 5;
        if (lam_session_new(list[k], 320, &s, NULL) != LAM_OK) return (void *)(w->failure = "new");
        if (lam_session_feed(s, w->tokens, 300, NULL, NULL, NULL) != LAM_OK) w->failure = "feed";
        else if (memcmp(lam_session_logits(s), w->want[k], sizeof w->want[k]) != 0) w->failure = "logits";
        else if (lam_session_step(&s, &token, 1, NULL) != LAM_OK) w->failure = "step";
        else if (lam_session_truncate(s, 10 * round, NULL) != LAM_OK) w->failure = "truncate";
        else if (lam_session_rebase(s, list[to], NULL, NULL) != LAM_OK) w->failure = "rebase";
        else if (lam_session_feed(s, w->tokens + 10 * round, 300 - 10 * round, NULL, NULL, NULL) != LAM_OK) w->failure = "second feed";
        else if (memcmp(lam_session_logits(s), w->want[to], sizeof w->want[to]) != 0) w->failure = "second logits";
        lam_session_free(s);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct reuse r;
    struct worker *w = calloc(4, sizeof *w);
    pthread_t threads[4];
    uint32_t tokens[300];
    open_all(&r, REUSE_Q4, &(lam_engine_options){.threads = 2, .prefix_cache = 400000});
    fixture_tokens(8, 90, tokens, 300);
    lam_composition *list[] = {r.bare, r.with[LORA_A], r.with[HEAD]};
    for (unsigned i = 0; i < 4; i++) {
        w[i] = (struct worker){.r = &r, .index = i, .tokens = tokens};
        for (size_t k = 0; k < 3; k++) {
            lam_session *s = fixture_session(list[k], 300);
            reuse_feed(s, tokens, 300);
            memcpy(w[i].want[k], lam_session_logits(s), sizeof w[i].want[k]);
            lam_session_free(s);
        }
    }
    for (unsigned i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    for (unsigned i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 4; i++)
        if (w[i].failure) fail_msg("thread %u: %s", i, w[i].failure);
    free(w);
    reuse_close(&r);
}

/* ---- files ---- */

static void test_save_and_restore(void **state)
{
    (void)state;
    static const lam_kv formats[] = {LAM_KV_FLOAT16, LAM_KV_FLOAT32, LAM_KV_INT8};
    struct reuse r;
    lam_error err;
    uint32_t tokens[320], token[2];
    char path[512], again[512], want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    lam_sampling p = {.temperature = 1.3f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 9};
    open_all(&r, REUSE_Q4, NULL);
    fixture_tokens(8, 90, tokens, 320);
    tokens[200] = 99;
    tokens[201] = 100;
    snprintf(path, sizeof path, "%s/a.session", r.folder);
    snprintf(again, sizeof again, "%s/b.session", r.folder);
    for (size_t k = 0; k < 3; k++) {
        lam_adapter *stack[] = {r.adapters[LORA_A], r.adapters[ACT_B2]};
        lam_composition *c, *b;
        lam_compose_options options = {.kv = formats[k]};
        assert_ok(lam_compose(r.base, stack, (double[]){1.0, 0.5}, 2, &options, &c, &err), err);
        assert_ok(lam_compose(r.base, &r.adapters[LORA_B], (double[]){1.0}, 1, &options, &b, &err), err);
        lam_session *s = fixture_session(c, 340), *t, *u;
        reuse_feed(s, tokens, 310);
        assert_ok(lam_session_truncate(s, 290, &err), err);
        reuse_feed(s, tokens + 290, 1);
        for (int i = 0; i < 3; i++) assert_ok(lam_session_sample(s, &p, token, &err), err);
        assert_ok(lam_session_save(s, path, &err), err);
        assert_ok(lam_session_restore(c, path, &(lam_restore_options){.context = 340}, &t, &err), err);
        assert_ok(lam_session_save(t, again, &err), err); /* nothing was lost */
        size_t n1, n2;
        uint8_t *f1 = test_read_file(path, &n1), *f2 = test_read_file(again, &n2);
        assert_true(n1 == n2 && memcmp(f1, f2, n1) == 0);
        free(f1);
        free(f2);
        assert_int_equal(lam_session_length(t), 291);
        assert_memory_equal(lam_session_logits(s), lam_session_logits(t), REUSE_VOCAB * sizeof(float));
        assert_ok(lam_session_sample(s, &p, &token[0], &err), err);
        assert_ok(lam_session_sample(t, &p, &token[1], &err), err);
        assert_int_equal(token[0], token[1]);
        reuse_future(s, want);
        reuse_future(t, got);
        assert_string_equal(got, want);
        u = (void *)&u;
        assert_int_equal(lam_session_restore(b, path, NULL, &u, &err), LAM_E_IDENTITY);
        assert_null(u);
        assert_int_equal(lam_session_restore(r.bare, path, NULL, &u, &err), LAM_E_IDENTITY);
        assert_int_equal(lam_session_restore(c, path, &(lam_restore_options){.context = 200}, &u, &err), LAM_E_CONTEXT);
        assert_int_equal(lam_session_restore(c, path, &(lam_restore_options){.salt = "other"}, &u, &err), LAM_E_KV_NAMESPACE);
        lam_session_free(s);
        lam_session_free(t);
        lam_composition_free(c);
        lam_composition_free(b);
    }
    /* Empty, and without logits. */
    lam_session *s = fixture_session(r.with[ACT_A2], 100), *t;
    assert_ok(lam_session_save(s, path, &err), err);
    assert_ok(lam_session_restore(r.with[ACT_A2], path, NULL, &t, &err), err);
    assert_int_equal(lam_session_length(t), 0);
    assert_int_equal(lam_session_step(&t, four, 1, &err), LAM_E_INVOCATION);
    reuse_feed(t, four, 4);
    assert_ok(lam_session_truncate(t, 3, &err), err);
    assert_ok(lam_session_save(t, path, &err), err);
    lam_session_free(t);
    assert_ok(lam_session_restore(r.with[ACT_A2], path, NULL, &t, &err), err);
    assert_null(lam_session_logits(t));
    assert_int_equal(lam_session_step(&t, four, 1, &err), LAM_E_INVOCATION); /* cut into its invocation */
    reuse_feed(t, four + 3, 1);
    assert_future(t, r.with[ACT_A2], four, 4);
    lam_session_free(t);
    lam_session_free(s);
    reuse_close(&r);
}

/* Every byte counts, every length too. */
static void test_damaged_files(void **state)
{
    (void)state;
    struct reuse r;
    lam_error err;
    char path[512];
    open_all(&r, REUSE_BASE, NULL);
    lam_composition *c = r.with[ACT_A2];
    lam_session *s = fixture_session(c, 100), *t;
    snprintf(path, sizeof path, "%s/a.session", r.folder);
    reuse_feed(s, four, 4);
    assert_ok(lam_session_save(s, path, &err), err);
    size_t n;
    uint8_t *file = test_read_file(path, &n);
    const struct { size_t at; lam_code code; } bytes[] = {{0, LAM_E_MAGIC}, {4, LAM_E_VERSION}, {6, LAM_E_UNKNOWN_FIELD}, {8, LAM_E_OVERFLOW},
        {12, LAM_E_OVERFLOW}, {16, LAM_E_OVERFLOW}, {24, LAM_E_OVERFLOW}, {32, LAM_E_OVERFLOW}, {40, LAM_E_UNKNOWN_FIELD}, {64, LAM_E_DIGEST},
        {n / 2, LAM_E_DIGEST}, {n - 1, LAM_E_DIGEST}};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        file[bytes[i].at] ^= 1;
        fixture_write(path, file, n);
        assert_int_equal(lam_session_restore(c, path, NULL, &t, &err), bytes[i].code);
        file[bytes[i].at] ^= 1;
    }
    for (size_t i = 0; i < 100; i++) {
        fixture_write(path, file, n * i / 100);
        assert_int_equal(lam_session_restore(c, path, NULL, &t, &err), n * i / 100 < 4 ? LAM_E_MAGIC : LAM_E_TRUNCATED);
    }
    uint8_t *longer = calloc(1, n + 1);
    memcpy(longer, file, n);
    fixture_write(path, longer, n + 1);
    assert_int_equal(lam_session_restore(c, path, NULL, &t, &err), LAM_E_GAP);
    assert_int_equal(lam_session_restore(c, "/nowhere/at/all", NULL, &t, &err), LAM_E_NOT_FOUND);
    fixture_write(path, file, n);
    assert_ok(lam_session_restore(c, path, NULL, &t, &err), err);
    assert_future(t, c, four, 4);
    lam_session_free(t);
    free(longer);
    free(file);
    lam_session_free(s);
    reuse_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activation),       cmocka_unit_test(test_missing_invocation),  cmocka_unit_test(test_merged_invocation),
        cmocka_unit_test(test_moved_starts),     cmocka_unit_test(test_generated_and_shortened), cmocka_unit_test(test_failed_submission),
        cmocka_unit_test(test_mixed_step),       cmocka_unit_test(test_rebase),              cmocka_unit_test(test_rebase_by_effect),
        cmocka_unit_test(test_rebase_long),      cmocka_unit_test(test_intervals),           cmocka_unit_test(test_prefix_cache),
        cmocka_unit_test(test_copy_on_write),    cmocka_unit_test(test_prefix_budget),       cmocka_unit_test(test_prefix_after_generation),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_save_and_restore), cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
