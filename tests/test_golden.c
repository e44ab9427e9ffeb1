/* Logits against the outside truth in tests/golden (see its README): Hugging Face in float32, PEFT, and the NumPy emulator. */
#include "support.h"

#include "lamina/lamina.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN "tests/golden/"

struct measured {
    const float *want; /* [rows, vocab] */
    size_t first_row, rows, vocab, at;
    double largest_difference, largest, dot, norm_got, norm_want;
};

static bool compare_position(void *context, size_t position, const float *logits, size_t n_vocab)
{
    struct measured *m = context;
    assert_int_equal(n_vocab, m->vocab);
    if (position < m->first_row || position >= m->first_row + m->rows) return true;
    const float *want = m->want + (position - m->first_row) * m->vocab;
    for (size_t i = 0; i < n_vocab; i++) {
        double difference = fabs((double)logits[i] - (double)want[i]);
        assert_true(difference >= 0.0); /* not NaN */
        if (difference > m->largest_difference) m->largest_difference = difference;
        if (fabs((double)want[i]) > m->largest) m->largest = fabs((double)want[i]);
        m->dot += (double)logits[i] * (double)want[i];
        m->norm_got += (double)logits[i] * (double)logits[i];
        m->norm_want += (double)want[i] * (double)want[i];
    }
    m->at++;
    return true;
}

/* The base of the case at work and what was opened for it: cases that share a base stand together. */
struct bench {
    lam_engine *engine;
    char key[512];            /* path and option of the import */
    char *folder;
    char base_path[512];
    lam_base *base;
    struct { char path[256]; lam_adapter *adapter; } adapters[64];
    size_t n_adapters;
};

static void close_base(struct bench *b)
{
    for (size_t i = 0; i < b->n_adapters; i++) lam_adapter_unload(b->adapters[i].adapter);
    lam_base_free(b->base);
    if (b->folder) test_remove_folder(b->folder);
    b->base = NULL;
    b->folder = NULL;
    b->n_adapters = 0;
}

