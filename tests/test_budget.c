/* The hard limit (src/base/budget.h): what is refused and what is said, that everything that grows is counted and given back, that any limit
 * leaves either the same bits or LAM_E_BUDGET, and that the plan of memory (lamina/plan.h) covers what is then counted. */
#define _POSIX_C_SOURCE 200809L

#include "fixture.h"

#include "base/budget.h"
#include "lamina/plan.h"
#include "lamina/reuse.h"

#include <pthread.h>

#define METHODS "tests/golden/methods/llama-gqa/"
#define N 40

static void test_numbers(void **state)
{
    (void)state;
    struct lam_budget b = {.limit = 1000};
    lam_error err;
    void *block = &b;
    assert_ok(lam_budget_reserve(&b, 600, "a", &err), err);
    assert_int_equal(lam_budget_reserve(&b, 500, "keys", &err), LAM_E_BUDGET);
    assert_string_equal(err.message, "keys: 500 bytes asked for, 600 of 1000 in use: 100 too many");
    assert_int_equal(atomic_load(&b.used), 600);
    assert_ok(lam_budget_reserve(&b, 400, "b", &err), err);
    assert_int_equal(lam_budget_reserve(&b, 1, "c", &err), LAM_E_BUDGET);
    assert_int_equal(lam_budget_reserve(&b, SIZE_MAX, "c", &err), LAM_E_BUDGET);
    lam_budget_release(&b, 1000);
    assert_int_equal(lam_budget_alloc(&b, 1001, 1, "d", &block, &err), LAM_E_BUDGET);
    assert_null(block);
    assert_int_equal(lam_budget_alloc(&b, SIZE_MAX, 2, "d", &block, &err), LAM_E_NO_MEMORY);
    assert_ok(lam_budget_alloc(&b, 100, 4, "d", &block, &err), err);
    assert_int_equal((uintptr_t)block % 64, 0);
    assert_true(atomic_load(&b.used) >= 400);
    for (size_t i = 0; i < 400; i++) assert_int_equal(((char *)block)[i], 0);
    lam_budget_free(block);
    assert_int_equal(atomic_load(&b.used), 0);
    assert_int_equal(atomic_load(&b.peak), 1000);
    assert_ok(lam_budget_alloc(NULL, 100, 4, "uncounted", &block, &err), err);
    lam_budget_free(block);
}

/* Threads together never pass the limit. */
static struct lam_budget shared = {.limit = 1000};
static atomic_bool passed_limit;

