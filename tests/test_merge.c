/* lam_merge: a composition as a base of its own. What it must compute is what the policy materialize computes, which test_golden.c holds
 * against PEFT; where the new base stores float32 the bits are the same. */
#include "lamina/merge.h"
#include "base/json.h"
#include "fixture.h"
#include "format/slm.h"

#include <math.h>

#define GOLDEN "tests/golden/"

static const uint32_t tokens[] = {1, 17, 230, 44, 5, 99, 64, 3};
#define N_TOKENS (sizeof tokens / sizeof *tokens)

/* A base, an adapter, and where the merged base goes. */
struct merged {
    struct fixture f;
    lam_compose_options compose;
    char path[600];
    json_t *report; /* owned */
};

static void prepare(struct merged *m, const char *base, const char *adapter)
{
    *m = (struct merged){.compose.policy = LAM_POLICY_MATERIALIZE, .compose.kv = LAM_KV_FLOAT32};
    size_t len = strlen(adapter);
    bool slm = len > 4 && strcmp(adapter + len - 4, ".slm") == 0;
    fixture_import(&m->f, base, &adapter, slm ? 0 : 1);
    if (slm) {
        snprintf(m->f.adapter_paths[0], sizeof m->f.adapter_paths[0], "%s", adapter);
        m->f.n_adapters = 1;
    }
    size_t n = m->f.n_adapters;
    m->f.n_adapters = 0;
    fixture_open(&m->f, NULL);
    m->f.n_adapters = n;
    lam_error err;
    assert_ok(lam_adapter_load(m->f.base, m->f.adapter_paths[0], slm, &m->f.adapters[0], &err), err); /* those .slm are bound to nothing */
    m->f.compose = m->compose;
    snprintf(m->path, sizeof m->path, "%s/merged.slm", m->f.folder);
}

static lam_code merge(struct merged *m, double weight, const lam_merge_options *options, lam_error *err)
{
    char *text;
    lam_composition *c = fixture_compose(&m->f, &weight, 1);
    json_decref(m->report);
    m->report = NULL;
    lam_code code = lam_merge(c, m->path, options, &text, err);
    if (code == LAM_OK) {
        lam_error inner;
        assert_ok(lam_json_parse(text, strlen(text), "report", &m->report, &inner), inner);
    }
    lam_memory_free(text);
    lam_composition_free(c);
    return code;
}

static void finish(struct merged *m)
{
    json_decref(m->report);
    fixture_close(&m->f);
    fixture_remove(&m->f);
}

static double figure(const struct merged *m, const char *key) { return json_number_value(json_object_get(m->report, key)); }

/* Logits after the tokens, [n_vocab]; freed with free. */
static float *logits_of(lam_composition *c, size_t n_vocab)
{
    lam_error err;
    lam_session *s = fixture_session(c, 32);
    float *out = malloc(n_vocab * sizeof *out);
    assert_non_null(out);
    assert_ok(lam_session_feed(s, tokens, N_TOKENS, NULL, NULL, &err), err);
    memcpy(out, lam_session_logits(s), n_vocab * sizeof *out);
    lam_session_free(s);
    return out;
}

static float *merged_logits(const struct merged *m, const char *path)
{
    lam_error err;
    lam_base *base;
    lam_composition *c;
    assert_ok(lam_base_open(m->f.engine, path, LAM_VERIFY_FULL, &base, &err), err);
    assert_ok(lam_compose(base, NULL, NULL, 0, &(lam_compose_options){.kv = LAM_KV_FLOAT32}, &c, &err), err);
    float *out = logits_of(c, fixture_vocab(&m->f));
    lam_composition_free(c);
    lam_base_free(base);
    return out;
}

static float *composed_logits(struct merged *m, double weight)
{
    lam_composition *c = fixture_compose(&m->f, &weight, 1);
    float *out = logits_of(c, fixture_vocab(&m->f));
    lam_composition_free(c);
    return out;
}

