/* Mixed decode for a while: several callers on one base, each with sessions of many compositions, in prompts cut at random, steps
 * of random company, truncations, switches, re-basing and reloads, with a prefix cache. After every call the logits of every session that it advanced must be the
 * bits of the reference: one thread, alone, the history fed whole. Meant for the sanitizers (make soak); environment:
 * SOAK_SECONDS (default 10), SOAK_CALLERS (3). */
#include "fixture.h"

#include "lamina/reuse.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAX_LENGTH 300 /* beyond one page of the KV cache */
#define HISTORIES 4
#define MIXES 5
#define SESSIONS 6 /* of a caller */

static const struct {
    double weights[2];
    lam_compose_options options;
} mixes[MIXES] = {{{0.0, 0.0}, {0}}, {{1.0, 0.0}, {0}}, {{0.0, 1.0}, {0}}, {{1.0, 0.5}, {.policy = LAM_POLICY_MATERIALIZE}}, {{-0.5, 1.7}, {0}}};

struct soak {
    struct fixture fixture;
    size_t n_vocab;
    uint32_t tokens[HISTORIES][MAX_LENGTH];
    uint64_t logits[MIXES][HISTORIES][MAX_LENGTH]; /* a digest of the logits after each position */
    double until;
    atomic_size_t tokens_done, calls, wrong;
};

struct line {
    lam_session *session;
    size_t mix, history;
};

struct caller {
    struct soak *soak;
    pthread_t thread;
    uint64_t rng;
    struct line lines[SESSIONS];
};

static size_t below(uint64_t *rng, size_t n) { return (size_t)(test_random(rng) % n); }

static uint64_t digest64(const float *logits, size_t n)
{
    uint8_t digest[LAM_SHA256_BYTES];
    uint64_t first;
    lam_sha256(logits, n * sizeof *logits, digest);
    memcpy(&first, digest, sizeof first);
    return first;
}

static bool note_position(void *context, size_t position, const float *logits, size_t n_vocab)
{
    uint64_t *row = context;
    row[position] = digest64(logits, n_vocab);
    return true;
}

/* cmocka's asserts may not fail outside the main thread: a caller ends the program with what went wrong. */
static void must(lam_code code, const lam_error *err)
{
    if (code == LAM_OK) return;
    fprintf(stderr, "%s: %s\n", lam_code_name(code), err->message);
    abort();
}

static void make_reference(struct soak *s)
{
    lam_error err;
    fixture_open(&s->fixture, &(lam_engine_options){.threads = 1, .max_rows = MAX_LENGTH});
    s->n_vocab = fixture_vocab(&s->fixture);
    for (size_t h = 0; h < HISTORIES; h++) fixture_tokens(h + 1, s->n_vocab, s->tokens[h], MAX_LENGTH);
    for (size_t m = 0; m < MIXES; m++) {
        lam_composition *c;
        assert_ok(lam_compose(s->fixture.base, s->fixture.adapters, mixes[m].weights, 2, &mixes[m].options, &c, &err), err);
        for (size_t h = 0; h < HISTORIES; h++) {
            lam_session *session = fixture_session(c, MAX_LENGTH);
            assert_ok(lam_session_feed(session, s->tokens[h], MAX_LENGTH, note_position, s->logits[m][h], &err), err);
            lam_session_free(session);
        }
        lam_composition_free(c);
    }
    fixture_close(&s->fixture);
}

static void check(struct soak *s, const struct line *l, size_t n)
{
    size_t length = lam_session_length(l->session);
    atomic_fetch_add(&s->tokens_done, n);
    if (digest64(lam_session_logits(l->session), s->n_vocab) != s->logits[l->mix][l->history][length - 1]) atomic_fetch_add(&s->wrong, 1);
}

/* A composition of the line's mix, of adapters loaded for it or shared ones. */
static lam_composition *compose(struct caller *c, const struct line *l)
{
    struct fixture *f = &c->soak->fixture;
    lam_adapter *adapters[2] = {f->adapters[0], f->adapters[1]};
    lam_composition *composition;
    lam_error err;
    bool reload = below(&c->rng, 4) == 0;
    for (size_t i = 0; reload && i < 2; i++) must(lam_adapter_load(f->base, f->adapter_paths[i], false, &adapters[i], &err), &err);
    must(lam_compose(f->base, adapters, mixes[l->mix].weights, 2, &mixes[l->mix].options, &composition, &err), &err);
    for (size_t i = 0; reload && i < 2; i++) lam_adapter_unload(adapters[i]);
    return composition;
}

static void begin(struct caller *c, struct line *l)
{
    lam_error err;
    lam_session_free(l->session);
    l->mix = below(&c->rng, MIXES);
    l->history = below(&c->rng, HISTORIES);
    lam_composition *composition = compose(c, l);
    must(lam_session_new(composition, MAX_LENGTH, &l->session, &err), &err);
    lam_composition_free(composition);
}