static void *take_and_give(void *argument)
{
    uint64_t seed = (uint64_t)(size_t)argument;
    for (int i = 0; i < 20000; i++) {
        size_t n = test_random(&seed) % 700 + 1;
        if (lam_budget_reserve(&shared, n, "some", NULL) != LAM_OK) continue;
        if (atomic_load(&shared.used) > 1000) atomic_store(&passed_limit, true);
        lam_budget_release(&shared, n);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_false(atomic_load(&passed_limit));
    assert_int_equal(atomic_load(&shared.used), 0);
    assert_true(atomic_load(&shared.peak) <= 1000);
}

/* Everything that grows, once: a stack of every method under each policy, a prefix cache, re-basing, drafts, a saved session. */
enum { N_STACK = 7 };
static const char *const stack[N_STACK] = {METHODS "dora", METHODS "ia3", METHODS "lora-bias", METHODS "sparse.slm", METHODS "dense.slm",
                                           METHODS "saved-head", METHODS "embed"};

static lam_code use(const struct fixture *f, lam_base *base, lam_adapter **adapters, char out[LAM_DIGEST_TEXT], lam_error *err)
{
    static const double weights[N_STACK] = {1, 0.5, 2, 1, 0.25, 1, 1};
    const lam_compose_options materialize = {.policy = LAM_POLICY_MATERIALIZE};
    lam_composition *dual = NULL, *joined = NULL;
    lam_session *s = NULL, *again = NULL;
    struct lam_sha256 hash;
    uint8_t digest[LAM_SHA256_BYTES];
    uint32_t tokens[N];
    char path[600];
    size_t kept;
    snprintf(path, sizeof path, "%s/session", f->folder);
    fixture_tokens(3, 32, tokens, N);
    lam_sha256_init(&hash);
    lam_code code = lam_compose(base, adapters, weights, N_STACK, NULL, &dual, err);
    if (code == LAM_OK) code = lam_compose(base, adapters, weights, N_STACK, &materialize, &joined, err);
    if (code == LAM_OK) code = lam_session_new(joined, 512, &s, err);
    if (code == LAM_OK) code = lam_session_feed(s, tokens, N, fixture_hash, &hash, err);
    if (code == LAM_OK) code = lam_session_rebase(s, dual, &kept, err);
    if (code == LAM_OK) code = lam_session_feed(s, tokens, N, fixture_hash, &hash, err);
    if (code == LAM_OK) code = lam_session_save(s, path, err);
    if (code == LAM_OK) code = lam_session_restore(dual, path, NULL, &again, err);
    if (code == LAM_OK) code = lam_session_feed(again, tokens, N, fixture_hash, &hash, err);
    lam_session_free(s);
    lam_session_free(again);
    lam_composition_free(dual);
    lam_composition_free(joined);
    lam_sha256_final(&hash, digest);
    lam_digest_text(digest, out);
    return code;
}

/* All of it within limit bytes; *peak: the most that was counted. */
static lam_code walk(const struct fixture *f, size_t limit, char out[LAM_DIGEST_TEXT], size_t *peak, lam_error *err)
{
    lam_engine *engine;
    lam_base *base = NULL;
    lam_adapter *adapters[N_STACK] = {0};
    lam_memory memory;
    const lam_engine_options options = {.threads = 1, .budget = limit, .prefix_cache = 1 << 20};
    assert_ok(lam_engine_new(&options, &engine, err), *err);
    lam_code code = lam_base_open(engine, f->base_path, LAM_VERIFY_OFF, &base, err);
    for (size_t i = 0; code == LAM_OK && i < N_STACK; i++) code = lam_adapter_load(base, f->adapter_paths[i], true, &adapters[i], err);
    if (code == LAM_OK) code = use(f, base, adapters, out, err);
    lam_engine_memory(engine, &memory);
    size_t cached = 0;
    lam_prefix_figures prefix;
    lam_engine_prefix(engine, &prefix);
    cached = prefix.bytes;
    for (size_t i = 0; i < N_STACK; i++) lam_adapter_unload(adapters[i]);
    lam_base_free(base);
    *peak = memory.peak;
    assert_int_equal(memory.limit, limit);
    assert_true(limit == 0 || memory.peak <= limit);
    lam_engine_memory(engine, &memory);
    if (cached == 0) assert_int_equal(memory.used, 0); /* what is left is the prefix cache's */
    else assert_in_range(memory.used, cached, cached + 4096 + prefix.pages * 256);
    lam_engine_free(engine);
    return code;
}

static void test_every_limit(void **state)
{
    (void)state;
    struct fixture f;
    lam_error err;
    char want[LAM_DIGEST_TEXT], got[LAM_DIGEST_TEXT];
    size_t most, peak, refused = 0;
    fixture_import(&f, "tests/golden/llama-gqa/llama-gqa-q4_0.gguf", stack, N_STACK);
    assert_ok(walk(&f, 0, want, &most, &err), err);
    assert_ok(walk(&f, most, got, &peak, &err), err);
    assert_string_equal(got, want);
    for (size_t i = 1; i <= 60; i++) {
        lam_code code = walk(&f, most * i / 60 - (i == 60), got, &peak, &err);
        if (code == LAM_OK) assert_string_equal(got, want); /* the prefix cache may go without */
        else if (code != LAM_E_BUDGET) fail_msg("limit %zu: %s: %s", most * i / 60, lam_code_name(code), err.message);
        refused += code != LAM_OK;
    }
    assert_true(refused > 30);
    fixture_remove(&f);
}

/* Base, adapter and one session: no part of the plan is below what is counted for it. */
static void test_the_plan_covers_it(void **state)
{
    (void)state;
    static const struct {
        const char *base, *adapter;
    } cases[] = {{"data/stories260K-Q8_0.gguf", "data/adapters/oz"},
                 {"tests/golden/llama-gqa", METHODS "embed"},
                 {"tests/golden/llama-k/llama-k-kmix.gguf", "tests/golden/methods/llama-k/dora"}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        lam_error err;
        lam_plan_bytes plan;
        lam_memory memory;
        uint32_t tokens[300];
        const char *path = f.adapter_paths[0];
        fixture_import(&f, cases[i / 2].base, &cases[i / 2].adapter, 1);
        f.compose.policy = i % 2 ? LAM_POLICY_MATERIALIZE : LAM_POLICY_DUAL;
        const lam_plan_stack planned = {.adapters = &path, .n = 1, .policy = f.compose.policy};
        assert_ok(lam_plan(f.base_path, &planned, &(lam_plan_options){.context = 300, .threads = 2}, &plan, &err), err);
        fixture_open(&f, &(lam_engine_options){.threads = 2, .budget = (size_t)(plan.peak - plan.process)});
        lam_composition *c = fixture_compose(&f, (double[]){1}, 1);
        lam_session *s = fixture_session(c, 300);
        fixture_tokens(1, fixture_vocab(&f), tokens, 300);
        assert_ok(lam_session_feed(s, tokens, 300, NULL, NULL, &err), err);
        lam_engine_memory(f.engine, &memory);
        uint64_t parts = plan.base + plan.adapters + plan.overlay + plan.kv + plan.session + plan.scratch;
        if (memory.used > parts) fail_msg("%s: %zu counted, %llu planned", cases[i / 2].adapter, memory.used, (unsigned long long)parts);
        assert_true(memory.used > plan.kv / 2 + plan.adapters / 2);
        lam_session_free(s);
        lam_composition_free(c);
        fixture_close(&f);
        fixture_remove(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_threads), cmocka_unit_test(test_every_limit),
                                       cmocka_unit_test(test_the_plan_covers_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
