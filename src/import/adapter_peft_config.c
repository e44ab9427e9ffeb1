#include "import/adapter_peft_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_BYTES ((size_t)4 << 20)
#define MAX_NESTING 64
#define DEFAULT_RANK 8 /* LoraConfig's defaults of r and lora_alpha */
#define DEFAULT_ALPHA 8

struct reader {
    struct lam_peft_config *out;
    struct lam_module_rules rules;
    const json_t *rank_pattern, *alpha_pattern;
    const char *what, *model_type;
    struct lam_faults *faults;
};

/* Each says in err what is wrong with the field's value; which field it is stands before that. */
typedef lam_code (*field_fn)(struct reader *r, const char *field, const json_t *value, lam_error *err);

static lam_code wrong_type(const char *wanted, lam_error *err) { return LAM_RAISE(err, LAM_E_FORMAT, "is not %s", wanted); }

/* Anything but null, false, 0 and what is empty: what Python takes for true. */
static bool is_set(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: case JSON_FALSE: return false;
    case JSON_OBJECT: return json_object_size(value) > 0;
    case JSON_ARRAY: return json_array_size(value) > 0;
    case JSON_STRING: return json_string_length(value) > 0;
    default: return true;
    }
}

static lam_code no_effect(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    (void)r, (void)field, (void)value, (void)err;
    return LAM_OK;
}

static lam_code refuse(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    (void)r, (void)field;
    return is_set(value) ? LAM_RAISE(err, LAM_E_METHOD, "is set; Lamina does not support that") : LAM_OK;
}

static lam_code read_flag(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    const struct {
        const char *name;
        bool *out;
    } flags[] = {{"use_rslora", &r->out->rank_stabilised}, {"use_dora", &r->out->dora}, {"lora_bias", &r->out->b_bias},
                 {"ensure_weight_tying", &r->out->ensure_tying}, {"fan_in_fan_out", &r->out->fan_in_fan_out}};
    if (!json_is_boolean(value) && !json_is_null(value)) return wrong_type("true or false", err);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(flags[i].name, field) == 0) *flags[i].out = json_is_true(value);
    return LAM_OK;
}

static lam_code to_rank(const json_t *value, uint32_t *out, lam_error *err)
{
    if (!json_is_integer(value)) return wrong_type("a whole number", err);
    json_int_t n = json_integer_value(value);
    if (n < 1 || n > INT32_MAX) return LAM_RAISE(err, LAM_E_RANK, "is %lld; a rank is at least 1", (long long)n);
    *out = (uint32_t)n;
    return LAM_OK;
}

static lam_code to_alpha(const json_t *value, double *out, lam_error *err)
{
    if (!json_is_number(value)) return wrong_type("a number", err);
    *out = json_number_value(value);
    return isfinite(*out) ? LAM_OK : LAM_RAISE(err, LAM_E_NON_FINITE, "is not finite");
}

static lam_code read_rank(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    (void)field;
    return to_rank(value, &r->out->rank, err);
}

static lam_code read_alpha(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    (void)field;
    return to_alpha(value, &r->out->alpha, err);
}

static lam_code read_bias(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    static const char *const names[] = {"none", "all", "lora_only"};
    const char *text = json_string_value(value);
    (void)field;
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            r->out->bias = (enum lam_peft_bias)i;
            return LAM_OK;
        }
    return text ? LAM_RAISE(err, LAM_E_METHOD, "is \"%.100s\"; none, all and lora_only are known", text) : wrong_type("a string", err);
}

static bool equals_ignoring_case(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a >= 'A' && *a <= 'Z' ? *a - 'A' + 'a' : *a) != *b) return false;
    return *a == *b;
}

static lam_code read_init(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    static const char *const harmless[] = {"gaussian", "orthogonal", "eva", "mica"};
    (void)r, (void)field;
    if (json_is_boolean(value) || json_is_null(value)) return LAM_OK;
    const char *text = json_string_value(value);
    if (!text) return wrong_type("true, false or a string", err);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (equals_ignoring_case(text, harmless[i])) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD, "is \"%.100s\", which changes the base; convert the adapter (path_initial_model_for_weight_conversion)",
                     text);
}

