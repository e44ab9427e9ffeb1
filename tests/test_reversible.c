/* Activating and removing adapters leaves no trace: a random walk of 10,000 steps over compositions of three adapters, and the
 * base's bytes and bits at every return. */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"

#include "run/objects.h"

#include <unistd.h>

#define STEPS 10000
#define N_ADAPTERS 3
#define N_PROMPT 8
#define N_LONG 64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_OURS 0 /* sanitizers keep freed blocks and shadow memory */
#else
#define MEMORY_IS_OURS 1
#endif

static const double weight_choices[] = {0.0, 1.0, -0.5, 1.7};

/* The active adapters in order; choices are indices of weight_choices. */
struct active {
    size_t n, adapter[N_ADAPTERS], choice[N_ADAPTERS];
};

/* Every list of adapters with a weight other than 0 has a number below 1 << 12. */
static size_t number_of(const struct active *a)
{
    size_t number = 0;
    for (size_t i = 0; i < a->n; i++)
        if (a->choice[i]) number = number << 4 | (1 + a->adapter[i]) << 2 | a->choice[i];
    return number;
}

static void remove_at(struct active *a, size_t i)
{
    for (a->n--; i < a->n; i++) {
        a->adapter[i] = a->adapter[i + 1];
        a->choice[i] = a->choice[i + 1];
    }
}

static void insert(struct active *a, size_t adapter, size_t choice, size_t at)
{
    for (size_t i = a->n++; i > at; i--) {
        a->adapter[i] = a->adapter[i - 1];
        a->choice[i] = a->choice[i - 1];
    }
    a->adapter[at] = adapter;
    a->choice[at] = choice;
}

/* One random activation or removal. Returns the adapter removed, or N_ADAPTERS. */
static size_t walk(struct active *a, uint64_t *random)
{
    size_t adapter = test_random(random) % N_ADAPTERS, i = 0;
    while (i < a->n && a->adapter[i] != adapter) i++;
    if (i == a->n) {
        insert(a, adapter, test_random(random) % 4, test_random(random) % (a->n + 1));
        return N_ADAPTERS;
    }
    remove_at(a, i);
    return adapter;
}

static void digest_of(struct fixture *f, const struct active *a, const uint32_t *tokens, char out[LAM_DIGEST_TEXT])
{
    lam_error err;
    lam_adapter *adapters[N_ADAPTERS];
    double weights[N_ADAPTERS];
    lam_composition *c;
    for (size_t i = 0; i < a->n; i++) {
        adapters[i] = f->adapters[a->adapter[i]];
        weights[i] = weight_choices[a->choice[i]];
    }
    assert_ok(lam_compose(f->base, adapters, weights, a->n, NULL, &c, &err), err);
    fixture_digest(c, tokens, N_PROMPT, out);
    lam_composition_free(c);
}

