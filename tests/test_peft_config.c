/* adapter_config.json: what is taken, what is refused under which name, and PEFT's rules of matching.
 * Expected results: tests/data/adapters, by tools/make_adapter_cases.py from PEFT's example configurations and Python's re. */
#include "support.h"

#include "import/adapter_peft_config.h"
#include "lamina/lamina.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* lam_peft_config_parse for a base of llama, its list of faults dropped. */
static lam_code parse(const char *text, size_t len, struct lam_peft_config *out, lam_error *err)
{
    struct lam_faults faults = {0};
    lam_code code = lam_peft_config_parse(text, len, "adapter_config.json", "llama", out, &faults, err);
    assert_true((code == LAM_OK) == (faults.n == 0) || code == LAM_E_FORMAT || code == LAM_E_LIMIT || code == LAM_E_DUPLICATE);
    lam_faults_release(&faults);
    return code;
}

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
    size_t n_taken = 0, n_refused = 0;
    json_object_foreach(expected, file, named) {
        char path[256];
        snprintf(path, sizeof path, "tests/data/adapters/configs/%s", file);
        size_t size;
        char *text = (char *)test_read_file(path, &size);
        struct lam_peft_config c;
        lam_error err = {0};
        lam_code code = parse(text, size, &c, &err);
        free(text);
        if (json_is_null(named)) {
            if (code != LAM_OK) fail_msg("%s: %s", file, err.message);
            lam_peft_config_release(&c);
            n_taken++;
            continue;
        }
        if (code != LAM_E_METHOD || !strstr(err.message, json_string_value(named)))
            fail_msg("%s: %s %s, wanted %s", file, lam_code_name(code), err.message, json_string_value(named));
        n_refused++;
    }
    assert_int_equal(n_taken, 16);
    assert_int_equal(n_refused, 87);
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
    struct lam_module_rules rules = {.target_modules = json_object_get(r, "target_modules"), .exclude_modules = json_object_get(r, "exclude_modules"),
                                     .layers_to_transform = json_object_get(r, "layers_to_transform"),
                                     .layers_pattern = json_object_get(r, "layers_pattern"), .modules_to_save = json_object_get(r, "modules_to_save"),
                                     .feedforward_modules = json_object_get(r, "feedforward_modules")};
    struct lam_module_match *m;
    assert_ok(lam_module_match_new(&rules, &m, err), *err);
    for (size_t i = 0; i < json_array_size(modules); i++) {
        const json_t *module = json_array_get(modules, i);
        const char *name = json_string_value(json_object_get(module, "name"));
        bool targeted;
        assert_ok(lam_module_match_find(m, name, kind_of(json_string_value(json_object_get(module, "kind"))), &targeted, err), *err);
        if (targeted != has_text(json_object_get(one, "targeted"), name))
            fail_msg("%s: %s is %stargeted", json_dumps(r, JSON_COMPACT), name, targeted ? "" : "not ");
        if (lam_module_match_saved(m, name) != has_text(json_object_get(one, "saved"), name))
            fail_msg("%s: %s is or is not saved", json_dumps(r, JSON_COMPACT), name);
        bool feedforward;
        assert_ok(lam_module_match_feedforward(m, name, &feedforward, err), *err);
        if (json_object_get(one, "feedforward") && feedforward != has_text(json_object_get(one, "feedforward"), name))
            fail_msg("%s: %s is %sfeedforward", json_dumps(r, JSON_COMPACT), name, feedforward ? "" : "not ");
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
    assert_ok(parse(text, sizeof text - 1, &c, &err), err);
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
    {"\"r\": 16", LAM_OK, NULL}, {"\"r\": 0", LAM_E_RANK, "r: is 0"}, {"\"r\": -3", LAM_E_RANK, "-3"}, {"\"r\": 1.5", LAM_E_FORMAT, "r: is"},
    {"\"r\": true", LAM_E_FORMAT, "r: is"}, {"\"lora_alpha\": 12.5", LAM_OK, NULL}, {"\"lora_alpha\": \"x\"", LAM_E_FORMAT, "lora_alpha"},
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
    {"\"modules_to_save\": []", LAM_OK, NULL}, {"\"modules_to_save\": [\"lm_head\"]", LAM_OK, NULL},
    {"\"modules_to_save\": \"lm_head\"", LAM_E_FORMAT, "modules_to_save"}, {"\"modules_to_save\": [\"lm_head|x\"]", LAM_E_UNSUPPORTED, "lm_head|x"},
    {"\"modules_to_save\": [\"\"]", LAM_E_UNSUPPORTED, "modules_to_save[0]"}, {"\"modules_to_save\": [1]", LAM_E_FORMAT, "modules_to_save[0]"},
    {"\"use_dora\": true", LAM_OK, NULL}, {"\"lora_bias\": true", LAM_OK, NULL}, {"\"use_dora\": 1", LAM_E_FORMAT, "use_dora"},
    {"\"use_dora\": true, \"lora_bias\": true", LAM_E_METHOD, "lora_bias: is set together with use_dora"},
    {"\"target_parameters\": [\"x\"]", LAM_E_METHOD, "target_parameters"},
    {"\"trainable_token_indices\": {\"embed_tokens\": [1]}", LAM_OK, NULL}, {"\"trainable_token_indices\": [1, 2]", LAM_OK, NULL},
    {"\"trainable_token_indices\": [-1]", LAM_E_FORMAT, "trainable_token_indices"}, {"\"trainable_token_indices\": {\"a\": 1}", LAM_E_FORMAT, "trainable_token_indices: a is"},
    {"\"layer_replication\": [[0, 2]]", LAM_E_METHOD, "layer_replication"}, {"\"megatron_config\": {\"a\": 1}", LAM_E_METHOD, "megatron_config"},
    {"\"megatron_core\": \"megatron.core\"", LAM_OK, NULL}, {"\"alora_invocation_tokens\": [1, 2]", LAM_OK, NULL}, {"\"alora_invocation_tokens\": \"x\"", LAM_E_FORMAT, "alora_invocation_tokens"},
    {"\"alora_invocation_tokens\": [1.5]", LAM_E_FORMAT, "alora_invocation_tokens"},
    {"\"alora_invocation_tokens\": [1], \"use_dora\": true", LAM_E_METHOD, "alora_invocation_tokens: is set together with use_dora"},
    {"\"alora_invocation_tokens\": [1], \"modules_to_save\": [\"lm_head\"]", LAM_E_METHOD, "together with modules_to_save"},
    {"\"alora_invocation_tokens\": [1], \"bias\": \"all\"", LAM_E_METHOD, "together with bias"},
    {"\"alora_invocation_tokens\": []", LAM_E_METHOD, "alora_invocation_tokens"}, {"\"alora_invocation_tokens\": null", LAM_OK, NULL},
    {"\"use_qalora\": true", LAM_E_METHOD, "use_qalora"}, {"\"qalora_group_size\": 16", LAM_OK, NULL},
    {"\"arrow_config\": {\"top_k\": 3}", LAM_E_METHOD, "arrow_config"}, {"\"kasa_config\": {\"beta\": 1}", LAM_E_METHOD, "kasa_config"},
    {"\"use_bdlora\": {\"nblocks\": 2}", LAM_E_METHOD, "use_bdlora"}, {"\"velora_config\": {\"scale\": 1}", LAM_E_METHOD, "velora_config"},
    {"\"monteclora_config\": {\"a\": 1}", LAM_E_METHOD, "monteclora_config"}, {"\"ensure_weight_tying\": true", LAM_OK, NULL},
    {"\"feedforward_modules\": [\"down_proj\"]", LAM_E_UNKNOWN_FIELD, "feedforward_modules"},
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
        lam_code code = parse(text, strlen(text), &c, &err);
        if (code != members[i].code || (members[i].named && !strstr(err.message, members[i].named)))
            fail_msg("%s: %s %s", members[i].member, lam_code_name(code), err.message);
        if (code == LAM_OK) lam_peft_config_release(&c);
    }
}