/* The line goes on under another composition. */
static void rebase(struct caller *c, struct line *l)
{
    lam_error err;
    l->mix = below(&c->rng, MIXES);
    lam_composition *composition = compose(c, l);
    must(lam_session_rebase(l->session, composition, NULL, &err), &err);
    lam_composition_free(composition);
    if (lam_session_logits(l->session)) check(c->soak, l, 0);
}

static void feed(struct caller *c, struct line *l)
{
    lam_error err;
    size_t length = lam_session_length(l->session), room = MAX_LENGTH - length, n = 1 + below(&c->rng, room < 40 ? room : 40);
    must(lam_session_feed(l->session, c->soak->tokens[l->history] + length, n, NULL, NULL, &err), &err);
    check(c->soak, l, n);
}

/* One token in each of some lines. */
static void step(struct caller *c)
{
    lam_session *sessions[SESSIONS];
    uint32_t tokens[SESSIONS];
    struct line *lines[SESSIONS];
    size_t n = 0, first = below(&c->rng, SESSIONS), most = 1 + below(&c->rng, SESSIONS);
    lam_error err;
    for (size_t i = 0; i < most; i++) {
        struct line *l = &c->lines[(first + i) % SESSIONS];
        size_t length = lam_session_length(l->session);
        if (length == MAX_LENGTH) continue;
        lines[n] = l;
        sessions[n] = l->session;
        tokens[n++] = c->soak->tokens[l->history][length];
    }
    must(lam_session_step(sessions, tokens, n, &err), &err);
    for (size_t i = 0; i < n; i++) check(c->soak, lines[i], 1);
}

static void *call_at_random(void *argument)
{
    struct caller *c = argument;
    lam_error err;
    for (size_t i = 0; i < SESSIONS; i++) begin(c, &c->lines[i]);
    while (lam_now() < c->soak->until) {
        struct line *l = &c->lines[below(&c->rng, SESSIONS)];
        size_t what = below(&c->rng, 20), length = lam_session_length(l->session);
        if (what == 0) begin(c, l);
        else if (what == 6) rebase(c, l);
        else if (what == 1) must(lam_session_truncate(l->session, below(&c->rng, length + 1), &err), &err);
        else if (what < 6 && length < MAX_LENGTH) feed(c, l);
        else step(c);
        atomic_fetch_add(&c->soak->calls, 1);
    }
    for (size_t i = 0; i < SESSIONS; i++) lam_session_free(c->lines[i].session);
    return NULL;
}

static double setting(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atof(text) : otherwise;
}

/* Half of the time with as many threads as callers, half with one more than the machine may have. */
static void soak_with(struct soak *s, unsigned threads, double seconds)
{
    size_t n = (size_t)setting("SOAK_CALLERS", 3);
    struct caller *callers = calloc(n, sizeof *callers);
    assert_non_null(callers);
    fixture_open(&s->fixture, &(lam_engine_options){.threads = threads, .max_rows = 16, .prefix_cache = (size_t)1 << 20});
    s->until = lam_now() + seconds;
    for (size_t i = 0; i < n; i++) {
        callers[i] = (struct caller){.soak = s, .rng = 1000 * threads + i};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_at_random, &callers[i]), 0);
    }
    for (size_t i = 0; i < n; i++) pthread_join(callers[i].thread, NULL);
    fixture_close(&s->fixture);
    free(callers);
    printf("%u threads, %.0f s: %zu calls, %zu tokens, %zu wrong\n", threads, seconds, atomic_load(&s->calls),
           atomic_load(&s->tokens_done), atomic_load(&s->wrong));
    assert_int_equal(atomic_load(&s->wrong), 0);
}

static void soak_base(const char *base, const char *const adapters[2], double seconds)
{
    struct soak *s = calloc(1, sizeof *s);
    assert_non_null(s);
    fixture_import(&s->fixture, base, adapters, 2);
    make_reference(s);
    printf("%s\n", base);
    soak_with(s, 2, seconds / 2);
    soak_with(s, 5, seconds / 2);
    fixture_remove(&s->fixture);
    free(s);
}

static void test_soak(void **state)
{
    (void)state;
    double seconds = setting("SOAK_SECONDS", 10) / 4;
    soak_base("data/stories260K-Q8_0.gguf", (const char *const[]){"data/adapters/oz", "data/adapters/shakespeare"}, seconds);
    soak_base("tests/golden/llama-k/llama-k-kmix.gguf", (const char *const[]){"tests/golden/adapters/llama-k/all-r4", "twin"}, seconds);
    soak_base("tests/golden/gemma3-swa/gemma3-swa-bf16.gguf",
              (const char *const[]){"tests/golden/adapters/gemma3-swa/all-r2", "tests/golden/adapters/gemma3-swa/embed"}, seconds);
    soak_base("tests/golden/llama-k/llama-k-kmix.gguf",
              (const char *const[]){"tests/golden/methods/llama-k/dora", "tests/golden/methods/llama-k/ia3"}, seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
