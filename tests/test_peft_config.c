/* adapter_config.json: what is plain LoRA, what is refused under which name, and PEFT's rules of matching.
 * Expected results: tests/data/adapters, by tools/make_adapter_cases.py from PEFT's example configurations and Python's re. */
#include "support.h"

#include "import/adapter_peft_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *load(const char *path)
{
    size_t size;
    char *text = (char *)test_read_file(path, &size);
    json_t *root = json_loadb(text, size, 0, NULL);
    assert_non_null(root);
    free(text);
    return root;
}

static void examples_are_accepted_or_refused_by_name(void **state)
{
    (void)state;
    json_t *expected = load("tests/data/adapters/configs.json"), *named;
    const char *file;
    size_t n_lora = 0, n_refused = 0;
    json_object_foreach(expected, file, named) {
        char path[256];
        snprintf(path, sizeof path, "tests/data/adapters/configs/%s", file);
        size_t size;
        char *text = (char *)test_read_file(path, &size);
        struct lam_peft_config c;
        lam_error err = {0};
        lam_code code = lam_peft_config_parse(text, size, "adapter_config.json", &c, &err);
        free(text);
        if (json_is_null(named)) {
            if (code != LAM_OK) fail_msg("%s: %s", file, err.message);
            lam_peft_config_release(&c);
            n_lora++;
            continue;
        }
        if (code != LAM_E_METHOD || !strstr(err.message, json_string_value(named)))
            fail_msg("%s: %s %s, wanted %s", file, lam_code_name(code), err.message, json_string_value(named));
        n_refused++;
    }
    assert_int_equal(n_lora, 10);
    assert_int_equal(n_refused, 93);
    json_decref(expected);
}

static enum lam_module_kind kind_of(const char *name)
{
    if (strcmp(name, "head") == 0) return LAM_MODULE_HEAD;
    if (strcmp(name, "embedding") == 0) return LAM_MODULE_EMBEDDING;
    return strcmp(name, "norm") == 0 ? LAM_MODULE_NORM : LAM_MODULE_LINEAR;
}

static bool has_text(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) return true;
    return false;
}

static void check_rules(const json_t *modules, const json_t *one, lam_error *err)
{
    const json_t *r = json_object_get(one, "rules");
    struct lam_module_rules rules = {json_object_get(r, "target_modules"), json_object_get(r, "exclude_modules"),
                                     json_object_get(r, "layers_to_transform"), json_object_get(r, "layers_pattern")};
    struct lam_module_match *m;
    assert_ok(lam_module_match_new(&rules, &m, err), *err);
    for (size_t i = 0; i < json_array_size(modules); i++) {
        const json_t *module = json_array_get(modules, i);
        const char *name = json_string_value(json_object_get(module, "name"));
        bool targeted;
        assert_ok(lam_module_match_find(m, name, kind_of(json_string_value(json_object_get(module, "kind"))), &targeted, err), *err);
        if (targeted != has_text(json_object_get(one, "targeted"), name))
            fail_msg("%s: %s is %stargeted", json_dumps(r, JSON_COMPACT), name, targeted ? "" : "not ");
    }
    lam_module_match_free(m);
}

static void modules_are_targeted_as_in_peft(void **state)
{
    (void)state;
    lam_error err = {0};
    json_t *root = load("tests/data/adapters/matching.json"), *rules = json_object_get(root, "rules");
    assert_true(json_array_size(rules) > 30);
    for (size_t i = 0; i < json_array_size(rules); i++) check_rules(json_object_get(root, "modules"), json_array_get(rules, i), &err);
    json_decref(root);
}

static void check_table(const json_t *modules, const json_t *one, lam_error *err)
{
    const json_t *table = json_object_get(one, "table"), *values = json_object_get(one, "values");
    struct lam_pattern_table *t;
    assert_ok(lam_pattern_table_new(table, "rank_pattern", &t, err), *err);
    for (size_t i = 0; i < json_array_size(modules); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(modules, i), "name"));
        const json_t *got, *wanted = json_object_get(values, name);
        assert_ok(lam_pattern_table_find(t, name, &got, err), *err);
        if (!got != !wanted || (got && !json_equal(got, wanted)))
            fail_msg("%s: %s gets %s, wanted %s", json_dumps(table, JSON_COMPACT), name, got ? json_dumps(got, JSON_ENCODE_ANY) : "none",
                     wanted ? json_dumps(wanted, JSON_ENCODE_ANY) : "none");
    }
    lam_pattern_table_free(t);
}