static const struct {
    const char *member;
    lam_code code;
    const char *named;
} ia3_members[] = {
    {"\"feedforward_modules\": [\"down_proj\"]", LAM_OK, NULL}, {"\"feedforward_modules\": \".*down_proj\"", LAM_OK, NULL},
    {"\"feedforward_modules\": 1", LAM_E_FORMAT, "feedforward_modules"}, {"\"init_ia3_weights\": false", LAM_OK, NULL},
    {"\"fan_in_fan_out\": true", LAM_OK, NULL}, {"\"modules_to_save\": [\"lm_head\"]", LAM_OK, NULL}, {"\"r\": 8", LAM_E_UNKNOWN_FIELD, "r"},
    {"\"bias\": \"all\"", LAM_E_UNKNOWN_FIELD, "bias"}, {"\"task_type\": \"SEQ_CLS\"", LAM_E_METHOD, "SEQ_CLS"},
    {"\"target_modules\": [\"k_proj\"], \"exclude_modules\": \"x\"", LAM_OK, NULL},
};

static void each_field_of_ia3_is_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ia3_members / sizeof *ia3_members; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"peft_type\": \"IA3\", %s}", ia3_members[i].member);
        struct lam_peft_config c;
        lam_error err = {0};
        lam_code code = parse(text, strlen(text), &c, &err);
        if (code != ia3_members[i].code || (ia3_members[i].named && !strstr(err.message, ia3_members[i].named)))
            fail_msg("%s: %s %s", ia3_members[i].member, lam_code_name(code), err.message);
        if (code != LAM_OK) continue;
        assert_true(c.ia3);
        lam_peft_config_release(&c);
    }
}

