/* One table of digests: the logits of a composition are the same bits with every instruction set, number of threads, cut of the
 * prompt and company in the plan. */
#include "fixture.h"

#include "kernels/kernels.h"
#include "run/activation.h"
#include "run/objects.h"
#include "run/pass.h"

#define MAX_PROMPT 320
#define NEIGHBOURS 7
#define MAX_ROWS (MAX_PROMPT + NEIGHBOURS * 4)

static const unsigned thread_counts[] = {1, 2, 5};
static const size_t chunks[] = {MAX_PROMPT, 1, 7, 64}; /* the first: whole */
#define N_THREADS (sizeof thread_counts / sizeof *thread_counts)
#define N_CHUNKS (sizeof chunks / sizeof *chunks)

struct subject {
    const char *name, *base, *adapters[2];
    size_t n_prompt;
    lam_kv kv;
    lam_policy policy;
    bool brief; /* two cuts instead of four, and one number of threads an instruction set */
};

#define METHODS "tests/golden/methods/"

/* Prompts beyond 256 positions cross a cut of attention; gemma3-swa sees 16 positions in most layers. */
static const struct subject subjects[] = {
    {"stories260K Q8_0", "data/stories260K-Q8_0.gguf", {"data/adapters/oz", "data/adapters/shakespeare"}, .n_prompt = 264},
    {"llama K mix", "tests/golden/llama-k/llama-k-kmix.gguf", {"tests/golden/adapters/llama-k/all-r4", "twin"}, .n_prompt = 70},
    {"gemma3 bf16, window 16", "tests/golden/gemma3-swa/gemma3-swa-bf16.gguf",
     {"tests/golden/adapters/gemma3-swa/all-r2", "tests/golden/adapters/gemma3-swa/embed"}, .n_prompt = 66},
    {"gemma3 K mix", "tests/golden/gemma3-k/gemma3-k-kmix.gguf", {"tests/golden/adapters/gemma3-k/attention-r3", "twin"}, .n_prompt = 70},
    {"llama f32", "tests/golden/llama-gqa", {"tests/golden/adapters/llama-gqa/all-r4", "tests/golden/adapters/llama-gqa/rank-7"}, .n_prompt = 100},
    {"stories260K Q8_0, int8 KV", "data/stories260K-Q8_0.gguf", {"data/adapters/oz", "data/adapters/shakespeare"}, .n_prompt = 264, .kv = LAM_KV_INT8},
    {"gemma3 bf16, window 16, int8 KV", "tests/golden/gemma3-swa/gemma3-swa-bf16.gguf",
     {"tests/golden/adapters/gemma3-swa/all-r2", "tests/golden/adapters/gemma3-swa/embed"}, .n_prompt = 66, .kv = LAM_KV_INT8},
    {"llama K mix, DoRA and IA3", "tests/golden/llama-k/llama-k-kmix.gguf", {METHODS "llama-k/dora", METHODS "llama-k/ia3"}, .n_prompt = 70},
    {"llama K mix materialized, DoRA and IA3", "tests/golden/llama-k/llama-k-kmix.gguf", {METHODS "llama-k/dora", METHODS "llama-k/ia3"}, .n_prompt = 40,
     .policy = LAM_POLICY_MATERIALIZE},
    {"llama f32, sparse and dense", "tests/golden/llama-gqa", {METHODS "llama-gqa/sparse.slm", METHODS "llama-gqa/dense.slm"}, .n_prompt = 70},
    {"llama Q4_0, saved embedding and biases of B", "tests/golden/llama-gqa/llama-gqa-q4_0.gguf",
     {METHODS "llama-gqa/saved-embed", METHODS "llama-gqa/lora-bias"}, .n_prompt = 70},
    {"qwen2 Q8_0, saved head and biases", "tests/golden/qwen2-tied/qwen2-tied-q8_0.gguf",
     {METHODS "qwen2-tied/saved-head", METHODS "qwen2-tied/bias-all"}, .n_prompt = 70},
    {"gemma3 bf16 materialized, norms and IA3", "tests/golden/gemma3-swa/gemma3-swa-bf16.gguf",
     {METHODS "gemma3-swa/norms", METHODS "gemma3-swa/ia3-joined"}, .n_prompt = 66, .policy = LAM_POLICY_MATERIALIZE},
};

struct history {
    lam_session *session;
    uint32_t tokens[MAX_PROMPT];
    size_t n, done;
    size_t first; /* tokens of the first submission at least: with an invocation, whose rows a later submission would compute anew */
};

static void feed_piece(struct history *h, size_t n, struct lam_sha256 *hash)
{
    lam_error err;
    if (n > h->n - h->done) n = h->n - h->done;
    assert_ok(lam_session_feed(h->session, h->tokens + h->done, n, fixture_hash, hash, &err), err);
    h->done += n;
}

