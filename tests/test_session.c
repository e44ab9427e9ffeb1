/* Sessions through the public API: what is refused, that a refusal leaves the history as it was, and that no session feels another. */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"

#include "run/objects.h"

#include <math.h>
#include <pthread.h>

#define GQA "tests/golden/llama-gqa/llama-gqa-"
#define ADAPTER "tests/golden/adapters/llama-gqa/"
#define N 24
static const char *const adapters[] = {ADAPTER "all-r4", "twin"};

struct setup {
    struct fixture f;
    lam_composition *base, *composed;
    uint32_t tokens[N];
    size_t n_vocab;
};

static void set_up(struct setup *s, const char *source, const lam_engine_options *options)
{
    fixture_import(&s->f, source, adapters, 2);
    fixture_open(&s->f, options);
    s->n_vocab = fixture_vocab(&s->f);
    fixture_tokens(11, s->n_vocab, s->tokens, N);
    s->base = fixture_compose(&s->f, NULL, 0);
    s->composed = fixture_compose(&s->f, (double[]){1.0, 0.5}, 2);
}

static void tear_down(struct setup *s)
{
    lam_composition_free(s->base);
    lam_composition_free(s->composed);
    fixture_close(&s->f);
    fixture_remove(&s->f);
}

/* Logits after tokens[n] of c, in a session of their own; freed with free. */
static float *logits_after(const struct setup *s, lam_composition *c, const uint32_t *tokens, size_t n)
{
    lam_error err;
    lam_session *session = fixture_session(c, n);
    float *logits = malloc(s->n_vocab * sizeof *logits);
    assert_non_null(logits);
    assert_ok(lam_session_feed(session, tokens, n, NULL, NULL, &err), err);
    memcpy(logits, lam_session_logits(session), s->n_vocab * sizeof *logits);
    lam_session_free(session);
    return logits;
}

static void assert_logits(const struct setup *s, const lam_session *session, lam_composition *c, const uint32_t *tokens, size_t n)
{
    float *want = logits_after(s, c, tokens, n);
    assert_int_equal(lam_session_length(session), n);
    assert_memory_equal(lam_session_logits(session), want, s->n_vocab * sizeof *want);
    free(want);
}

static void feed(lam_session *session, const uint32_t *tokens, size_t n)
{
    lam_error err;
    assert_ok(lam_session_feed(session, tokens, n, NULL, NULL, &err), err);
}

static bool stop_at(void *context, size_t position, const float *logits, size_t n_vocab)
{
    (void)logits, (void)n_vocab;
    return position != *(size_t *)context;
}

static void test_refused_feeds(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    set_up(&s, GQA "q4_0.gguf", &(lam_engine_options){.threads = 2, .max_rows = 4});
    lam_session *session = fixture_session(s.composed, 20);
    assert_null(lam_session_logits(session));
    assert_int_equal(lam_session_context(session), 20);
    feed(session, s.tokens, 5);
    const uint32_t bad_first[] = {(uint32_t)s.n_vocab, 1}, bad_last[] = {1, 2, 3, 4, 5, UINT32_MAX};
    size_t at = 9;
    for (int round = 0; round < 2; round++) { /* twice: a refusal leaves no trace that the next could trip over */
        assert_int_equal(lam_session_feed(session, bad_first, 2, NULL, NULL, &err), LAM_E_TOKEN);
        assert_int_equal(lam_session_feed(session, bad_last, 6, NULL, NULL, &err), LAM_E_TOKEN); /* after a chunk that went well */
        assert_int_equal(lam_session_feed(session, s.tokens, 16, NULL, NULL, &err), LAM_E_CONTEXT);
        assert_int_equal(lam_session_feed(session, s.tokens, SIZE_MAX, NULL, NULL, &err), LAM_E_CONTEXT);
        assert_int_equal(lam_session_feed(session, s.tokens, 15, stop_at, &at, &err), LAM_E_CANCELLED);
        assert_int_equal(lam_session_step(&session, bad_first, 1, &err), LAM_E_TOKEN);
        assert_logits(&s, session, s.composed, s.tokens, 5);
    }
    feed(session, s.tokens + 5, 0);
    feed(session, s.tokens + 5, 15);
    assert_logits(&s, session, s.composed, s.tokens, 20);
    assert_int_equal(lam_session_feed(session, s.tokens, 1, NULL, NULL, &err), LAM_E_CONTEXT);
    assert_int_equal(lam_session_step(&session, s.tokens, 1, &err), LAM_E_CONTEXT);
    lam_session *none = (void *)&none;
    assert_int_equal(lam_session_new(s.base, SIZE_MAX, &none, &err), LAM_E_LIMIT);
    assert_null(none);
    lam_session_free(NULL);
    lam_session_free(session);
    tear_down(&s);
}