static void open_base(struct bench *b, const char *path, const char *quantise)
{
    lam_error err;
    char source[512], key[512];
    snprintf(key, sizeof key, "%s %s", path, quantise ? quantise : "");
    if (b->base && strcmp(key, b->key) == 0) return;
    close_base(b);
    snprintf(b->key, sizeof b->key, "%s", key);
    b->folder = test_make_folder();
    snprintf(source, sizeof source, GOLDEN "%s", path);
    snprintf(b->base_path, sizeof b->base_path, "%s/base.slm", b->folder);
    lam_import_options options = {.quantise = quantise};
    assert_ok(lam_import_base(source, b->base_path, &options, &err), err);
    assert_ok(lam_base_open(b->engine, b->base_path, LAM_VERIFY_FULL, &b->base, &err), err);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A folder or a GGUF is imported for the base; a .slm is bound to no base and taken as it is. */
static lam_adapter *open_adapter(struct bench *b, const char *name)
{
    lam_error err;
    char source[512], path[512];
    bool made = ends_with(name, ".slm");
    for (size_t i = 0; i < b->n_adapters; i++)
        if (strcmp(b->adapters[i].path, name) == 0) return b->adapters[i].adapter;
    assert_true(b->n_adapters < sizeof b->adapters / sizeof *b->adapters);
    snprintf(source, sizeof source, GOLDEN "%s", name);
    snprintf(path, sizeof path, "%s/adapter-%zu.slm", b->folder, b->n_adapters);
    if (!made) {
        lam_adapter_report report;
        assert_ok(lam_import_adapter(source, b->base_path, path, NULL, &report, &err), err);
        assert_int_equal(report.n_tensors, report.n_applied);
    }
    lam_adapter *adapter = NULL;
    assert_ok(lam_adapter_load(b->base, made ? source : path, made, &adapter, &err), err);
    snprintf(b->adapters[b->n_adapters].path, sizeof b->adapters->path, "%s", name);
    b->adapters[b->n_adapters++].adapter = adapter;
    return adapter;
}

/* "policy": "materialize", "mixed" (the matrices that the model's entry lists) or none. */
static lam_composition *compose(struct bench *b, const json_t *c, const json_t *model)
{
    lam_error err;
    lam_adapter *adapters[8];
    lam_stack_rule rules[8];
    lam_module_policy policies[64];
    lam_owner owners[16];
    double weights[8];
    size_t i, n = json_array_size(json_object_get(c, "adapters"));
    json_t *item;
    assert_true(n <= 8);
    json_array_foreach(json_object_get(c, "adapters"), i, item) {
        const char *rule = json_string_value(json_object_get(item, "rule"));
        adapters[i] = open_adapter(b, json_string_value(json_object_get(item, "path")));
        weights[i] = json_number_value(json_object_get(item, "weight"));
        rules[i] = rule && strcmp(rule, "replace") == 0 ? LAM_STACK_REPLACE : LAM_STACK_ADD;
    }
    const char *policy = json_string_value(json_object_get(c, "policy"));
    lam_compose_options how = {.kv = json_object_get(c, "kv") ? LAM_KV_INT8 : LAM_KV_DEFAULT, .rules = rules};
    if (policy && strcmp(policy, "materialize") == 0) how.policy = LAM_POLICY_MATERIALIZE;
    if (policy && strcmp(policy, "mixed") == 0) {
        json_array_foreach(json_object_get(model, "materialized"), i, item) {
            assert_true(i < 64);
            policies[i] = (lam_module_policy){json_string_value(item), LAM_POLICY_MATERIALIZE};
            how.n_module_policies++;
        }
        assert_true(how.n_module_policies > 0);
        how.module_policies = policies;
    }
    const char *module;
    json_object_foreach(json_object_get(c, "owners"), module, item) {
        assert_true(how.n_owners < 16);
        owners[how.n_owners++] = (lam_owner){module, (size_t)json_integer_value(item)};
    }
    how.owners = owners;
    lam_composition *composition = NULL;
    assert_ok(lam_compose(b->base, adapters, weights, n, &how, &composition, &err), err);
    return composition;
}

static struct measured feed(lam_composition *composition, const json_t *c)
{
    lam_error err;
    char path[512];
    uint32_t tokens[512];
    size_t n = json_array_size(json_object_get(c, "tokens")), size;
    for (size_t i = 0; i < n; i++) tokens[i] = (uint32_t)json_integer_value(json_array_get(json_object_get(c, "tokens"), i));
    snprintf(path, sizeof path, GOLDEN "%s", json_string_value(json_object_get(c, "logits")));
    uint8_t *want = test_read_file(path, &size);
    size_t at = (size_t)json_integer_value(json_object_get(c, "at"));
    struct measured m = {.first_row = (size_t)json_integer_value(json_object_get(c, "first_row")),
                         .rows = (size_t)json_integer_value(json_object_get(c, "rows")),
                         .vocab = (size_t)json_integer_value(json_object_get(c, "vocab"))};
    assert_true(size >= (at + m.rows) * m.vocab * sizeof(float));
    m.want = (const float *)(const void *)want + at * m.vocab;
    lam_session *session;
    assert_ok(lam_session_new(composition, 512, &session, &err), err);
    assert_ok(lam_session_feed(session, tokens, n, compare_position, &m, &err), err);
    assert_int_equal(m.at, m.rows);
    lam_session_free(session);
    free(want);
    return m;
}

static void run_case(struct bench *b, const json_t *c, const json_t *index)
{
    const char *id = json_string_value(json_object_get(c, "id"));
    const char *rule = json_string_value(json_object_get(c, "rule"));
    const char *quantise = json_string_value(json_object_get(c, "quantise"));
    const json_t *model = json_object_get(json_object_get(index, "models"), json_string_value(json_object_get(c, "model")));
    printf("%-54s %-6s ", id, rule); /* before the work, so that a failure is named */
    open_base(b, json_string_value(json_object_get(c, "path")), quantise);
    lam_composition *composition = compose(b, c, model);
    struct measured m = feed(composition, c);
    lam_composition_free(composition);

    double relative = m.largest_difference / m.largest, cosine = m.dot / sqrt(m.norm_got * m.norm_want);
    printf("max|d|/max|logit| %.2e  cosine %.9f\n", relative, cosine);
    const json_t *limit = json_object_get(json_object_get(json_object_get(index, "rules"), rule), "max_abs_over_max_logit");
    if (strcmp(rule, "nc1") == 0 && m.largest_difference > 0.0) fail_msg("%s: %.3e from the emulator, not bit for bit", id, relative);
    if (json_is_number(limit) && relative > json_number_value(limit))
        fail_msg("%s: %.3e is above %.1e", id, relative, json_number_value(limit));
}

static void test_every_case(void **state)
{
    (void)state;
    lam_error err;
    json_error_t problem;
    json_t *index = json_load_file(GOLDEN "index.json", 0, &problem);
    if (!index) fail_msg("index.json: %s", problem.text);
    struct bench bench = {0};
    assert_ok(lam_engine_new(NULL, &bench.engine, &err), err);
    const char *only = getenv("CASE");
    size_t i, ran = 0;
    json_t *c;
    json_array_foreach(json_object_get(index, "cases"), i, c) {
        if (only && !strstr(json_string_value(json_object_get(c, "id")), only)) continue;
        run_case(&bench, c, index);
        ran++;
    }
    assert_true(ran > 0);
    close_base(&bench);
    lam_engine_free(bench.engine);
    json_decref(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