/* Every field that is wrong is told, in the file's order. */
static void all_fields_are_told_at_once(void **state)
{
    (void)state;
    static const char text[] = "{\"peft_type\": \"LORA\", \"use_qalora\": true, \"r\": 0, \"zora\": 1, \"init_lora_weights\": \"pissa\", "
                               "\"target_modules\": 3}";
    static const struct {
        lam_code code;
        const char *subject;
    } wanted[] = {{LAM_E_METHOD, "c: use_qalora"}, {LAM_E_RANK, "c: r"}, {LAM_E_UNKNOWN_FIELD, "c: zora"},
                  {LAM_E_METHOD, "c: init_lora_weights"}, {LAM_E_FORMAT, "c"}};
    struct lam_faults faults = {0};
    struct lam_peft_config c;
    lam_error err;
    assert_int_equal(lam_peft_config_parse(text, sizeof text - 1, "c", NULL, &c, &faults, &err), LAM_E_METHOD);
    assert_non_null(strstr(err.message, "c: use_qalora: is set"));
    assert_int_equal(faults.n, sizeof wanted / sizeof *wanted);
    struct lam_fault *list = lam_faults_list(&faults);
    assert_non_null(list);
    for (size_t i = 0; i < faults.n; i++) {
        assert_int_equal(list[i].code, wanted[i].code);
        assert_string_equal(list[i].subject, wanted[i].subject);
    }
    lam_memory_free(list);
    lam_faults_release(&faults);
}

/* Which modules PEFT 0.21's IA³ takes where the configuration does not say (TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING). */
static void ia3_has_targets_of_its_own(void **state)
{
    (void)state;
    static const char *const types[] = {"llama", "qwen2", "qwen3", "gemma3_text"};
    static const char text[] = "{\"peft_type\": \"IA3\"}";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct lam_faults faults = {0};
        struct lam_peft_config c;
        lam_error err = {0};
        bool q, k, v, down, ff, up;
        assert_ok(lam_peft_config_parse(text, sizeof text - 1, "c", types[i], &c, &faults, &err), err);
        assert_ok(lam_module_match_find(c.modules, "model.layers.0.self_attn.q_proj", LAM_MODULE_LINEAR, &q, &err), err);
        assert_ok(lam_module_match_find(c.modules, "model.layers.0.self_attn.k_proj", LAM_MODULE_LINEAR, &k, &err), err);
        assert_ok(lam_module_match_find(c.modules, "model.layers.0.self_attn.v_proj", LAM_MODULE_LINEAR, &v, &err), err);
        assert_ok(lam_module_match_find(c.modules, "model.layers.0.mlp.down_proj", LAM_MODULE_LINEAR, &down, &err), err);
        assert_ok(lam_module_match_feedforward(c.modules, "model.layers.0.mlp.down_proj", &ff, &err), err);
        assert_ok(lam_module_match_feedforward(c.modules, "model.layers.0.mlp.up_proj", &up, &err), err);
        assert_true(v && down && ff && !up && q == (i != 0) && k == (i == 0));
        lam_peft_config_release(&c);
    }
}