static lam_code read_task(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    const char *text = json_string_value(value);
    (void)r, (void)field;
    if (json_is_null(value) || (text && strcmp(text, "CAUSAL_LM") == 0)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD, "is %.100s; only CAUSAL_LM can be run", text ? text : "not a string");
}

static lam_code read_text(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    if (!json_is_string(value) && !json_is_null(value)) return wrong_type("a string", err);
    *(strcmp(field, "peft_version") == 0 ? &r->out->version : &r->out->base) = json_string_value(value);
    return LAM_OK;
}

static bool is_token_list(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t token = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || token < 0 || token > INT32_MAX) return false;
    }
    return json_is_array(list);
}

/* An empty list is one thing to PEFT 0.18 and another to 0.21. */
static lam_code read_invocation(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    (void)field;
    if (json_is_null(value)) return LAM_OK;
    if (!is_token_list(value)) return wrong_type("a list of token numbers", err);
    if (json_array_size(value) == 0) return LAM_RAISE(err, LAM_E_METHOD, "is an empty list, which PEFT's versions read differently");
    r->out->invocation = value;
    return LAM_OK;
}

static lam_code read_token_indices(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    const char *name;
    json_t *list;
    (void)field;
    if (!is_set(value)) return LAM_OK;
    if (!json_is_object(value) && !is_token_list(value)) return wrong_type("a list of token numbers or an object of them", err);
    json_object_foreach((json_t *)value, name, list)
        if (!is_token_list(list)) return LAM_RAISE(err, LAM_E_FORMAT, "%.100s is not a list of token numbers", name);
    r->out->token_indices = value;
    return LAM_OK;
}

static lam_code read_rule(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    const struct {
        const char *name;
        const json_t **out;
    } rules[] = {{"target_modules", &r->rules.target_modules}, {"exclude_modules", &r->rules.exclude_modules},
                 {"layers_to_transform", &r->rules.layers_to_transform}, {"layers_pattern", &r->rules.layers_pattern},
                 {"modules_to_save", &r->rules.modules_to_save}, {"feedforward_modules", &r->rules.feedforward_modules},
                 {"rank_pattern", &r->rank_pattern}, {"alpha_pattern", &r->alpha_pattern}};
    (void)err;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, field) == 0) *rules[i].out = value;
    return LAM_OK;
}

struct field {
    const char *name;
    field_fn read;
};

static const struct field shared_fields[] = {
    {"peft_type", no_effect /* looked at before */}, {"task_type", read_task}, {"auto_mapping", no_effect}, {"peft_version", read_text},
    {"base_model_name_or_path", read_text}, {"revision", no_effect}, {"inference_mode", no_effect}, {"fan_in_fan_out", read_flag},
    {"target_modules", read_rule}, {"exclude_modules", read_rule}, {"modules_to_save", read_rule},
    {NULL, NULL},
}, lora_fields[] = {
    {"r", read_rank}, {"lora_alpha", read_alpha}, {"use_rslora", read_flag}, {"bias", read_bias},
    {"init_lora_weights", read_init}, {"lora_dropout", no_effect}, {"use_dora", read_flag}, {"lora_bias", read_flag},
    {"layers_to_transform", read_rule}, {"layers_pattern", read_rule}, {"rank_pattern", read_rule}, {"alpha_pattern", read_rule},
    {"ensure_weight_tying", read_flag}, {"alora_invocation_tokens", read_invocation},
    {"trainable_token_indices", read_token_indices},
    {"target_parameters", refuse}, {"layer_replication", refuse}, {"use_qalora", refuse}, {"use_bdlora", refuse},
    {"velora_config", refuse}, {"monteclora_config", refuse}, {"arrow_config", refuse}, {"kasa_config", refuse},
    {"megatron_config", refuse}, {"megatron_core", no_effect}, {"qalora_group_size", no_effect}, {"runtime_config", no_effect},
    {"loftq_config", no_effect}, {"eva_config", no_effect}, {"corda_config", no_effect}, {"lora_ga_config", no_effect},
    /* of PEFT before 0.3 */
    {"merge_weights", no_effect}, {"enable_lora", refuse},
    {NULL, NULL},
}, ia3_fields[] = {
    {"feedforward_modules", read_rule}, {"init_ia3_weights", no_effect},
    {NULL, NULL},
};