static void patterns_are_matched_as_in_peft(void **state)
{
    (void)state;
    lam_error err = {0};
    json_t *root = load("tests/data/adapters/matching.json"), *tables = json_object_get(root, "tables");
    assert_true(json_array_size(tables) > 15);
    for (size_t i = 0; i < json_array_size(tables); i++) check_table(json_object_get(root, "modules"), json_array_get(tables, i), &err);
    json_decref(root);
}

static void expressions_with_another_meaning_are_refused(void **state)
{
    (void)state;
    json_t *root = load("tests/data/adapters/matching.json"), *refused = json_object_get(root, "refused");
    assert_true(json_array_size(refused) > 20);
    for (size_t i = 0; i < json_array_size(refused); i++) {
        const char *text = json_string_value(json_array_get(refused, i));
        json_t *table = json_pack("{s:i}", text, 1);
        struct lam_module_rules rules = {.target_modules = json_array_get(refused, i)};
        struct lam_pattern_table *t;
        struct lam_module_match *m;
        lam_error err = {0};
        if (lam_pattern_table_new(table, "rank_pattern", &t, &err) != LAM_E_UNSUPPORTED) fail_msg("%s: %s", text, err.message);
        if (lam_module_match_new(&rules, &m, &err) != LAM_E_UNSUPPORTED) fail_msg("%s: %s", text, err.message);
        json_decref(table);
    }
    json_decref(root);
}

static void unused_entries_are_known(void **state)
{
    (void)state;
    lam_error err = {0};
    struct lam_peft_config c;
    static const char text[] = "{\"peft_type\":\"LORA\",\"target_modules\":[\"a_proj\",\"q_proj\",\"b_proj\"],"
                               "\"rank_pattern\":{\"q_proj\":4,\"^q_proj\":5},\"alpha_pattern\":{\"z\":1}}";
    assert_ok(lam_peft_config_parse(text, sizeof text - 1, "c", &c, &err), err);
    bool targeted;
    uint32_t rank;
    double alpha;
    assert_ok(lam_module_match_find(c.modules, "model.layers.0.self_attn.q_proj", LAM_MODULE_LINEAR, &targeted, &err), err);
    assert_ok(lam_peft_config_module(&c, "model.layers.0.self_attn.q_proj", &rank, &alpha, &err), err);
    assert_true(targeted);
    assert_int_equal(rank, 4);
    assert_true(alpha == 8.0);
    assert_string_equal(lam_module_match_unused(c.modules, 0), "a_proj");
    assert_string_equal(lam_module_match_unused(c.modules, 1), "b_proj");
    assert_null(lam_module_match_unused(c.modules, 2));
    assert_string_equal(lam_pattern_table_unused(c.rank_pattern, 0), "^q_proj");
    assert_null(lam_pattern_table_unused(c.rank_pattern, 1));
    assert_string_equal(lam_pattern_table_unused(c.alpha_pattern, 0), "z");
    lam_peft_config_release(&c);
}

