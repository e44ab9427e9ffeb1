/* Activating and removing adapters leaves no trace: a random walk of 10,000 switches over stacks of twelve adapters of all methods, under
 * both policies, and the base's bytes and bits at every return. */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"

#include "run/objects.h"

#include <unistd.h>

#define STEPS 10000
#define N_ADAPTERS 12
#define MOST 3        /* adapters of a stack */
#define N_PROMPT 12
#define N_LONG 64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_OURS 0 /* sanitizers keep freed blocks and shadow memory */
#else
#define MEMORY_IS_OURS 1
#endif

#define METHODS "tests/golden/methods/llama-gqa/"
static const char *const sources[N_ADAPTERS] = {
    METHODS "lora", METHODS "rslora", METHODS "dora", METHODS "ia3", METHODS "ia3-joined", METHODS "alora", METHODS "lora-bias",
    METHODS "norms", METHODS "saved-embed", METHODS "head", METHODS "sparse.slm", METHODS "dense.slm"};
static const uint32_t invocation[] = {20, 21, 22}; /* of alora */

/* The last one leaves no trace. Whole embeddings and norms are mixed with the base's at weights other than 1. */
static const double weight_choices[] = {1.0, -0.5, 0.0};

/* A place of the walk: a stack under a policy. */
struct place {
    size_t n, adapter[MOST];
    double weight[MOST];
    lam_policy policy;
};

static void remove_at(struct place *p, size_t i)
{
    for (p->n--; i < p->n; i++) {
        p->adapter[i] = p->adapter[i + 1];
        p->weight[i] = p->weight[i + 1];
    }
}

static void insert(struct place *p, size_t adapter, double weight, size_t at)
{
    for (size_t i = p->n++; i > at; i--) {
        p->adapter[i] = p->adapter[i - 1];
        p->weight[i] = p->weight[i - 1];
    }
    p->adapter[at] = adapter;
    p->weight[at] = weight;
}

/* norms, sparse and dense: no more than two of them in a stack. */
static bool brings_norms(size_t adapter) { return adapter == 7 || adapter >= 10; }

static bool fits(const struct place *p, size_t adapter)
{
    size_t n = 0;
    for (size_t k = 0; k < p->n; k++) {
        if (p->adapter[k] == adapter) return false;
        n += brings_norms(p->adapter[k]);
    }
    return n < 2 || !brings_norms(adapter);
}

/* One random switch: an adapter more or less, or the other policy. Returns the adapter removed, or N_ADAPTERS. */
static size_t walk(struct place *p, uint64_t *random)
{
    size_t i = p->n ? test_random(random) % p->n : 0, adapter;
    if (test_random(random) % 8 == 0) {
        p->policy = p->policy == LAM_POLICY_DUAL ? LAM_POLICY_MATERIALIZE : LAM_POLICY_DUAL;
        return N_ADAPTERS;
    }
    if (p->n == MOST || (p->n && test_random(random) % 2)) {
        adapter = p->adapter[i];
        remove_at(p, i);
        return adapter;
    }
    adapter = test_random(random) % N_ADAPTERS;
    if (fits(p, adapter)) insert(p, adapter, weight_choices[test_random(random) % 3], test_random(random) % (p->n + 1));
    return N_ADAPTERS;
}

static bool is_base(const struct place *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->weight[i] != 0.0) return false;
    return true;
}

/* Everything that decides the bits: what is left of the stack without weights of 0, and the policy. */
static void key_of(const struct place *p, char out[64])
{
    size_t len = (size_t)snprintf(out, 64, "%d", is_base(p) ? 0 : (int)p->policy);
    for (size_t i = 0; i < p->n; i++)
        if (p->weight[i] != 0.0) len += (size_t)snprintf(out + len, 64 - len, " %zu*%g", p->adapter[i], p->weight[i]);
}

/* Of norms, sparse and dense, which all bring norms of their own, the second one takes the place of the first on its modules. */
static lam_composition *compose(struct fixture *f, const struct place *p)
{
    lam_error err;
    lam_adapter *adapters[MOST];
    lam_composition *c;
    lam_stack_rule rules[MOST] = {0};
    for (size_t i = 0; i < p->n; i++) adapters[i] = f->adapters[p->adapter[i]];
    for (size_t i = p->n; i-- > 0;)
        if (p->weight[i] != 0.0 && brings_norms(p->adapter[i])) {
            rules[i] = LAM_STACK_REPLACE;
            break;
        }
    lam_compose_options options = {.policy = p->policy, .rules = rules};
    assert_ok(lam_compose(f->base, adapters, p->weight, p->n, &options, &c, &err), err);
    return c;
}

static void digest_of(struct fixture *f, const struct place *p, const uint32_t *tokens, char out[LAM_DIGEST_TEXT])
{
    lam_composition *c = compose(f, p);
    fixture_digest(c, tokens, N_PROMPT, out);
    lam_composition_free(c);
}

/* The places met, with the digest of the first visit. */
#define N_SEEN 16384
struct seen {
    char key[64], digest[LAM_DIGEST_TEXT];
};