/* The prompt in pieces, by the public API. */
static void feed_alone(struct history *h, size_t chunk, struct lam_sha256 *hash)
{
    if (h->first > chunk) feed_piece(h, h->first, hash);
    while (h->done < h->n) feed_piece(h, chunk, hash);
}

/* logits[n, n_vocab] of the rows */
static size_t add_rows(struct history *h, size_t n, struct lam_row *rows, float *logits)
{
    lam_error err;
    size_t n_vocab = h->session->composition->base->model->config.n_vocab;
    if (n > h->n - h->done) n = h->n - h->done;
    assert_ok(lam_kv_reserve(&h->session->kv, h->done + n, &err), err);
    for (size_t i = 0; i < n; i++)
        assert_ok(lam_pass_row(h->session->composition, h->session->starts, h->tokens[h->done + i], h->done + i, &h->session->kv,
                               logits + i * n_vocab, &rows[i], &err), err);
    h->done += n;
    return n;
}

/* The prompt in pieces of several tokens, each in a plan with rows of seven other histories before and after it: some decode, some prefill. */
static void feed_in_company(struct fixture *f, struct history *h, struct history *others, size_t chunk, struct lam_sha256 *hash)
{
    struct lam_row rows[MAX_ROWS];
    lam_error err;
    size_t n_vocab = fixture_vocab(f);
    float *logits = malloc(MAX_ROWS * n_vocab * sizeof *logits);
    assert_non_null(logits);
    while (h->done < h->n) {
        size_t n = 0;
        for (size_t i = 0; i < 3; i++) n += add_rows(&others[i], 1 + i, rows + n, logits + n * n_vocab);
        size_t first = n, own = add_rows(h, chunk, rows + n, logits + n * n_vocab);
        n += own;
        for (size_t i = 3; i < NEIGHBOURS; i++) n += add_rows(&others[i], i == 5 ? 4 : 1, rows + n, logits + n * n_vocab);
        assert_ok(lam_forward_run(f->base->forward, rows, n, &err), err);
        for (size_t i = 0; i < own; i++) {
            assert_false(rows[first + i].failed);
            lam_sha256_update(hash, rows[first + i].logits, n_vocab * sizeof *logits);
        }
        for (size_t i = 0; i < NEIGHBOURS; i++)
            if (others[i].done + 4 > others[i].n) others[i].done = 0; /* begins again over its old cache */
    }
    free(logits);
}

/* The prompt token by token in lam_session_step with seven other sessions. */
static void step_in_company(struct history *h, struct history *others, struct lam_sha256 *hash, size_t n_vocab)
{
    lam_error err;
    lam_session *sessions[NEIGHBOURS + 1];
    uint32_t tokens[NEIGHBOURS + 1];
    if (h->first) feed_piece(h, h->first, hash);
    for (; h->done < h->n; h->done++) {
        for (size_t i = 0; i < NEIGHBOURS; i++) {
            struct history *o = &others[i];
            if (lam_session_length(o->session) == o->n) assert_ok(lam_session_truncate(o->session, 0, &err), err);
            sessions[i + (i >= 4)] = o->session;
            tokens[i + (i >= 4)] = o->tokens[lam_session_length(o->session)];
        }
        sessions[4] = h->session;
        tokens[4] = h->tokens[h->done];
        assert_ok(lam_session_step(sessions, tokens, NEIGHBOURS + 1, &err), err);
        lam_sha256_update(hash, lam_session_logits(h->session), n_vocab * sizeof(float));
    }
}

/* Puts the invocation of an activated adapter into the midst of the prompt, and says to the rows where it acts. Of the neighbours nobody
 * invoked it: the base answers. */
static void invoke(struct fixture *f, struct history *h, size_t n_adapters)
{
    lam_error err;
    lam_adapter_info info;
    for (size_t i = 0; i < n_adapters; i++) {
        lam_adapter_describe(f->adapters[i], &info);
        if (!info.invocation) continue;
        h->first = h->n / 2 + info.n_invocation;
        memcpy(h->tokens + h->n / 2, info.invocation, info.n_invocation * sizeof *h->tokens);
    }
    assert_ok(lam_activation_scan(h->session->composition, h->tokens, h->n, false, h->session->starts, &err), err);
}