/* One member beside peft_type, and what becomes of the configuration. */
static const struct {
    const char *member;
    lam_code code;
    const char *named;
} members[] = {
    {"\"r\": 16", LAM_OK, NULL}, {"\"r\": 0", LAM_E_RANK, "r is 0"}, {"\"r\": -3", LAM_E_RANK, "-3"}, {"\"r\": 1.5", LAM_E_FORMAT, "r is"},
    {"\"r\": true", LAM_E_FORMAT, "r is"}, {"\"lora_alpha\": 12.5", LAM_OK, NULL}, {"\"lora_alpha\": \"x\"", LAM_E_FORMAT, "lora_alpha"},
    {"\"use_rslora\": true", LAM_OK, NULL}, {"\"use_rslora\": null", LAM_OK, NULL}, {"\"use_rslora\": \"yes\"", LAM_E_FORMAT, "use_rslora"},
    {"\"bias\": \"all\"", LAM_OK, NULL}, {"\"bias\": \"some\"", LAM_E_METHOD, "some"}, {"\"bias\": null", LAM_E_FORMAT, "bias"},
    {"\"lora_dropout\": 0.3", LAM_OK, NULL}, {"\"fan_in_fan_out\": true", LAM_OK, NULL},
    {"\"init_lora_weights\": false", LAM_OK, NULL}, {"\"init_lora_weights\": \"gaussian\"", LAM_OK, NULL},
    {"\"init_lora_weights\": \"Gaussian\"", LAM_OK, NULL}, {"\"init_lora_weights\": \"orthogonal\"", LAM_OK, NULL},
    {"\"init_lora_weights\": \"eva\"", LAM_OK, NULL}, {"\"init_lora_weights\": \"mica\"", LAM_OK, NULL},
    {"\"init_lora_weights\": \"pissa\"", LAM_E_METHOD, "pissa"}, {"\"init_lora_weights\": \"pissa_niter_4\"", LAM_E_METHOD, "pissa_niter_4"},
    {"\"init_lora_weights\": \"olora\"", LAM_E_METHOD, "olora"}, {"\"init_lora_weights\": \"loftq\"", LAM_E_METHOD, "loftq"},
    {"\"init_lora_weights\": \"corda\"", LAM_E_METHOD, "corda"}, {"\"init_lora_weights\": \"lora_ga\"", LAM_E_METHOD, "lora_ga"},
    {"\"init_lora_weights\": 3", LAM_E_FORMAT, "init_lora_weights"},
    {"\"task_type\": null", LAM_OK, NULL}, {"\"task_type\": \"CAUSAL_LM\"", LAM_OK, NULL},
    {"\"task_type\": \"SEQ_CLS\"", LAM_E_METHOD, "SEQ_CLS"}, {"\"task_type\": \"FEATURE_EXTRACTION\"", LAM_E_METHOD, "FEATURE_EXTRACTION"},
    {"\"modules_to_save\": []", LAM_OK, NULL}, {"\"modules_to_save\": [\"lm_head\"]", LAM_E_METHOD, "modules_to_save"},
    {"\"use_dora\": true", LAM_E_METHOD, "use_dora"}, {"\"lora_bias\": true", LAM_E_METHOD, "lora_bias"},
    {"\"target_parameters\": [\"x\"]", LAM_E_METHOD, "target_parameters"},
    {"\"trainable_token_indices\": {\"embed_tokens\": [1]}", LAM_E_METHOD, "trainable_token_indices"},
    {"\"layer_replication\": [[0, 2]]", LAM_E_METHOD, "layer_replication"}, {"\"megatron_config\": {\"a\": 1}", LAM_E_METHOD, "megatron_config"},
    {"\"megatron_core\": \"megatron.core\"", LAM_OK, NULL}, {"\"alora_invocation_tokens\": [1, 2]", LAM_E_METHOD, "alora_invocation_tokens"},
    {"\"alora_invocation_tokens\": []", LAM_E_METHOD, "alora_invocation_tokens"}, {"\"alora_invocation_tokens\": null", LAM_OK, NULL},
    {"\"use_qalora\": true", LAM_E_METHOD, "use_qalora"}, {"\"qalora_group_size\": 16", LAM_OK, NULL},
    {"\"arrow_config\": {\"top_k\": 3}", LAM_E_METHOD, "arrow_config"}, {"\"kasa_config\": {\"beta\": 1}", LAM_E_METHOD, "kasa_config"},
    {"\"use_bdlora\": {\"nblocks\": 2}", LAM_E_METHOD, "use_bdlora"}, {"\"velora_config\": {\"scale\": 1}", LAM_E_METHOD, "velora_config"},
    {"\"monteclora_config\": {\"a\": 1}", LAM_E_METHOD, "monteclora_config"}, {"\"ensure_weight_tying\": true", LAM_E_METHOD, "ensure_weight_tying"},
    {"\"loftq_config\": {\"loftq_bits\": 4}", LAM_OK, NULL}, {"\"eva_config\": {\"rho\": 2}", LAM_OK, NULL},
    {"\"runtime_config\": {\"ephemeral_gpu_offload\": true}", LAM_OK, NULL}, {"\"enable_lora\": [true, false]", LAM_E_METHOD, "enable_lora"},
    {"\"merge_weights\": true", LAM_OK, NULL}, {"\"auto_mapping\": {\"base_model_class\": \"X\"}", LAM_OK, NULL},
    {"\"alpha\": 16", LAM_E_UNKNOWN_FIELD, "alpha"}, {"\"invocation_string\": \"<x>\"", LAM_E_UNKNOWN_FIELD, "invocation_string"},
    {"\"use_zora\": true", LAM_E_UNKNOWN_FIELD, "use_zora"}, {"\"use_zora\": false", LAM_OK, NULL}, {"\"zora_config\": {}", LAM_OK, NULL},
    {"\"zora_config\": null", LAM_OK, NULL}, {"\"zora\": 0", LAM_E_UNKNOWN_FIELD, "zora"},
    {"\"target_modules\": 3", LAM_E_FORMAT, "target_modules"}, {"\"target_modules\": [1]", LAM_E_FORMAT, "target_modules"},
    {"\"target_modules\": \".*q\", \"layers_to_transform\": [1]", LAM_E_FORMAT, "layers_to_transform"},
    {"\"target_modules\": \"all-linear\", \"layers_pattern\": \"h\"", LAM_E_FORMAT, "layers_pattern"},
    {"\"target_modules\": [\"q\"], \"layers_pattern\": \"h\"", LAM_E_FORMAT, "layers_pattern"},
    {"\"target_modules\": [\"q\"], \"layers_to_transform\": \"1\"", LAM_E_FORMAT, "layers_to_transform"},
    {"\"target_modules\": [\"q\"], \"layers_to_transform\": [0.5]", LAM_E_FORMAT, "layers_to_transform"},
    {"\"rank_pattern\": [1]", LAM_E_FORMAT, "rank_pattern"}, {"\"r\": 4, \"r\": 4", LAM_E_DUPLICATE, "r"},
    {"\"rank_pattern\": null, \"exclude_modules\": null", LAM_OK, NULL},
};