static float apart(const float *a, const float *b, size_t n)
{
    float most = 0.0f, size = 0.0f;
    for (size_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(a[i] - b[i]));
        size = fmaxf(size, fabsf(b[i]));
    }
    return most / size;
}

/* Every method, on float bases with an untied and a tied head, and on a quantised one whose changed matrices become float32. */
static void test_computes_what_materialize_does(void **state)
{
    (void)state;
    static const struct {
        const char *base, *adapter;
        bool close; /* a bias of B is added before the bias, here it is part of it */
    } cases[] = {{GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/lora", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/dora", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/ia3", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/ia3-joined", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/embed", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/head", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/norms", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/saved-embed", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/saved-head", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/sparse.slm", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/dense.slm", false},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/lora-bias", true},
                 {GOLDEN "qwen2-tied", GOLDEN "methods/qwen2-tied/bias-all", false},
                 {GOLDEN "qwen2-tied", GOLDEN "methods/qwen2-tied/embed", false},
                 {GOLDEN "qwen2-tied/qwen2-tied-q8_0.gguf", GOLDEN "adapters/qwen2-tied/all-r4", false},
                 {GOLDEN "llama-k/llama-k-kmix.gguf", GOLDEN "methods/llama-k/dora", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err;
        struct merged m;
        for (double weight = 1.0; weight > 0.4; weight -= 0.5) {
            prepare(&m, cases[i].base, cases[i].adapter);
            lam_code code = merge(&m, weight, &(lam_merge_options){.dtype = "f32"}, &err);
            if (code != LAM_OK) fail_msg("%s: %s: %s", cases[i].adapter, lam_code_name(code), err.message);
            float *want = composed_logits(&m, weight), *have = merged_logits(&m, m.path);
            size_t n = fixture_vocab(&m.f);
            if (cases[i].close ? apart(have, want, n) > 2e-6f : memcmp(have, want, n * sizeof *have) != 0)
                fail_msg("%s at %g: logits %g apart", cases[i].adapter, weight, (double)apart(have, want, n));
            assert_true(figure(&m, "relative_error") == 0.0 && figure(&m, "change_lost") == 0.0);
            free(want);
            free(have);
            finish(&m);
        }
    }
}

/* What no adapter changes is copied; the base itself stays as it is, and the new one has a digest of its own. */
static void test_the_rest_is_copied(void **state)
{
    (void)state;
    lam_error err;
    struct merged m;
    struct lam_slm *was, *now;
    size_t size, again, n_same = 0;
    prepare(&m, GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", GOLDEN "methods/llama-gqa/dense.slm");
    uint8_t *before = test_read_file(m.f.base_path, &size);
    assert_ok(merge(&m, 1.0, NULL, &err), err);
    uint8_t *after = test_read_file(m.f.base_path, &again);
    assert_true(size == again && memcmp(before, after, size) == 0);
    assert_ok(lam_slm_open(m.f.base_path, &was, &err), err);
    assert_ok(lam_slm_open(m.path, &now, &err), err);
    assert_int_equal(was->n_entries, now->n_entries);
    for (size_t i = 0; i < was->n_entries; i++) {
        const struct lam_slm_entry *a = &was->entries[i], *b = &now->entries[i];
        bool same = a->bytes == b->bytes && memcmp(lam_slm_tensor_data(was, a), lam_slm_tensor_data(now, b), a->bytes) == 0;
        assert_int_equal(a->dtype, b->dtype);
        n_same += same;
    }
    assert_int_equal(n_same, json_integer_value(json_object_get(m.report, "copied")));
    assert_int_equal(was->n_entries - n_same, json_array_size(json_object_get(m.report, "tensors")));
    assert_int_equal(was->n_entries - n_same, 5); /* what NumPy's difference holds */
    assert_string_not_equal(json_string_value(json_object_get(m.report, "base_digest")), json_string_value(json_object_get(m.report, "base")));
    lam_slm_close(was);
    lam_slm_close(now);
    free(before);
    free(after);
    finish(&m);
}

/* A change far below a step of Q4_0: laid over the base it acts; encoded again with the weights it is gone, and the report says so. */
static void test_tiny_change_on_q4(void **state)
{
    (void)state;
    lam_error err;
    struct merged m;
    const double tiny = 1e-3;
    prepare(&m, GOLDEN "llama-gqa/llama-gqa-q4_0.gguf", GOLDEN "methods/llama-gqa/lora");
    float *base = composed_logits(&m, 0.0), *with = composed_logits(&m, tiny);
    size_t n = fixture_vocab(&m.f);
    assert_true(apart(with, base, n) > 1e-6f);
    assert_ok(merge(&m, tiny, NULL, &err), err);
    assert_true(figure(&m, "change_lost") > 0.5 && figure(&m, "error_to_change") > 0.9); /* what was Q4_0 encodes to itself again */
    assert_ok(merge(&m, tiny, &(lam_merge_options){.dtype = "q8_0"}, &err), err);
    assert_true(figure(&m, "error_to_change") > 1.0); /* the rounding is larger than what it rounds */
    assert_ok(merge(&m, tiny, &(lam_merge_options){.dtype = "f16"}, &err), err);
    assert_true(figure(&m, "change_lost") < 0.2);
    assert_ok(merge(&m, tiny, &(lam_merge_options){.dtype = "f32"}, &err), err);
    assert_true(figure(&m, "error_to_change") == 0.0);
    float *exact = merged_logits(&m, m.path);
    assert_memory_equal(exact, with, n * sizeof *exact);
    free(base);
    free(with);
    free(exact);
    finish(&m);
}

/* A GGUF that is written holds the same base. */
static void test_gguf(void **state)
{
    (void)state;
    lam_error err;
    struct merged m;
    char back[600];
    prepare(&m, GOLDEN "qwen2-tied/qwen2-tied-q8_0.gguf", GOLDEN "methods/qwen2-tied/embed");
    assert_ok(merge(&m, 1.0, NULL, &err), err);
    float *want = merged_logits(&m, m.path);
    snprintf(m.path, sizeof m.path, "%s/merged.gguf", m.f.folder);
    snprintf(back, sizeof back, "%s/back.slm", m.f.folder);
    assert_ok(merge(&m, 1.0, NULL, &err), err);
    assert_true(json_is_true(json_object_get(m.report, "untied")));
    assert_ok(lam_import_base(m.path, back, NULL, &err), err);
    float *have = merged_logits(&m, back);
    assert_memory_equal(have, want, fixture_vocab(&m.f) * sizeof *have);
    free(want);
    free(have);
    finish(&m);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *base, *adapter;
        lam_merge_options options;
        lam_policy policy;
        lam_code code;
    } cases[] = {{GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/alora", {.strict = false}, LAM_POLICY_MATERIALIZE, LAM_E_MERGE_ACTIVATED},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/lora", {.strict = false}, LAM_POLICY_DUAL, LAM_E_ARGUMENT},
                 {GOLDEN "llama-gqa", GOLDEN "methods/llama-gqa/lora", {.dtype = "q9"}, LAM_POLICY_MATERIALIZE, LAM_E_ARGUMENT},
                 {GOLDEN "llama-k/llama-k-kmix.gguf", GOLDEN "methods/llama-k/dora", {.strict = true}, LAM_POLICY_MATERIALIZE, LAM_E_DTYPE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lam_error err;
        struct merged m;
        prepare(&m, cases[i].base, cases[i].adapter);
        m.f.compose.policy = cases[i].policy;
        lam_code code = merge(&m, 1.0, &cases[i].options, &err);
        if (code != cases[i].code) fail_msg("case %zu: %s, not %s", i, lam_code_name(code), lam_code_name(cases[i].code));
        assert_false(lam_path_exists(m.path));
        finish(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_computes_what_materialize_does), cmocka_unit_test(test_the_rest_is_copied),
        cmocka_unit_test(test_tiny_change_on_q4), cmocka_unit_test(test_gguf), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