static void measure(struct fixture *f, const struct subject *s, const double *weights, size_t n_adapters, size_t chunk,
                    bool alone, char out[LAM_DIGEST_TEXT])
{
    static const double other_weights[4][2] = {{1.0, 1.0}, {-0.5, 1.7}, {1.0, 0.5}, {0.0, 1.0}};
    lam_error err;
    size_t n_vocab = fixture_vocab(f);
    struct history h = {.n = s->n_prompt}, others[NEIGHBOURS];
    fixture_tokens(1, n_vocab, h.tokens, h.n);
    lam_composition *c = fixture_compose(f, weights, n_adapters);
    h.session = fixture_session(c, MAX_PROMPT);
    invoke(f, &h, n_adapters);
    for (size_t i = 0; i < NEIGHBOURS; i++) {
        lam_composition *o = fixture_compose(f, other_weights[i % 4], i % 3);
        others[i] = (struct history){.session = fixture_session(o, MAX_PROMPT), .n = 40 + 3 * i};
        lam_session_allow_base(others[i].session, true);
        lam_composition_free(o);
        fixture_tokens(100 + i, n_vocab, others[i].tokens, others[i].n);
    }
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    lam_sha256_init(&hash);
    if (alone) {
        feed_alone(&h, chunk, &hash);
    } else if (chunk > 1) {
        feed_in_company(f, &h, others, chunk, &hash);
    } else {
        for (size_t i = 0; i < NEIGHBOURS; i++) /* other lengths */
            assert_ok(lam_session_feed(others[i].session, others[i].tokens, 1 + 5 * i, NULL, NULL, &err), err);
        step_in_company(&h, others, &hash, n_vocab);
    }
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    for (size_t i = 0; i < NEIGHBOURS; i++) lam_session_free(others[i].session);
    lam_session_free(h.session);
    lam_composition_free(c);
}

/* One line of the table. The first cell of the first line is the definition: scalar, one thread, alone, the prompt whole. */
static size_t measure_line(struct fixture *f, const struct subject *s, const double *weights, size_t n_adapters, char want[LAM_DIGEST_TEXT])
{
    size_t different = 0;
    static const bool in_brief[2][N_CHUNKS] = {{true, false, true, false}, {false, true, true, false}};
    printf("  %-7s %u threads ", lam_engine_isa(f->engine), lam_engine_threads(f->engine));
    for (size_t company = 0; company < 2; company++) {
        printf(" |");
        for (size_t i = 0; i < N_CHUNKS; i++) {
            char got[LAM_DIGEST_TEXT];
            if (s->brief && !in_brief[company][i]) continue;
            measure(f, s, weights, n_adapters, chunks[i], company == 0, got);
            if (!want[0]) memcpy(want, got, LAM_DIGEST_TEXT);
            bool same = strcmp(got, want) == 0;
            different += !same;
            printf(" %.8s%s", got + 7, same ? "" : "!");
        }
    }
    printf("\n");
    return different;
}

/* want: the digests of the definition, base and composed */
static void check_subject(const struct subject *s, char want[2][LAM_DIGEST_TEXT])
{
    struct fixture f;
    const double weights[] = {1.0, 0.5};
    const char *only = getenv("THREADS");
    size_t different = 0, lines = 0;
    want[0][0] = want[1][0] = 0;
    fixture_import(&f, s->base, s->adapters, 2);
    f.compose.kv = s->kv;
    f.compose.policy = s->policy;
    f.waive = true; /* the deltas are bound to no base */
    for (size_t composed = 0; composed < 2; composed++) {
        printf("%s, %s, %zu positions\n  isa     threads     | %s\n", s->name, composed ? "A + 0.5 B" : "base", s->n_prompt,
               s->brief ? "alone: whole, 7  | with 7 others: 1, 7" : "alone: whole, 1, 7, 64              | with 7 others: the same");
        for (size_t v = 0; v < lam_n_variants; v++) {
            if (!lam_variants[v].supported()) continue;
            for (size_t t = 0; t < N_THREADS; t++) {
                if (s->brief ? t != v % N_THREADS || (!composed && v) : only && thread_counts[t] != strtoul(only, NULL, 10)) continue;
                fixture_open(&f, &(lam_engine_options){.threads = thread_counts[t], .isa = lam_variants[v].kernels->name,
                                                       .max_rows = MAX_ROWS});
                different += measure_line(&f, s, weights, composed ? 2 : 0, want[composed]);
                lines++;
                fixture_close(&f);
            }
        }
    }
    fixture_remove(&f);
    printf("%s: %zu cells of %zu lines differ\n\n", s->name, different, lines);
    assert_int_equal(different, 0);
    assert_string_not_equal(want[0], want[1]); /* the adapters do something */
}

