#include "import/adapter_peft_config.h"

#include <math.h>
#include <string.h>

#define MAX_BYTES ((size_t)4 << 20)
#define MAX_NESTING 64
#define DEFAULT_RANK 8 /* LoraConfig's defaults of r and lora_alpha */
#define DEFAULT_ALPHA 8

struct reader {
    struct lam_peft_config *out;
    struct lam_module_rules rules;
    const json_t *rank_pattern, *alpha_pattern;
    const char *what;
};

static lam_code wrong_type(const struct reader *r, const char *field, const char *wanted, lam_error *err)
{
    return LAM_RAISE(err, LAM_E_FORMAT, "%s: %s is not %s", r->what, field, wanted);
}

typedef lam_code (*field_fn)(struct reader *r, const char *field, const json_t *value, lam_error *err);

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
    if (!is_set(value)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD, "%s: %s is set; Lamina does not support that yet", r->what, field);
}

/* Even an empty list makes PEFT take the activated variant. */
static lam_code refuse_unless_null(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    if (json_is_null(value)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD, "%s: %s is set; Lamina does not support that yet", r->what, field);
}

static lam_code read_flag(struct reader *r, const char *field, const json_t *value, bool *out, lam_error *err)
{
    if (!json_is_boolean(value) && !json_is_null(value)) return wrong_type(r, field, "true or false", err);
    *out = json_is_true(value);
    return LAM_OK;
}

static lam_code read_rslora(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    return read_flag(r, field, value, &r->out->rank_stabilised, err);
}

static lam_code read_fan_in_fan_out(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    return read_flag(r, field, value, &r->out->fan_in_fan_out, err);
}

static lam_code to_rank(const json_t *value, const char *field, uint32_t *out, lam_error *err)
{
    if (!json_is_integer(value)) return LAM_RAISE(err, LAM_E_FORMAT, "%s is not a whole number", field);
    json_int_t n = json_integer_value(value);
    if (n < 1 || n > INT32_MAX) return LAM_RAISE(err, LAM_E_RANK, "%s is %lld; a rank is at least 1", field, (long long)n);
    *out = (uint32_t)n;
    return LAM_OK;
}

static lam_code to_alpha(const json_t *value, const char *field, double *out, lam_error *err)
{
    if (!json_is_number(value)) return LAM_RAISE(err, LAM_E_FORMAT, "%s is not a number", field);
    *out = json_number_value(value);
    return isfinite(*out) ? LAM_OK : LAM_RAISE(err, LAM_E_NON_FINITE, "%s is not finite", field);
}

static lam_code read_rank(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    return to_rank(value, field, &r->out->rank, err);
}

static lam_code read_alpha(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    return to_alpha(value, field, &r->out->alpha, err);
}

static lam_code read_bias(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    static const char *const names[] = {"none", "all", "lora_only"};
    const char *text = json_string_value(value);
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            r->out->bias = (enum lam_peft_bias)i;
            return LAM_OK;
        }
    return text ? LAM_RAISE(err, LAM_E_METHOD, "%s: %s is \"%s\"; none, all and lora_only are known", r->what, field, text)
                : wrong_type(r, field, "a string", err);
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
    if (json_is_boolean(value) || json_is_null(value)) return LAM_OK;
    const char *text = json_string_value(value);
    if (!text) return wrong_type(r, field, "true, false or a string", err);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (equals_ignoring_case(text, harmless[i])) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD,
                     "%s: %s is \"%s\", which changes the base; convert the adapter (path_initial_model_for_weight_conversion)",
                     r->what, field, text);
}

static lam_code read_task(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    const char *text = json_string_value(value);
    if (json_is_null(value) || (text && strcmp(text, "CAUSAL_LM") == 0)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_METHOD, "%s: %s is %s; only CAUSAL_LM can be run", r->what, field, text ? text : "not a string");
}

static lam_code read_text(struct reader *r, const char *field, const json_t *value, const char **out, lam_error *err)
{
    if (!json_is_string(value) && !json_is_null(value)) return wrong_type(r, field, "a string", err);
    *out = json_string_value(value);
    return LAM_OK;
}

static lam_code read_base(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    return read_text(r, field, value, &r->out->base, err);
}

static lam_code read_version(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    return read_text(r, field, value, &r->out->version, err);
}

static lam_code read_rule(struct reader *r, const char *field, const json_t *value, lam_error *err)
{
    (void)err;
    if (strcmp(field, "target_modules") == 0) r->rules.target_modules = value;
    else if (strcmp(field, "exclude_modules") == 0) r->rules.exclude_modules = value;
    else if (strcmp(field, "layers_to_transform") == 0) r->rules.layers_to_transform = value;
    else if (strcmp(field, "layers_pattern") == 0) r->rules.layers_pattern = value;
    else if (strcmp(field, "rank_pattern") == 0) r->rank_pattern = value;
    else r->alpha_pattern = value;
    return LAM_OK;
}

