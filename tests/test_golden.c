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

static size_t load_adapters(const json_t *list, lam_base *base, const char *base_path, const char *folder, lam_adapter **adapters,
                            double *weights)
{
    lam_error err;
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)list, i, item) {
        char source[512], path[512];
        snprintf(source, sizeof source, GOLDEN "%s", json_string_value(json_object_get(item, "path")));
        snprintf(path, sizeof path, "%s/adapter-%zu.slm", folder, i);
        lam_adapter_report report;
        assert_ok(lam_import_adapter(source, base_path, path, NULL, &report, &err), err);
        assert_int_equal(report.n_tensors, report.n_applied);
        assert_ok(lam_adapter_load(base, path, false, &adapters[i], &err), err);
        weights[i] = json_number_value(json_object_get(item, "weight"));
    }
    return json_array_size(list);
}

static void run_case(lam_engine *engine, const json_t *c, const json_t *rules)
{
    lam_error err;
    const char *id = json_string_value(json_object_get(c, "id"));
    const char *rule = json_string_value(json_object_get(c, "rule"));
    char source[512], base_path[512], want_path[512];
    char *folder = test_make_folder();
    snprintf(source, sizeof source, GOLDEN "%s", json_string_value(json_object_get(c, "path")));
    snprintf(want_path, sizeof want_path, GOLDEN "%s", json_string_value(json_object_get(c, "logits")));
    snprintf(base_path, sizeof base_path, "%s/base.slm", folder);
    lam_import_options options = {.quantise = json_string_value(json_object_get(c, "quantise"))};
    assert_ok(lam_import_base(source, base_path, &options, &err), err);
    lam_base *base;
    assert_ok(lam_base_open(engine, base_path, LAM_VERIFY_FULL, &base, &err), err);

    lam_adapter *adapters[8];
    double weights[8];
    size_t n_adapters = load_adapters(json_object_get(c, "adapters"), base, base_path, folder, adapters, weights);
    lam_composition *composition;
    const char *kv = json_string_value(json_object_get(c, "kv")); /* "i8", or none: the default */
    lam_compose_options how = {.kv = kv ? LAM_KV_INT8 : LAM_KV_DEFAULT};
    assert_ok(lam_compose(base, adapters, weights, n_adapters, &how, &composition, &err), err);
    lam_session *session;
    assert_ok(lam_session_new(composition, 512, &session, &err), err);

    const json_t *list = json_object_get(c, "tokens");
    uint32_t tokens[512];
    size_t n = json_array_size(list), size;
    for (size_t i = 0; i < n; i++) tokens[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    uint8_t *want = test_read_file(want_path, &size);
    struct measured m = {.want = (const float *)(const void *)want,
                         .first_row = (size_t)json_integer_value(json_object_get(c, "first_row")),
                         .rows = (size_t)json_integer_value(json_object_get(c, "rows")),
                         .vocab = (size_t)json_integer_value(json_object_get(c, "vocab"))};
    assert_int_equal(size, m.rows * m.vocab * sizeof(float));
    assert_ok(lam_session_feed(session, tokens, n, compare_position, &m, &err), err);
    assert_int_equal(m.at, m.rows);

    double relative = m.largest_difference / m.largest, cosine = m.dot / sqrt(m.norm_got * m.norm_want);
    printf("%-34s %-6s max|d|/max|logit| %.2e  cosine %.9f\n", id, rule, relative, cosine);
    const json_t *limit = json_object_get(json_object_get(rules, rule), "max_abs_over_max_logit");
    if (options.quantise && m.largest_difference > 0.0) fail_msg("%s: logits are not the emulator's, bit for bit", id);
    if (json_is_number(limit) && relative > json_number_value(limit))
        fail_msg("%s: %.3e is above %.1e", id, relative, json_number_value(limit));
    free(want);
    lam_session_free(session);
    lam_composition_free(composition);
    for (size_t i = 0; i < n_adapters; i++) lam_adapter_unload(adapters[i]);
    lam_base_free(base);
    test_remove_folder(folder);
}

static void test_every_case(void **state)
{
    (void)state;
    lam_error err;
    json_error_t problem;
    json_t *index = json_load_file(GOLDEN "index.json", 0, &problem);
    if (!index) fail_msg("index.json: %s", problem.text);
    lam_engine *engine;
    assert_ok(lam_engine_new(NULL, &engine, &err), err);
    const char *only = getenv("CASE");
    size_t i, ran = 0;
    json_t *c;
    json_array_foreach(json_object_get(index, "cases"), i, c) {
        if (only && !strstr(json_string_value(json_object_get(c, "id")), only)) continue;
        if (json_is_true(json_object_get(c, "optional"))) continue; /* a method that we refuse by name: test_adapter_import.c */
        run_case(engine, c, json_object_get(index, "rules"));
        ran++;
    }
    assert_true(ran > 0);
    lam_engine_free(engine);
    json_decref(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