static void test_table(void **state)
{
    const char *only = getenv("SUBJECT");
    char want[2][LAM_DIGEST_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (!only || strstr(subjects[i].name, only)) check_subject(&subjects[i], want);
}

/* Every method under either policy. */
static const struct method_pair {
    const char *title, *base, *adapters[2];
} method_pairs[] = {
#define LLAMA "tests/golden/llama-gqa"
#define Q4 LLAMA "/llama-gqa-q4_0.gguf"
#define OF_LLAMA METHODS "llama-gqa/"
#define OF_QWEN METHODS "qwen2-tied/"
    {"Q4_0, LoRA and activated LoRA", Q4, {OF_LLAMA "lora", OF_LLAMA "alora"}},
    {"Q4_0, rsLoRA and biases of B", Q4, {OF_LLAMA "rslora", OF_LLAMA "lora-bias"}},
    {"Q4_0, DoRA and IA3", Q4, {OF_LLAMA "dora", OF_LLAMA "ia3-joined"}},
    {"Q4_0, embedding and saved head", Q4, {OF_LLAMA "embed", OF_LLAMA "saved-head"}},
    {"Q4_0, saved embedding and sparse", Q4, {OF_LLAMA "saved-embed", OF_LLAMA "sparse.slm"}},
    {"Q4_0, norms and head", Q4, {OF_LLAMA "norms", OF_LLAMA "head"}},
    {"Q4_0, dense and IA3", Q4, {OF_LLAMA "dense.slm", OF_LLAMA "ia3"}},
    {"Q8_0, biases and DoRA", "tests/golden/qwen2-tied/qwen2-tied-q8_0.gguf", {OF_QWEN "bias-all", OF_QWEN "dora-b"}},
    {"float32, activated LoRA and LoRA", LLAMA, {OF_LLAMA "alora", OF_LLAMA "lora"}},
    {"float32, rsLoRA and biases of B", LLAMA, {OF_LLAMA "rslora", OF_LLAMA "lora-bias"}},
    {"float32, DoRA and IA3", LLAMA, {OF_LLAMA "dora", OF_LLAMA "ia3-joined"}},
    {"float32, embedding and saved head", LLAMA, {OF_LLAMA "embed", OF_LLAMA "saved-head"}},
    {"float32, saved embedding and dense", LLAMA, {OF_LLAMA "saved-embed", OF_LLAMA "dense.slm"}},
    {"float32, norms and head", LLAMA, {OF_LLAMA "norms", OF_LLAMA "head"}},
    {"float32, sparse and IA3", LLAMA, {OF_LLAMA "sparse.slm", OF_LLAMA "ia3"}},
    {"float32, biases and DoRA", "tests/golden/qwen2-tied", {OF_QWEN "bias-all", OF_QWEN "dora"}},
};

static void test_methods(void **state)
{
    const char *only = getenv("SUBJECT");
    (void)state;
    for (size_t i = 0; i < sizeof method_pairs / sizeof *method_pairs; i++) {
        const struct method_pair *m = &method_pairs[i];
        char name[96], want[2][2][LAM_DIGEST_TEXT];
        int len = snprintf(name, sizeof name, "methods on %s, ", m->title);
        if (only && !strstr(name, only)) continue;
        for (size_t p = 0; p < 2; p++) {
            snprintf(name + len, sizeof name - (size_t)len, "%s", p ? "materialize" : "dual");
            check_subject(&(struct subject){.name = name, .base = m->base, .adapters = {m->adapters[0], m->adapters[1]}, .n_prompt = 40,
                                            .policy = p ? LAM_POLICY_MATERIALIZE : LAM_POLICY_DUAL, .brief = true}, want[p]);
        }
        assert_string_equal(want[0][0], want[1][0]);
        if (strstr(m->base, ".gguf")) assert_string_not_equal(want[0][1], want[1][1]); /* the policy does something */
    }
}

/* What is asked of a plan decides no bit: logits of the last position alone are those of every position's last. */
static void test_wanted_rows(void **state)
{
    (void)state;
    struct fixture f;
    lam_error err;
    uint32_t tokens[100];
    char digest[LAM_DIGEST_TEXT];
    fixture_import(&f, subjects[1].base, subjects[1].adapters, 1);
    fixture_open(&f, &(lam_engine_options){.threads = 2, .max_rows = 16});
    fixture_tokens(1, fixture_vocab(&f), tokens, 100);
    lam_composition *c = fixture_compose(&f, (double[]){1.0}, 1);
    lam_session *all = fixture_session(c, 100), *last = fixture_session(c, 100);
    struct lam_sha256 hash;
    lam_sha256_init(&hash);
    assert_ok(lam_session_feed(all, tokens, 100, fixture_hash, &hash, &err), err);
    assert_ok(lam_session_feed(last, tokens, 100, NULL, NULL, &err), err);
    assert_memory_equal(lam_session_logits(all), lam_session_logits(last), fixture_vocab(&f) * sizeof(float));
    fixture_digest(c, tokens, 99, digest); /* nothing of it is left behind */
    fixture_digest(c, tokens, 100, digest);
    uint8_t bytes[LAM_SHA256_BYTES];
    char want[LAM_DIGEST_TEXT];
    lam_sha256_final(&hash, bytes);
    lam_digest_text(bytes, want);
    assert_string_equal(digest, want);
    lam_session_free(all);
    lam_session_free(last);
    lam_composition_free(c);
    fixture_close(&f);
    fixture_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_methods), cmocka_unit_test(test_wanted_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