/* A shortened history goes on as one that never was longer, within a page and across its end. */
static void test_truncate(void **state)
{
    (void)state;
    static const char *const sources[] = {GQA "q4_0.gguf", "tests/golden/llama-gqa"};
    static const size_t lengths[] = {0, 1, 15, 17, 255, 256, 257, 300};
    uint32_t tokens[320];
    lam_error err;
    for (size_t k = 0; k < 2; k++) {
        struct setup s;
        set_up(&s, sources[k], NULL);
        fixture_tokens(5, s.n_vocab, tokens, 320);
        lam_session *session = fixture_session(s.composed, 320);
        feed(session, tokens, 310);
        assert_int_equal(lam_session_truncate(session, 311, &err), LAM_E_ARGUMENT);
        assert_ok(lam_session_truncate(session, 310, &err), err);
        assert_non_null(lam_session_logits(session)); /* nothing was cut */
        for (size_t i = sizeof lengths / sizeof *lengths; i-- > 0;) {
            uint32_t other[320];
            size_t n = lengths[i] + 10 <= 310 ? 10 : 5;
            assert_ok(lam_session_truncate(session, lengths[i], &err), err);
            assert_null(lam_session_logits(session));
            memcpy(other, tokens, lengths[i] * sizeof *other);
            fixture_tokens(50 + i, s.n_vocab, other + lengths[i], n);
            feed(session, other + lengths[i], n);
            assert_logits(&s, session, s.composed, other, lengths[i] + n);
        }
        lam_session_free(session);
        tear_down(&s);
    }
}