static struct seen *find_seen(struct seen *table, const char *key)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *c = key; *c; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    size_t at = hash % N_SEEN;
    while (table[at].key[0] && strcmp(table[at].key, key) != 0) at = (at + 1) % N_SEEN;
    return &table[at];
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
    static const struct place living_places[] = {
        {0}, {.n = 3, .adapter = {2, 3, 10}, .weight = {1.0, -0.5, 1.0}}, {.n = 2, .adapter = {5, 7}, .weight = {1.0, 1.0}},
        {.n = 2, .adapter = {6, 4}, .weight = {1.0, 1.0}, .policy = LAM_POLICY_MATERIALIZE}};
#define N_LIVING (sizeof living_places / sizeof *living_places)
    static struct seen seen[N_SEEN];
    struct fixture f;
    lam_error err;
    char bytes_before[LAM_DIGEST_TEXT], bytes_after[LAM_DIGEST_TEXT], root[LAM_DIGEST_TEXT], root_now[LAM_DIGEST_TEXT];
    fixture_import(&f, "tests/golden/llama-gqa/llama-gqa-q4_0.gguf", sources, N_ADAPTERS);
    f.waive = true; /* the deltas are bound to no base */
    fixture_open(&f, &(lam_engine_options){.threads = 1});
    digest_of_bytes(&f, bytes_before);
    assert_ok(lam_base_verify(f.base, root, &err), err);
    uint32_t tokens[N_LONG];
    fixture_tokens(7, fixture_vocab(&f), tokens, N_LONG);
    memcpy(tokens + 4, invocation, sizeof invocation);

    struct living living[N_LIVING];
    for (size_t i = 0; i < N_LIVING; i++) {
        living[i].composition = compose(&f, &living_places[i]);
        living[i].session = fixture_session(living[i].composition, N_LONG);
        lam_sha256_init(&living[i].hash);
        assert_ok(lam_session_feed(living[i].session, tokens, N_PROMPT, fixture_hash, &living[i].hash, &err), err);
    }
    struct place place = {0};
    uint64_t random = 20;
    size_t returns = 0, revisits = 0, reloads = 0, kinds = 0, resident = 0, fed = N_PROMPT;
    for (size_t step = 0; step < STEPS; step++) {
        char digest[LAM_DIGEST_TEXT], key[64];
        if (step == STEPS / 2) resident = resident_bytes();
        size_t removed = walk(&place, &random);
        if (removed < N_ADAPTERS && test_random(&random) % 16 == 0) { /* its artefact too */
            lam_adapter_unload(f.adapters[removed]);
            assert_ok(lam_adapter_load(f.base, f.adapter_paths[removed], true, &f.adapters[removed], &err), err);
            reloads++;
        }
        digest_of(&f, &place, tokens, digest);
        key_of(&place, key);
        struct seen *first = find_seen(seen, key);
        if (first->key[0]) assert_string_equal(digest, first->digest);
        else kinds++;
        revisits += first->key[0] != 0;
        memcpy(first->key, key, sizeof key);
        memcpy(first->digest, digest, sizeof digest);
        if (is_base(&place)) {
            returns++;
            assert_ok(lam_base_verify(f.base, root_now, &err), err);
            assert_string_equal(root_now, root);
        }
        if (step % (STEPS / N_LONG) == 0 && fed < N_LONG) {
            for (size_t i = 0; i < N_LIVING; i++) {
                assert_ok(lam_session_step(&living[i].session, &tokens[fed], 1, &err), err);
                lam_sha256_update(&living[i].hash, lam_session_logits(living[i].session), fixture_vocab(&f) * sizeof(float));
            }
            fed++;
        }
    }
    size_t grown = resident_bytes();
    grown = grown > resident ? grown - resident : 0;
    printf("%d switches: %zu returns to the base, %zu stacks met, %zu met again with the same bits, %zu adapters loaded again; "
           "resident memory grew by %zu KiB in the last %d\n", STEPS, returns, kinds, revisits, reloads, grown >> 10, STEPS / 2);
    assert_true(returns > 300 && revisits > STEPS / 2 && kinds > 100);
    if (MEMORY_IS_OURS) assert_true(grown <= (size_t)1 << 20);

    for (size_t i = 0; i < N_LIVING; i++) {
        char unbroken[LAM_DIGEST_TEXT], broken[LAM_DIGEST_TEXT];
        uint8_t digest[LAM_SHA256_BYTES];
        lam_sha256_final(&living[i].hash, digest);
        lam_digest_text(digest, broken);
        fixture_digest(living[i].composition, tokens, fed, unbroken);
        assert_string_equal(broken, unbroken);
        lam_session_free(living[i].session);
        lam_composition_free(living[i].composition);
    }
    assert_ok(lam_base_verify(f.base, root_now, &err), err);
    assert_string_equal(root_now, root);
    digest_of_bytes(&f, bytes_after);
    assert_string_equal(bytes_after, bytes_before);
    for (size_t i = 0; i < N_ADAPTERS; i++) { /* each changes something, in its own way; another policy rounds in another */
        struct place alone = {.n = 1, .adapter = {i}, .weight = {1.0}};
        char key[64], dual[LAM_DIGEST_TEXT];
        key_of(&(struct place){0}, key);
        digest_of(&f, &alone, tokens, dual);
        assert_string_not_equal(dual, find_seen(seen, key)->digest);
        for (size_t k = 0; k < i; k++) {
            key_of(&(struct place){.n = 1, .adapter = {k}, .weight = {1.0}}, key);
            assert_string_not_equal(dual, find_seen(seen, key)->digest);
        }
    }
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