static field_fn find_field(const struct field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (strcmp(fields->name, name) == 0) return fields->read;
    return NULL;
}

static lam_code check_method(struct reader *r, const json_t *config, lam_error *err)
{
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    if (type && strcmp(type, "LORA") == 0) return LAM_OK;
    r->out->ia3 = type && strcmp(type, "IA3") == 0;
    if (r->out->ia3) return LAM_OK;
    if (type) return LAM_RAISE(err, LAM_E_METHOD, "adapter method %.100s; Lamina supports LORA and IA3", type);
    if (!json_object_get(config, "peft_type") && (json_object_get(config, "lora_parameters") || json_object_get(config, "lora_layers")))
        return LAM_RAISE(err, LAM_E_METHOD, "an adapter in MLX's layout; Lamina reads PEFT's and llama.cpp's");
    return LAM_RAISE(err, LAM_E_METHOD, "peft_type is missing");
}

/* A fault of one field, or with field NULL of the whole. */
static lam_code take(const struct reader *r, const char *field, const lam_error *fault, lam_error *err)
{
    char subject[256];
    snprintf(subject, sizeof subject, "%.100s%s%.150s", r->what, field ? ": " : "", field ? field : "");
    return lam_faults_take(r->faults, subject, fault, err);
}

static lam_code read_fields(struct reader *r, lam_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(r->out->json, name, value) {
        lam_error fault;
        field_fn read = find_field(shared_fields, name);
        if (!read) read = find_field(r->out->ia3 ? ia3_fields : lora_fields, name);
        lam_code code = read ? read(r, name, value, &fault) : LAM_OK;
        if (!read && is_set(value))
            code = LAM_RAISE(&fault, LAM_E_UNKNOWN_FIELD, "an unknown field, which may change results; if it does not, take it out of the file");
        if (code != LAM_OK) LAM_TRY(take(r, name, &fault, err));
    }
    return LAM_OK;
}

