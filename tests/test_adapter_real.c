/* Published adapters and their configurations: what PEFT makes of them, and under which name they are refused here.
 * Data and expected results: tests/data/adapters/real, by tools/golden/real_adapters.py from PEFT. */
#define _XOPEN_SOURCE 700
#include "adapter_sources.h"

#include "base/json.h"
#include "import/adapter_peft_config.h"

#include <math.h>

#define DATA "tests/data/adapters/"

static json_t *expected; /* of the whole run */

static int begin(void **state)
{
    size_t size;
    char *text = (char *)test_read_file(DATA "real/expected.json", &size);
    expected = json_loadb(text, size, 0, NULL);
    free(text);
    return expected ? make_folder(state) : -1;
}

static int end(void **state)
{
    json_decref(expected);
    return remove_folder(state);
}

static lam_code parse(const char *path, struct lam_peft_config *out, lam_error *err)
{
    struct lam_faults faults = {0};
    size_t size;
    char *text = (char *)test_read_file(path, &size);
    lam_code code = lam_peft_config_parse(text, size, "adapter_config.json", "llama", out, &faults, err);
    lam_faults_release(&faults);
    free(text);
    return code;
}

static void check_module(const struct lam_peft_config *c, const char *label, const char *name, const json_t *wanted)
{
    lam_error err = {0};
    bool targeted, feedforward;
    uint32_t rank;
    double alpha;
    assert_ok(lam_module_match_find(c->modules, name, LAM_MODULE_LINEAR, &targeted, &err), err);
    if (targeted != (wanted != NULL)) fail_msg("%s: %s is %stargeted", label, name, targeted ? "" : "not ");
    if (!wanted) return;
    if (c->ia3) {
        assert_ok(lam_module_match_feedforward(c->modules, name, &feedforward, &err), err);
        assert_int_equal(feedforward, json_is_true(json_object_get(wanted, "feedforward")));
        return;
    }
    assert_ok(lam_peft_config_module(c, name, &rank, &alpha, &err), err);
    assert_int_equal(rank, json_integer_value(json_object_get(wanted, "rank")));
    assert_true(alpha == json_number_value(json_object_get(wanted, "alpha")));
    assert_true(alpha / (c->rank_stabilised ? sqrt(rank) : rank) == json_number_value(json_object_get(wanted, "scaling")));
}

/* The linear layers to which PEFT gives an adapter, with the rank, alpha and scaling that it computes with. */
static void configurations_mean_what_peft_makes_of_them(void **state)
{
    (void)state;
    const char *file;
    json_t *one;
    size_t n_read = 0, n_modules = 0;
    json_object_foreach(json_object_get(expected, "configs"), file, one) {
        const json_t *layers = json_object_get(json_object_get(expected, "models"), json_string_value(json_object_get(one, "model")));
        const json_t *modules = json_object_get(one, "modules"), *unknown = json_object_get(one, "unknown_fields");
        struct lam_peft_config c;
        lam_error err = {0};
        char path[256];
        snprintf(path, sizeof path, DATA "%s", file);
        lam_code code = parse(path, &c, &err);
        if (json_array_size(unknown)) { /* PEFT leaves them out with a warning */
            assert_int_equal(code, LAM_E_UNKNOWN_FIELD);
            assert_non_null(strstr(err.message, json_string_value(json_array_get(unknown, 0))));
        }
        if (code == LAM_E_METHOD || code == LAM_E_UNKNOWN_FIELD) continue; /* by name: tests/test_peft_config.c */
        if (code != LAM_OK) fail_msg("%s: %s", file, err.message);
        for (size_t i = 0; i < json_array_size(layers); i++) {
            const char *name = json_string_value(json_array_get(layers, i));
            check_module(&c, file, name, json_object_get(modules, name));
        }
        lam_peft_config_release(&c);
        n_read++;
        n_modules += json_object_size(modules);
    }
    assert_int_equal(n_read, 18);
    assert_int_equal(n_modules, 72);
}

/* The faults of one code are these subjects, which are sorted, and no others. */
static void faults_are(const struct lam_adapter_report *report, lam_code code, const json_t *subjects)
{
    assert_int_equal(report->n_faults, json_array_size(subjects));
    for (size_t i = 0; i < report->n_faults; i++) {
        assert_int_equal(report->faults[i].code, code);
        assert_string_equal(report->faults[i].subject, json_string_value(json_array_get(subjects, i)));
    }
}

/* Adapters of GPT-2: PEFT finds none of their modules in a llama, and here every tensor is listed. */
static void adapters_of_another_architecture_are_unmatched(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2-tigrinya", "llms-from-groundup"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_object_get(json_object_get(expected, "adapters"), names[i]);
        char source[256];
        struct lam_adapter_report report;
        lam_error err = {0};
        assert_non_null(strstr(json_string_value(json_object_get(one, "on_llama")), "not found in the base model"));
        snprintf(source, sizeof source, DATA "real/%s", names[i]);
        refused(names[i], source, base_of("llama-gqa"), LAM_E_UNMATCHED, "made for another model, or saved under other names");
        assert_int_equal(lam_import_adapter(source, base_of("llama-gqa"), in_folder("real.slm"), NULL, &report, &err), LAM_E_UNMATCHED);
        faults_are(&report, LAM_E_UNMATCHED, json_object_get(one, "tensors"));
        lam_memory_free(report.faults);
    }
}

/* PEFT leaves out a field that it does not know; nothing says that the field means nothing, so it is refused, and can be taken out. */
static void an_unknown_field_is_refused_before_anything_else(void **state)
{
    (void)state;
    const json_t *one = json_object_get(json_object_get(expected, "adapters"), "gradience-synthetic");
    const char *dir = fresh_folder("without");
    struct lam_adapter_report report;
    lam_error err = {0};
    assert_string_equal(json_string_value(json_array_get(json_object_get(one, "unknown_fields"), 0)), "alpha");
    refused("gradience", DATA "real/gradience-synthetic", base_of("llama-gqa"), LAM_E_UNKNOWN_FIELD, "adapter_config.json: alpha: an unknown field");
    copy_file(DATA "real/gradience-synthetic/adapter_model.safetensors", dir, "adapter_model.safetensors");
    copy_edited(DATA "real/gradience-synthetic/adapter_config.json", dir, "adapter_config.json", "\"alpha\": 16,", "");
    assert_int_equal(lam_import_adapter(dir, base_of("llama-gqa"), in_folder("real.slm"), NULL, &report, &err), LAM_E_UNMATCHED);
    faults_are(&report, LAM_E_UNMATCHED, json_object_get(one, "tensors"));
    lam_memory_free(report.faults);
}

static void mlx_is_named(void **state)
{
    (void)state;
    const json_t *one = json_object_get(json_object_get(expected, "adapters"), "mlx-discollama");
    assert_non_null(strstr(json_string_value(json_object_get(one, "config_error")), "missing required keys"));
    refused("mlx", DATA "real/mlx-discollama", base_of("llama-gqa"), LAM_E_METHOD, "an adapter in MLX's layout");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configurations_mean_what_peft_makes_of_them), cmocka_unit_test(adapters_of_another_architecture_are_unmatched),
        cmocka_unit_test(an_unknown_field_is_refused_before_anything_else), cmocka_unit_test(mlx_is_named),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