static const struct field {
    const char *name;
    field_fn read;
} fields[] = {
    {"peft_type", no_effect /* looked at before */}, {"task_type", read_task},
    {"auto_mapping", no_effect}, {"peft_version", read_version}, {"base_model_name_or_path", read_base},
    {"revision", no_effect}, {"inference_mode", no_effect},
    {"r", read_rank}, {"lora_alpha", read_alpha}, {"use_rslora", read_rslora}, {"bias", read_bias},
    {"fan_in_fan_out", read_fan_in_fan_out}, {"init_lora_weights", read_init}, {"lora_dropout", no_effect},
    {"target_modules", read_rule}, {"exclude_modules", read_rule}, {"layers_to_transform", read_rule},
    {"layers_pattern", read_rule}, {"rank_pattern", read_rule}, {"alpha_pattern", read_rule},
    {"modules_to_save", refuse}, {"trainable_token_indices", refuse}, {"target_parameters", refuse},
    {"layer_replication", refuse}, {"lora_bias", refuse}, {"ensure_weight_tying", refuse},
    {"use_dora", refuse}, {"use_qalora", refuse}, {"use_bdlora", refuse}, {"velora_config", refuse},
    {"monteclora_config", refuse}, {"arrow_config", refuse}, {"kasa_config", refuse},
    {"alora_invocation_tokens", refuse_unless_null}, {"megatron_config", refuse},
    {"megatron_core", no_effect}, {"qalora_group_size", no_effect}, {"runtime_config", no_effect},
    {"loftq_config", no_effect}, {"eva_config", no_effect}, {"corda_config", no_effect}, {"lora_ga_config", no_effect},
    /* of PEFT before 0.3 */
    {"merge_weights", no_effect}, {"enable_lora", refuse},
};

static lam_code check_method(const struct reader *r, const json_t *config, lam_error *err)
{
    const json_t *type = json_object_get(config, "peft_type");
    if (json_is_string(type) && strcmp(json_string_value(type), "LORA") == 0) return LAM_OK;
    if (json_is_string(type))
        return LAM_RAISE(err, LAM_E_METHOD, "%s: adapter method %s; Lamina supports LORA", r->what, json_string_value(type));
    if (!type && (json_object_get(config, "lora_parameters") || json_object_get(config, "lora_layers")))
        return LAM_RAISE(err, LAM_E_METHOD, "%s: an adapter in MLX's layout; Lamina reads PEFT's and llama.cpp's", r->what);
    return LAM_RAISE(err, LAM_E_METHOD, "%s: peft_type is missing", r->what);
}

static lam_code read_field(struct reader *r, const char *name, const json_t *value, lam_error *err)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0) return fields[i].read(r, name, value, err);
    if (!is_set(value)) return LAM_OK;
    return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "%s: unknown field %s, which may change results", r->what, name);
}

static lam_code read_config(struct reader *r, lam_error *err)
{
    struct lam_peft_config *c = r->out;
    if (!json_is_object(c->json)) return LAM_RAISE(err, LAM_E_FORMAT, "%s: not a JSON object", r->what);
    LAM_TRY(check_method(r, c->json, err));
    const char *name;
    json_t *value;
    json_object_foreach(c->json, name, value) LAM_TRY(read_field(r, name, value, err));
    LAM_TRY(lam_module_match_new(&r->rules, &c->modules, err));
    LAM_TRY(lam_pattern_table_new(r->rank_pattern, "rank_pattern", &c->rank_pattern, err));
    return lam_pattern_table_new(r->alpha_pattern, "alpha_pattern", &c->alpha_pattern, err);
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

lam_code lam_peft_config_parse(const char *text, size_t len, const char *what, struct lam_peft_config *out, lam_error *err)
{
    *out = (struct lam_peft_config){.rank = DEFAULT_RANK, .alpha = DEFAULT_ALPHA};
    if (len > MAX_BYTES) return LAM_RAISE(err, LAM_E_LIMIT, "%s: %zu bytes; %zu are possible", what, len, MAX_BYTES);
    if (is_nested_too_deep(text, len)) return LAM_RAISE(err, LAM_E_LIMIT, "%s: nested deeper than %d", what, MAX_NESTING);
    struct reader r = {.out = out, .what = what};
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

lam_code lam_peft_config_module(const struct lam_peft_config *c, const char *module, uint32_t *rank, double *alpha, lam_error *err)
{
    const json_t *value;
    *rank = c->rank;
    *alpha = c->alpha;
    LAM_TRY(lam_pattern_table_find(c->rank_pattern, module, &value, err));
    if (value) LAM_TRY(to_rank(value, "rank_pattern's value", rank, err));
    LAM_TRY(lam_pattern_table_find(c->alpha_pattern, module, &value, err));
    if (value) LAM_TRY(to_alpha(value, "alpha_pattern's value", alpha, err));
    return LAM_OK;
}
