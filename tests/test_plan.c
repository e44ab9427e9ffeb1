/* lam_plan: that its parts are those that are then allocated. The whole is held to measurements by tests/cli/plan.t (RssAnon) and
 * tests/wasm_memory.sh. */
#include "lamina/plan.h"
#include "fixture.h"

#define GOLDEN "tests/golden/"

struct planned {
    struct fixture f;
    const char *paths[1];
};

static void prepare(struct planned *p, const char *base, const char *adapter)
{
    fixture_import(&p->f, base, &adapter, 1);
    p->paths[0] = p->f.adapter_paths[0];
}

static lam_plan_bytes plan_of(const struct planned *p, size_t n, lam_policy policy, const lam_plan_options *options)
{
    lam_error err;
    lam_plan_bytes out;
    assert_ok(lam_plan(p->f.base_path, &(lam_plan_stack){.adapters = p->paths, .n = n, .policy = policy}, options, &out, &err), err);
    return out;
}

/* What an adapter says that it staged, and what the plan said that it would: but for heap heads and module tables, a few percent. */
static void test_staged_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *base, *adapter;
    } cases[] = {{"data/stories260K-Q8_0.gguf", "data/adapters/oz"},
                 {"data/stories260K-Q8_0.gguf", "data/adapters/shakespeare"},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/lora"},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/embed"},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/saved-head"},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/saved-embed"},
                 {GOLDEN "llama-k/llama-k-kmix.gguf", GOLDEN "methods/llama-k/dora"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct planned p;
        lam_adapter_info info;
        prepare(&p, cases[i].base, cases[i].adapter);
        lam_plan_bytes plan = plan_of(&p, 1, LAM_POLICY_DUAL, NULL);
        fixture_open(&p.f, NULL);
        lam_adapter_describe(p.f.adapters[0], &info);
        double tables = (double)info.n_modules * 1024.0 + 1024.0;
        if ((double)plan.adapters < 0.99 * (double)info.staged_bytes || (double)plan.adapters > 1.05 * (double)info.staged_bytes + tables)
            fail_msg("%s: planned %llu, staged %zu", cases[i].adapter, (unsigned long long)plan.adapters, info.staged_bytes);
        fixture_close(&p.f);
        fixture_remove(&p.f);
    }
}

/* 5 layers, 4 KV heads, 8 dimensions of float16, K and V, pages of 256 positions. */
static void test_keys_and_values(void **state)
{
    (void)state;
    struct planned p;
    prepare(&p, "data/stories260K-Q8_0.gguf", "data/adapters/oz");
    const uint64_t page = 5 * 4 * 8 * 2 * 2 * 256;
    lam_plan_bytes one = plan_of(&p, 0, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256});
    lam_plan_bytes two = plan_of(&p, 0, LAM_POLICY_DUAL, &(lam_plan_options){.context = 257});
    lam_plan_bytes wide = plan_of(&p, 0, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .kv = LAM_KV_FLOAT32});
    lam_plan_bytes many = plan_of(&p, 0, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .sessions = 16});
    assert_in_range(one.kv, page, page + 8192);
    assert_in_range(two.kv, 2 * page, 2 * page + 16384);
    assert_in_range(wide.kv, 2 * page, 2 * page + 8192);
    assert_int_equal(many.kv, 16 * one.kv);
    assert_true(many.session > one.session && many.peak > one.peak);
    assert_int_equal(one.adapters, 0);
    assert_int_equal(one.context, 256);
    fixture_remove(&p.f);
}