static size_t resident_bytes(void)
{
    unsigned long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* The file's bytes, and the mapped ones, which must be the same. */
static void digest_of_bytes(struct fixture *f, char out[LAM_DIGEST_TEXT])
{
    uint8_t digest[LAM_SHA256_BYTES];
    size_t size;
    uint8_t *bytes = test_read_file(f->base_path, &size);
    const struct lam_mapping *m = &f->base->model->file->file;
    assert_int_equal(size, m->size);
    assert_memory_equal(bytes, m->data, size);
    lam_sha256(bytes, size, digest);
    lam_digest_text(digest, out);
    free(bytes);
}

/* Sessions that live through the walk and get a token now and then. */
struct living {
    lam_composition *composition;
    lam_session *session;
    struct lam_sha256 hash;
};

static void test_walk(void **state)
{
    (void)state;
    static const char *const sources[] = {"tests/golden/adapters/llama-gqa/all-r4", "tests/golden/adapters/llama-gqa/attention-r8",
                                          "tests/golden/adapters/llama-gqa/rank-7"};
    static const double living_weights[2][N_ADAPTERS] = {{0.0}, {1.0, 1.7, -0.5}};
    static char seen[1 << 12][LAM_DIGEST_TEXT];
    struct fixture f;
    lam_error err;
    char bytes_before[LAM_DIGEST_TEXT], bytes_after[LAM_DIGEST_TEXT], root[LAM_DIGEST_TEXT], root_now[LAM_DIGEST_TEXT];
    fixture_import(&f, "tests/golden/llama-gqa/llama-gqa-q4_0.gguf", sources, N_ADAPTERS);
    fixture_open(&f, &(lam_engine_options){.threads = 1});
    digest_of_bytes(&f, bytes_before);
    assert_ok(lam_base_verify(f.base, root, &err), err);
    uint32_t tokens[N_LONG];
    fixture_tokens(7, fixture_vocab(&f), tokens, N_LONG);

    struct living living[2];
    for (size_t i = 0; i < 2; i++) {
        living[i].composition = fixture_compose(&f, living_weights[i], i ? N_ADAPTERS : 0);
        living[i].session = fixture_session(living[i].composition, N_LONG);
        lam_sha256_init(&living[i].hash);
    }
    struct active active = {0};
    uint64_t random = 20;
    size_t returns = 0, revisits = 0, reloads = 0, kinds = 0, resident = 0;
    for (size_t step = 0; step < STEPS; step++) {
        char digest[LAM_DIGEST_TEXT];
        if (step == STEPS / 2) resident = resident_bytes();
        size_t removed = walk(&active, &random);
        if (removed < N_ADAPTERS && test_random(&random) % 16 == 0) { /* its artefact too */
            lam_adapter_unload(f.adapters[removed]);
            assert_ok(lam_adapter_load(f.base, f.adapter_paths[removed], false, &f.adapters[removed], &err), err);
            reloads++;
        }
        digest_of(&f, &active, tokens, digest);
        char *first = seen[number_of(&active)];
        if (first[0]) assert_string_equal(digest, first);
        else kinds++;
        revisits += first[0] != 0;
        memcpy(first, digest, sizeof digest);
        if (number_of(&active) == 0) {
            returns++;
            assert_ok(lam_base_verify(f.base, root_now, &err), err);
            assert_string_equal(root_now, root);
        }
        if (step % (STEPS / N_LONG) == 0 && step / (STEPS / N_LONG) < N_LONG)
            for (size_t i = 0; i < 2; i++)
                assert_ok(lam_session_feed(living[i].session, &tokens[step / (STEPS / N_LONG)], 1, fixture_hash, &living[i].hash, &err),
                          err);
    }
    size_t grown = resident_bytes();
    grown = grown > resident ? grown - resident : 0;
    printf("%d steps: %zu returns to the base, %zu compositions met, %zu met again with the same bits, %zu adapters loaded again; "
           "resident memory grew by %zu KiB in the last %d\n", STEPS, returns, kinds, revisits, reloads, grown >> 10, STEPS / 2);
    assert_true(returns > 300 && revisits > STEPS / 2 && kinds > 100);
    if (MEMORY_IS_OURS) assert_true(grown <= (size_t)1 << 20);

    for (size_t i = 0; i < 2; i++) {
        char unbroken[LAM_DIGEST_TEXT], broken[LAM_DIGEST_TEXT];
        uint8_t digest[LAM_SHA256_BYTES];
        lam_sha256_final(&living[i].hash, digest);
        lam_digest_text(digest, broken);
        fixture_digest(living[i].composition, tokens, N_LONG, unbroken);
        assert_string_equal(broken, unbroken);
        lam_session_free(living[i].session);
        lam_composition_free(living[i].composition);
    }
    assert_ok(lam_base_verify(f.base, root_now, &err), err);
    assert_string_equal(root_now, root);
    digest_of_bytes(&f, bytes_after);
    assert_string_equal(bytes_after, bytes_before);
    for (size_t i = 0; i < 1 << 4; i++) /* the base and each adapter alone: other weights, other bits */
        for (size_t j = 0; j < i; j++)
            if (seen[i][0] && seen[j][0]) assert_string_not_equal(seen[i], seen[j]);
    fixture_close(&f);
    fixture_remove(&f);
}

/* base → A → base → B is base → B in a process that never saw A, on float and quantised bases, with biases, embedding and head. */
static void check_pair(const char *base, const char *a, const char *b)
{
    struct fixture f;
    uint32_t tokens[40];
    char first[LAM_DIGEST_TEXT], alone[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    const char *const adapters[] = {a, b};
    fixture_import(&f, base, adapters, 2);
    const struct { double weights[2]; } path[] = {{{1, 0}}, {{0, 0}}, {{0, 1.7}}, {{-0.5, 1.7}}, {{0, 0}}, {{0, 1.7}}};
    for (int only_b = 1; only_b >= 0; only_b--) {
        fixture_open(&f, &(lam_engine_options){.threads = 1});
        fixture_tokens(3, fixture_vocab(&f), tokens, 40);
        lam_composition *c = fixture_compose(&f, NULL, 0);
        fixture_digest(c, tokens, 40, got);
        lam_composition_free(c);
        if (only_b) memcpy(first, got, sizeof first);
        assert_string_equal(got, first);
        for (size_t i = only_b ? 5 : 0; i < 6; i++) {
            c = fixture_compose(&f, path[i].weights, 2);
            fixture_digest(c, tokens, 40, got);
            lam_composition_free(c);
            if (only_b) memcpy(alone, got, sizeof alone);
            if (path[i].weights[0] == 0.0 && path[i].weights[1] == 0.0) assert_string_equal(got, first);
            else if (path[i].weights[0] == 0.0) assert_string_equal(got, alone);
            else assert_true(strcmp(got, first) != 0 && strcmp(got, alone) != 0);
        }
        fixture_close(&f);
    }
    assert_string_not_equal(first, alone);
    fixture_remove(&f);
}

static void test_pairs(void **state)
{
    (void)state;
#define ADAPTER "tests/golden/adapters/"
    check_pair("tests/golden/llama-bias", ADAPTER "llama-bias/all-r4", ADAPTER "llama-bias/bias-all");
    check_pair("tests/golden/llama-bias/llama-bias-legacymix.gguf", ADAPTER "llama-bias/bias-lora-only", ADAPTER "llama-bias/all-r4");
    check_pair("tests/golden/llama-gqa", ADAPTER "llama-gqa/embed", ADAPTER "llama-gqa/head");
    check_pair("tests/golden/qwen2-tied/qwen2-tied-q8_0.gguf", ADAPTER "qwen2-tied/embed-tied", ADAPTER "qwen2-tied/head-tied");
    check_pair("tests/golden/llama-k/llama-k-kmix.gguf", ADAPTER "llama-k/all-r4", "twin");
    check_pair("tests/golden/gemma3-swa", ADAPTER "gemma3-swa/all-r2", ADAPTER "gemma3-swa/embed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_walk), cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
