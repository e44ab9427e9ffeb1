/* tokenizer_config.json and generation_config.json, and helpers for reading them. */
#include "text/vocab_hf.h"

#include "base/os.h"

#include <string.h>

lam_code lam_hf_known_fields(const json_t *object, const char *what, const char *const *names, lam_error *err)
{
    if (!json_is_object(object)) return LAM_RAISE(err, LAM_E_FORMAT, "tokenizer.json: %s is not an object", what);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t i = 0;
        while (names[i] && strcmp(names[i], key) != 0) i++;
        if (!names[i]) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "tokenizer.json: field \"%.64s\" of %s", key, what);
    }
    return LAM_OK;
}

lam_code lam_hf_bool(const json_t *object, const char *name, bool *out, lam_error *err)
{
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value)) return LAM_OK;
    if (!json_is_boolean(value)) return LAM_RAISE(err, LAM_E_FORMAT, "tokenizer: field \"%s\" is not a boolean", name);
    *out = json_is_true(value);
    return LAM_OK;
}

const char *lam_hf_type(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

const json_t *lam_hf_token_text(const json_t *token)
{
    if (json_is_object(token)) token = json_object_get(token, "content");
    return json_is_string(token) ? token : NULL;
}

static uint32_t find_text(const struct lam_vocab_out *out, const json_t *text)
{
    const char *bytes = json_string_value(text);
    size_t len = json_string_length(text);
    uint32_t id = lam_vocab_out_find(out, true, bytes, len);
    return id != LAM_TOKEN_NONE ? id : lam_vocab_out_find(out, false, bytes, len);
}

lam_code lam_hf_apply_config(const json_t *config, struct lam_vocab_out *out, bool override, lam_error *err)
{
    struct lam_vocab_ids *ids = lam_vocab_out_ids(out);
    const struct { const char *name; uint32_t *id; } tokens[] = {
        {"bos_token", &ids->bos}, {"eos_token", &ids->eos}, {"unk_token", &ids->unk}, {"pad_token", &ids->pad}};
    for (size_t i = 0; config && i < sizeof tokens / sizeof *tokens; i++) {
        const json_t *text = lam_hf_token_text(json_object_get(config, tokens[i].name));
        if (!text) continue;
        uint32_t id = find_text(out, text);
        if (id == LAM_TOKEN_NONE)
            return LAM_RAISE(err, LAM_E_TOKEN, "tokenizer_config.json: %s \"%.64s\" is not in the vocabulary", tokens[i].name, json_string_value(text));
        *tokens[i].id = id;
    }
    bool bos = false, eos = false;
    LAM_TRY(lam_hf_bool(config, "add_bos_token", &bos, err));
    LAM_TRY(lam_hf_bool(config, "add_eos_token", &eos, err));
    if (override) lam_vocab_out_flags(out, (bos ? LAM_VOCAB_ADD_BOS : 0u) | (eos ? LAM_VOCAB_ADD_EOS : 0u));
    return LAM_OK;
}

lam_code lam_hf_apply_generation(const json_t *generation, struct lam_vocab_out *out, lam_error *err)
{
    const json_t *eos = json_object_get(generation, "eos_token_id");
    size_t n = json_is_array(eos) ? json_array_size(eos) : json_is_integer(eos);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(eos) ? json_array_get(eos, i) : eos;
        json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= lam_vocab_out_count(out))
            return LAM_RAISE(err, LAM_E_TOKEN, "generation_config.json: item %zu of eos_token_id is not a token", i);
        LAM_TRY(lam_vocab_out_eog(out, (uint32_t)id, err));
    }
    return LAM_OK;
}

lam_code lam_hf_parse(const struct lam_vocab_source *source, const char *what, json_t **out, lam_error *err)
{
    *out = NULL;
    if (!source || !source->text) return LAM_OK;
    LAM_TRY(lam_json_parse(source->text, source->len, what, out, err));
    if (json_is_object(*out)) return LAM_OK;
    json_decref(*out);
    *out = NULL;
    return LAM_RAISE(err, LAM_E_FORMAT, "%s is not a JSON object", what);
}