/* What PEFT refuses to load together, or applies to rows that Lamina's activated adapters leave to the base. */
static lam_code check_combinations(struct reader *r, lam_error *err)
{
    const struct lam_peft_config *c = r->out;
    const bool saves = r->rules.modules_to_save && is_set(r->rules.modules_to_save);
    const struct {
        bool met;
        const char *field, *other;
    } pairs[] = {{c->b_bias && c->dora, "lora_bias", "use_dora"}, {c->invocation && c->dora, "alora_invocation_tokens", "use_dora"},
                 {c->invocation && saves, "alora_invocation_tokens", "modules_to_save"},
                 {c->invocation && c->bias != LAM_PEFT_BIAS_NONE, "alora_invocation_tokens", "bias"},
                 {c->invocation && c->token_indices, "alora_invocation_tokens", "trainable_token_indices"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        lam_error fault;
        if (!pairs[i].met) continue;
        LAM_RAISE(&fault, LAM_E_METHOD, "is set together with %s; Lamina does not support that", pairs[i].other);
        LAM_TRY(take(r, pairs[i].field, &fault, err));
    }
    return LAM_OK;
}

/* TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING: of the architectures here llama alone scales k. */
static const char *const ia3_targets[] = {"q_proj", "v_proj", "down_proj", NULL};
static const char *const ia3_llama[] = {"k_proj", "v_proj", "down_proj", NULL};

static lam_code make_matchers(struct reader *r, lam_error *err)
{
    struct lam_peft_config *c = r->out;
    lam_error fault;
    if (c->ia3) r->rules.defaults = !r->model_type || strcmp(r->model_type, "llama") == 0 ? ia3_llama : ia3_targets;
    if (lam_module_match_new(&r->rules, &c->modules, &fault) != LAM_OK) LAM_TRY(take(r, NULL, &fault, err));
    if (lam_pattern_table_new(r->rank_pattern, "rank_pattern", &c->rank_pattern, &fault) != LAM_OK) LAM_TRY(take(r, NULL, &fault, err));
    if (lam_pattern_table_new(r->alpha_pattern, "alpha_pattern", &c->alpha_pattern, &fault) != LAM_OK) LAM_TRY(take(r, NULL, &fault, err));
    return LAM_OK;
}

static lam_code read_config(struct reader *r, lam_error *err)
{
    lam_error fault;
    if (!json_is_object(r->out->json)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: not a JSON object", r->what);
    if (check_method(r, r->out->json, &fault) != LAM_OK) {
        LAM_TRY(take(r, NULL, &fault, err));
    } else {
        LAM_TRY(read_fields(r, err));
        LAM_TRY(check_combinations(r, err));
        LAM_TRY(make_matchers(r, err));
    }
    return lam_faults_raise(r->faults, err);
}

/* Jansson's own bound on nesting is 2048; no configuration is nested so deep. */
static bool is_nested_too_deep(const char *text, size_t len)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string && text[i] == '\\') i++;
        else if (text[i] == '"') in_string = !in_string;
        else if (!in_string && (text[i] == '{' || text[i] == '[') && ++depth > MAX_NESTING) return true;
        else if (!in_string && (text[i] == '}' || text[i] == ']') && depth > 0) depth--;
    }
    return false;
}

lam_code lam_peft_config_parse(const char *text, size_t len, const char *what, const char *model_type, struct lam_peft_config *out,
                               struct lam_faults *faults, lam_error *err)
{
    *out = (struct lam_peft_config){.rank = DEFAULT_RANK, .alpha = DEFAULT_ALPHA};
    if (len > MAX_BYTES) return LAM_RAISE(err, LAM_E_LIMIT, "%s: %zu bytes; %zu are possible", what, len, MAX_BYTES);
    if (is_nested_too_deep(text, len)) return LAM_RAISE(err, LAM_E_LIMIT, "%s: nested deeper than %d", what, MAX_NESTING);
    struct reader r = {.out = out, .what = what, .model_type = model_type, .faults = faults};
    LAM_TRY(lam_json_parse(text, len, what, &out->json, err));
    lam_code code = read_config(&r, err);
    if (code != LAM_OK) lam_peft_config_release(out);
    return code;
}

void lam_peft_config_release(struct lam_peft_config *c)
{
    lam_module_match_free(c->modules);
    lam_pattern_table_free(c->rank_pattern);
    lam_pattern_table_free(c->alpha_pattern);
    json_decref(c->json);
    *c = (struct lam_peft_config){0};
}

static lam_code of_pattern(const char *name, lam_code code, const lam_error *fault, lam_error *err)
{
    return code == LAM_OK ? LAM_OK : LAM_RAISE(err, code, "%s's value for it %s", name, fault->message);
}

lam_code lam_peft_config_module(const struct lam_peft_config *c, const char *module, uint32_t *rank, double *alpha, lam_error *err)
{
    const json_t *value;
    lam_error fault;
    *rank = c->rank;
    *alpha = c->alpha;
    LAM_TRY(lam_pattern_table_find(c->rank_pattern, module, &value, err));
    if (value) LAM_TRY(of_pattern("rank_pattern", to_rank(value, rank, &fault), &fault, err));
    LAM_TRY(lam_pattern_table_find(c->alpha_pattern, module, &value, err));
    if (value) LAM_TRY(of_pattern("alpha_pattern", to_alpha(value, alpha, &fault), &fault, err));
    return LAM_OK;
}