static void test_refused_steps(void **state)
{
    (void)state;
    struct setup s, t;
    lam_error err;
    set_up(&s, GQA "q4_0.gguf", &(lam_engine_options){.threads = 1, .max_rows = 3});
    set_up(&t, GQA "q8_0.gguf", NULL);
    lam_session *a = fixture_session(s.base, 10), *b = fixture_session(s.composed, 10), *full = fixture_session(s.base, 2),
                *foreign = fixture_session(t.base, 10), *fresh = fixture_session(s.base, 10);
    feed(a, s.tokens, 3);
    feed(b, s.tokens, 4);
    feed(full, s.tokens, 2);
    const struct { lam_session *list[4]; size_t n; uint32_t last; lam_code code; } cases[] = {
        {{a, b, foreign}, 3, 1, LAM_E_WRONG_BASE}, {{a, b, a}, 3, 1, LAM_E_DUPLICATE}, {{a, b, full}, 3, 1, LAM_E_CONTEXT},
        {{a, b, fresh, full}, 4, 1, LAM_E_LIMIT},  {{a, b, fresh}, 3, 1000000, LAM_E_TOKEN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t tokens[] = {7, 8, cases[i].last, 9};
        assert_int_equal(lam_session_step(cases[i].list, tokens, cases[i].n, &err), cases[i].code);
        assert_logits(&s, a, s.base, s.tokens, 3);
        assert_logits(&s, b, s.composed, s.tokens, 4);
        assert_int_equal(lam_session_length(fresh), 0);
        assert_null(lam_session_logits(fresh));
    }
    assert_ok(lam_session_step(NULL, NULL, 0, &err), err);
    lam_session *list[] = {fresh, a, b};
    assert_ok(lam_session_step(list, (uint32_t[]){s.tokens[0], s.tokens[3], s.tokens[4]}, 3, &err), err);
    assert_logits(&s, fresh, s.base, s.tokens, 1);
    assert_logits(&s, a, s.base, s.tokens, 4);
    assert_logits(&s, b, s.composed, s.tokens, 5);
    lam_session *all[] = {a, b, full, foreign, fresh};
    for (size_t i = 0; i < 5; i++) lam_session_free(all[i]);
    tear_down(&s);
    tear_down(&t);
}

/* A composition whose activations leave the finite range ends its own requests, alone and among others. */
static void check_overflow(const char *source, double weight)
{
    struct setup s;
    lam_error err;
    set_up(&s, source, &(lam_engine_options){.threads = 2});
    lam_composition *wild = fixture_compose(&s.f, (double[]){weight}, 1);
    lam_session *list[] = {fixture_session(s.base, N), fixture_session(wild, N), fixture_session(s.composed, N), fixture_session(wild, N)};
    assert_int_equal(lam_session_feed(list[1], s.tokens, 9, NULL, NULL, &err), LAM_E_ACTIVATION);
    assert_int_equal(lam_session_length(list[1]), 0);
    assert_null(lam_session_logits(list[1]));
    for (size_t i = 0; i < 9; i++) {
        const uint32_t tokens[] = {s.tokens[i], s.tokens[i], s.tokens[i], s.tokens[i]};
        assert_int_equal(lam_session_step(list, tokens, 4, &err), LAM_E_ACTIVATION);
        assert_non_null(strstr(err.message, "session 1 "));
        assert_logits(&s, list[0], s.base, s.tokens, i + 1);
        assert_logits(&s, list[2], s.composed, s.tokens, i + 1);
        assert_true(lam_session_length(list[1]) == 0 && lam_session_length(list[3]) == 0);
    }
    for (size_t i = 0; i < 4; i++) lam_session_free(list[i]);
    lam_composition_free(wild);
    tear_down(&s);
}

static void test_overflow(void **state)
{
    (void)state;
    check_overflow(GQA "q4_0.gguf", 1e30);          /* K and V leave float16's range */
    check_overflow("tests/golden/llama-gqa", 1e38); /* float32's */
}

/* Whether an overflow is noticed doesn't hang on who wants the row's logits. */
static void test_overflow_without_logits(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    set_up(&s, "tests/golden/llama-gqa", &(lam_engine_options){.threads = 1});
    lam_composition *wild = fixture_compose(&s.f, (double[]){1.0}, 1);
    struct lam_overlay_slot *last = NULL; /* only the last block's output overflows: no K or V does */
    for (size_t i = 0; i < wild->variants[0].overlay->n_slots; i++) {
        struct lam_overlay_slot *slot = &wild->variants[0].overlay->slots[i];
        const struct lam_target *t = &wild->variants[0].overlay->first_target[i];
        lam_base_info info;
        lam_base_describe(s.f.base, &info);
        if (t->role == LAM_ROLE_DOWN && t->layer == info.n_layers - 1) last = slot;
        else slot->n_ops = 0;
    }
    assert_true(last && last->n_ops == 1);
    last->ops[0].scale = 1e25f; /* squares leave float32 in the final norm */
    lam_session *session = fixture_session(wild, 4);
    assert_ok(lam_kv_reserve(&session->kv, 4, &err), err);
    for (int want = 0; want < 2; want++) {
        struct lam_row row = {.token = s.tokens[0], .kv = &session->kv, .overlay = wild->variants[0].overlay,
                              .logits = want ? session->next_logits : NULL};
        assert_ok(lam_forward_run(s.f.base->forward, &row, 1, &err), err);
        assert_true(row.failed);
    }
    lam_session_free(session);
    lam_composition_free(wild);
    tear_down(&s);
}

/* ---- sampling and generation ---- */

struct text {
    char bytes[4096];
    size_t n, stop_after;
};

static bool collect(void *context, const char *text, uint32_t token)
{
    struct text *t = context;
    (void)token;
    if (strlen(t->bytes) + strlen(text) < sizeof t->bytes) strcat(t->bytes, text);
    return ++t->n != t->stop_after;
}

static size_t generate(lam_composition *c, const lam_sampling *p, size_t context, size_t max_tokens, struct text *t)
{
    static const uint32_t prompt[] = {5, 6, 7};
    lam_error err;
    size_t n;
    lam_session *session = fixture_session(c, context);
    feed(session, prompt, 3);
    assert_ok(lam_generate(session, p, max_tokens, collect, t, &n, &err), err);
    assert_int_equal(lam_session_length(session), 3 + n);
    lam_session_free(session);
    return n;
}

static void test_generation(void **state)
{
    (void)state;
    struct setup s;
    lam_error err;
    uint32_t token;
    set_up(&s, GQA "q4_0.gguf", NULL);
    struct text first = {.n = 0}, again = {.n = 0}, other = {.n = 0}, stopped = {.stop_after = 4}, full = {.n = 0};
    lam_sampling p = {.temperature = 1.5f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = 1};
    size_t n = generate(s.composed, &p, 100, 40, &first);
    assert_int_equal(generate(s.composed, &p, 100, 40, &again), n);
    assert_string_equal(first.bytes, again.bytes);
    p.seed = 2;
    generate(s.composed, &p, 100, 40, &other);
    assert_string_not_equal(first.bytes, other.bytes);
    p.temperature = 0.0f;
    assert_true(generate(s.base, &p, 100, 40, &stopped) <= 4);
    assert_true(generate(s.base, &p, 8, 40, &full) <= 5); /* a full context ends it */

    lam_session *session = fixture_session(s.base, 10);
    assert_int_equal(lam_session_sample(session, &p, &token, &err), LAM_E_ARGUMENT); /* an empty history */
    feed(session, s.tokens, 2);
    p.top_p = 2.0f;
    assert_int_equal(lam_session_sample(session, &p, &token, &err), LAM_E_ARGUMENT);
    assert_int_equal(lam_generate(session, &p, 5, NULL, NULL, &n, &err), LAM_E_ARGUMENT);
    assert_int_equal(n, 0);
    p.top_p = 1.0f;
    assert_ok(lam_session_sample(session, &p, &token, &err), err);
    const float *logits = lam_session_logits(session);
    for (size_t i = 0; i < s.n_vocab; i++) assert_true(logits[i] < logits[token] || (logits[i] == logits[token] && i >= token));
    assert_int_equal(lam_session_length(session), 2); /* sampling appends nothing */
    lam_session_free(session);
    tear_down(&s);
}

/* ---- many threads, one engine ---- */

#define THREADS 4
#define ROUNDS 12

struct worker {
    struct setup *s;
    unsigned index;
    char want[2][LAM_DIGEST_TEXT];
    const char *failure; /* cmocka's assertions belong to the main thread */
};

static bool digest_quietly(lam_composition *c, const uint32_t *tokens, size_t n, char out[LAM_DIGEST_TEXT])
{
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_session *session;
    if (lam_session_new(c, n, &session, NULL) != LAM_OK) return false;
    lam_sha256_init(&hash);
    bool ok = lam_session_feed(session, tokens, n / 2, fixture_hash, &hash, NULL) == LAM_OK;
    for (size_t i = n / 2; i < n; i++) {
        ok &= lam_session_step(&session, &tokens[i], 1, NULL) == LAM_OK;
        if (ok) fixture_hash(&hash, i, lam_session_logits(session), session->composition->base->model->config.n_vocab);
    }
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    lam_session_free(session);
    return ok;
}

/* Loads, composes, verifies, tokenises and computes, all on handles that the other threads use too. */
static void *work(void *argument)
{
    struct worker *w = argument;
    struct setup *s = w->s;
    for (unsigned round = 0; round < ROUNDS && !w->failure; round++) {
        char got[LAM_DIGEST_TEXT];
        lam_composition *c = NULL;
        lam_adapter *own[2] = {NULL, s->f.adapters[1]};
        uint32_t *tokens = NULL;
        size_t n;
        bool composed = (round + w->index) % 2;
        if (lam_adapter_load(s->f.base, s->f.adapter_paths[0], false, &own[0], NULL) != LAM_OK) w->failure = "load";
        else if (lam_compose(s->f.base, own, (double[]){1.0, 0.5}, composed ? 2 : 0, NULL, &c, NULL) != LAM_OK) w->failure = "compose";
        else if (!digest_quietly(c, s->tokens, N, got)) w->failure = "feed";
        else if (strcmp(got, w->want[composed]) != 0) w->failure = "digest";
        else if (round % 4 == 0 && lam_base_verify(s->f.base, NULL, NULL) != LAM_OK) w->failure = "verify";
        else if (lam_tokenize(s->f.base, "some text", 9, 0, &tokens, &n, NULL) != LAM_OK) w->failure = "tokenize";
        lam_memory_free(tokens);
        lam_adapter_unload(own[0]);
        lam_composition_free(c);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct setup s;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    set_up(&s, GQA "q4_0.gguf", &(lam_engine_options){.threads = 2});
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.s = &s, .index = i};
        assert_true(digest_quietly(s.base, s.tokens, N, workers[i].want[0]));
        assert_true(digest_quietly(s.composed, s.tokens, N, workers[i].want[1]));
        assert_string_not_equal(workers[i].want[0], workers[i].want[1]);
    }
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failure) fail_msg("thread %zu: %s", i, workers[i].failure);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_feeds), cmocka_unit_test(test_truncate), cmocka_unit_test(test_refused_steps),
        cmocka_unit_test(test_overflow), cmocka_unit_test(test_overflow_without_logits), cmocka_unit_test(test_generation),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