/* The fields that PEFT wrote at different times, as single repositories have them, and what is refused of them. */
static const struct {
    const char *text;
    lam_code code;
    const char *named;
} saved_texts[] = {
    /* PEFT 0.5 */
    {"{\"auto_mapping\": null, \"base_model_name_or_path\": \"m\", \"bias\": \"none\", \"fan_in_fan_out\": false, \"inference_mode\": true, "
     "\"init_lora_weights\": true, \"layers_pattern\": null, \"layers_to_transform\": null, \"lora_alpha\": 16, \"lora_dropout\": 0.05, "
     "\"modules_to_save\": null, \"peft_type\": \"LORA\", \"r\": 16, \"revision\": null, \"target_modules\": [\"q_proj\", \"v_proj\"], "
     "\"task_type\": \"CAUSAL_LM\"}", LAM_OK, NULL},
    /* 0.10, without a task, with what get_peft_model notes of the class */
    {"{\"alpha_pattern\": {}, \"auto_mapping\": {\"base_model_class\": \"LlamaForCausalLM\", \"parent_library\": \"transformers\"}, "
     "\"layer_replication\": null, \"loftq_config\": {}, \"lora_alpha\": 32, \"megatron_config\": null, \"megatron_core\": \"megatron.core\", "
     "\"peft_type\": \"LORA\", \"r\": 16, \"rank_pattern\": {}, \"target_modules\": [\"q_proj\"], \"task_type\": null, \"use_dora\": false, "
     "\"use_rslora\": false}", LAM_OK, NULL},
    /* 0.18, of GPT-2: Conv1D's fan_in_fan_out */
    {"{\"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null, \"corda_config\": null, \"ensure_weight_tying\": false, "
     "\"eva_config\": null, \"exclude_modules\": null, \"fan_in_fan_out\": true, \"lora_bias\": false, \"peft_type\": \"LORA\", "
     "\"peft_version\": \"0.18.1\", \"qalora_group_size\": 16, \"target_modules\": [\"c_attn\"], \"target_parameters\": null, "
     "\"task_type\": \"CAUSAL_LM\", \"trainable_token_indices\": null, \"use_qalora\": false}", LAM_OK, NULL},
    /* a classifier, whose head PEFT adds to modules_to_save */
    {"{\"modules_to_save\": [\"classifier\", \"score\"], \"peft_type\": \"LORA\", \"target_modules\": [\"query\", \"value\"], "
     "\"task_type\": \"SEQ_CLS\"}", LAM_E_METHOD, "task_type: is SEQ_CLS"},
    /* a field of no version, beside the one that counts */
    {"{\"alpha\": 16, \"lora_alpha\": 16, \"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": [\"c_attn\"]}", LAM_E_UNKNOWN_FIELD, "alpha"},
};

static void texts_of_all_times_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof saved_texts / sizeof *saved_texts; i++) {
        struct lam_peft_config c;
        lam_error err = {0};
        lam_code code = parse(saved_texts[i].text, strlen(saved_texts[i].text), &c, &err);
        if (code != saved_texts[i].code || (saved_texts[i].named && !strstr(err.message, saved_texts[i].named)))
            fail_msg("%s: %s %s", saved_texts[i].text, lam_code_name(code), err.message);
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
        if (parse(cases[i].text, strlen(cases[i].text), &c, &err) != cases[i].code)
            fail_msg("%s: %s", cases[i].text, err.message);
    }
    char deep[512];
    size_t n = (size_t)snprintf(deep, sizeof deep, "{\"peft_type\": \"LORA\", \"x\": ");
    memset(deep + n, '[', 100);
    struct lam_peft_config c;
    assert_int_equal(parse(deep, n + 100, &c, NULL), LAM_E_LIMIT);
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
        cmocka_unit_test(each_field_of_ia3_is_too), cmocka_unit_test(all_fields_are_told_at_once), cmocka_unit_test(ia3_has_targets_of_its_own),
        cmocka_unit_test(texts_of_all_times_are_read), cmocka_unit_test(other_texts_are_refused), cmocka_unit_test(work_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