static void each_field_is_honoured_or_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", %s}", members[i].member);
        struct lam_peft_config c;
        lam_error err = {0};
        lam_code code = lam_peft_config_parse(text, strlen(text), "c", &c, &err);
        if (code != members[i].code || (members[i].named && !strstr(err.message, members[i].named)))
            fail_msg("%s: %s %s", members[i].member, lam_code_name(code), err.message);
        if (code == LAM_OK) lam_peft_config_release(&c);
    }
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        lam_code code;
    } cases[] = {{"", LAM_E_FORMAT}, {"{", LAM_E_FORMAT}, {"[]", LAM_E_FORMAT}, {"3", LAM_E_FORMAT}, {"{}", LAM_E_METHOD},
                 {"{\"peft_type\": 3}", LAM_E_METHOD}, {"{\"peft_type\": \"lora\"}", LAM_E_METHOD},
                 {"{\"lora_parameters\": {\"rank\": 8}, \"lora_layers\": 2}", LAM_E_METHOD}, {"{\"peft_type\": \"LORA\"} x", LAM_E_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lam_peft_config c;
        lam_error err = {0};
        if (lam_peft_config_parse(cases[i].text, strlen(cases[i].text), "c", &c, &err) != cases[i].code)
            fail_msg("%s: %s", cases[i].text, err.message);
    }
    char deep[512];
    size_t n = (size_t)snprintf(deep, sizeof deep, "{\"peft_type\": \"LORA\", \"x\": ");
    memset(deep + n, '[', 100);
    struct lam_peft_config c;
    assert_int_equal(lam_peft_config_parse(deep, n + 100, "c", &c, NULL), LAM_E_LIMIT);
}

/* An expression whose backtracking is exponential ends with an error instead of hours later. */
static void work_is_bounded(void **state)
{
    (void)state;
    json_t *target = json_string("(([a-z._0-9]+)+)+[^a-z._0-9]");
    struct lam_module_rules rules = {.target_modules = target};
    struct lam_module_match *m;
    lam_error err = {0};
    bool targeted;
    assert_ok(lam_module_match_new(&rules, &m, &err), err);
    assert_int_equal(lam_module_match_find(m, "model.layers.0.self_attn.q_proj.and.some.more.of.it", LAM_MODULE_LINEAR, &targeted, &err),
                     LAM_E_LIMIT);
    lam_module_match_free(m);
    json_decref(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_are_accepted_or_refused_by_name), cmocka_unit_test(modules_are_targeted_as_in_peft),
        cmocka_unit_test(patterns_are_matched_as_in_peft), cmocka_unit_test(expressions_with_another_meaning_are_refused),
        cmocka_unit_test(unused_entries_are_known), cmocka_unit_test(each_field_is_honoured_or_refused_by_name),
        cmocka_unit_test(other_texts_are_refused), cmocka_unit_test(work_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