static void test_policies_and_switches(void **state)
{
    (void)state;
    struct planned p;
    prepare(&p, "data/stories260K-Q8_0.gguf", "data/adapters/oz");
    const lam_plan_stack bare = {.n = 0}, with = {.adapters = p.paths, .n = 1};
    lam_plan_bytes dual = plan_of(&p, 1, LAM_POLICY_DUAL, NULL), joined = plan_of(&p, 1, LAM_POLICY_MATERIALIZE, NULL);
    assert_true(joined.overlay > dual.overlay + dual.adapters / 2); /* the factors once more, in float32 */
    assert_int_equal(joined.adapters, dual.adapters);
    lam_plan_bytes from_base = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.from = &bare});
    lam_plan_bytes from_other = plan_of(&p, 0, LAM_POLICY_DUAL, &(lam_plan_options){.from = &with});
    lam_plan_bytes from_same = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.from = &with});
    assert_true(dual.from == 0 && dual.from_kv == 0);
    assert_true(from_base.from_kv == from_base.kv && from_other.from_kv == from_other.kv);
    assert_true(from_other.from >= dual.adapters);
    assert_int_equal(from_same.from, dual.overlay); /* the file is loaded already */
    /* No token is drawn while rows are computed again. */
    assert_int_equal(from_base.peak + dual.sampling + dual.scratch, dual.peak + from_base.from + from_base.from_kv + from_base.scratch);
    fixture_remove(&p.f);
}

/* A vocabulary of 512; pages as above. */
static void test_drafts_and_prefix_cache(void **state)
{
    (void)state;
    struct planned p;
    prepare(&p, "data/stories260K-Q8_0.gguf", "data/adapters/oz");
    const uint64_t page = 5 * 4 * 8 * 2 * 2 * 256, row = 512 * 4, budget = 4 << 20;
    lam_plan_bytes none = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256});
    lam_plan_bytes lookup = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .drafts = {LAM_DRAFT_LOOKUP, 5}});
    lam_plan_bytes usual = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .drafts = {LAM_DRAFT_LOOKUP, 0}});
    lam_plan_bytes base = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .drafts = {LAM_DRAFT_BASE, 5}});
    lam_plan_bytes cached = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .prefix_cache = budget});
    lam_plan_bytes little = plan_of(&p, 1, LAM_POLICY_DUAL, &(lam_plan_options){.context = 256, .prefix_cache = page - 1});
    assert_true(none.drafts == 0 && none.prefix == 0 && little.prefix == 0);
    assert_int_equal(lookup.drafts, 5 * row);
    assert_int_equal(usual.drafts, 7 * row);
    assert_in_range(base.drafts, 5 * row + none.kv + 2 * row + 256 * 4, 5 * row + none.kv + 2 * row + 256 * 4 + 16384);
    assert_true(lookup.peak >= none.peak + 5 * row && cached.peak == none.peak + cached.prefix);
    assert_in_range(cached.prefix, (budget / (page + 4096)) * page, budget + budget / 16);
    fixture_remove(&p.f);
}

static void test_budget(void **state)
{
    (void)state;
    struct planned p;
    lam_error err;
    lam_plan_bytes out;
    prepare(&p, "data/stories260K-Q8_0.gguf", "data/adapters/oz");
    const lam_plan_stack stack = {.adapters = p.paths, .n = 1};
    uint64_t peak = plan_of(&p, 1, LAM_POLICY_DUAL, NULL).peak;
    assert_ok(lam_plan(p.f.base_path, &stack, &(lam_plan_options){.budget = peak}, &out, &err), err);
    assert_int_equal(lam_plan(p.f.base_path, &stack, &(lam_plan_options){.budget = peak - 1}, &out, &err), LAM_E_BUDGET);
    assert_int_equal(out.peak, peak);
    static const char *const parts[] = {"program", "base", "adapters", "overlay", "keys and values", "session", "scratch", "while staging", "0.00 MB more than the budget"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_non_null(strstr(err.message, parts[i]));
    assert_int_equal(lam_plan(p.paths[0], &stack, NULL, &out, &err), LAM_E_FORMAT);
    const char *base_as_adapter[] = {p.f.base_path};
    assert_int_equal(lam_plan(p.f.base_path, &(lam_plan_stack){.adapters = base_as_adapter, .n = 1}, NULL, &out, &err), LAM_E_FORMAT);
    fixture_remove(&p.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_staged_bytes), cmocka_unit_test(test_keys_and_values),
                                       cmocka_unit_test(test_policies_and_switches),
                                       cmocka_unit_test(test_drafts_and_prefix_cache), cmocka_unit_test(test_budget)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
