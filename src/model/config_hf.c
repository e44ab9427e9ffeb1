/* Configuration from Hugging Face's config.json (transformers' configuration_<model>.py for names and defaults). */
#include "model/arch.h"
#include "kernels/math.h"

#include <math.h>
#include <string.h>

/* Read here or in an architecture's file. */
static const char *const used_keys[] = {
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act",
    "hidden_activation", "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "tie_word_embeddings",
    "attention_bias", "mlp_bias", "partial_rotary_factor", "sliding_window", "use_sliding_window", "max_window_layers",
    "sliding_window_pattern", "_sliding_window_pattern", "layer_types", "final_logit_softcapping", "attn_logit_softcapping",
    "query_pre_attn_scalar", "quantization_config", "use_bidirectional_attention",
};

/* Training, generation and bookkeeping: no effect on logits. */
static const char *const ignored_keys[] = {
    "_name_or_path", "_attn_implementation", "_commit_hash", "attention_dropout", "bos_token_id", "cache_implementation",
    "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label", "initializer_range", "is_decoder", "is_llama_config",
    "label2id", "name_or_path", "output_attentions", "output_hidden_states", "pad_token_id", "pretraining_tp", "return_dict",
    "rope_interleaved", "torch_dtype", "transformers_version", "transformers.js_config", "unsloth_fixed", "use_cache",
    "unsloth_version", "original_max_position_embeddings",
};

static bool listed(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0) return true;
    return false;
}

static lam_code refuse_unknown_keys(const json_t *config, lam_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value) {
        if (json_is_null(value) || listed(key, used_keys, sizeof used_keys / sizeof *used_keys) ||
            listed(key, ignored_keys, sizeof ignored_keys / sizeof *ignored_keys))
            continue;
        return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "config.json: %s is not known and may change results", key);
    }
    return LAM_OK;
}

lam_code lam_hf_u32(const json_t *config, const char *key, bool required, uint32_t *out, lam_error *err)
{
    const json_t *value = json_object_get(config, key);
    if (!value || json_is_null(value))
        return required ? LAM_RAISE(err, LAM_E_FORMAT, "config.json: %s is missing", key) : LAM_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
        return LAM_RAISE(err, LAM_E_FORMAT, "config.json: %s is not a count", key);
    *out = (uint32_t)json_integer_value(value);
    return LAM_OK;
}

lam_code lam_hf_number(const json_t *object, const char *key, bool required, double *out, lam_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return required ? LAM_RAISE(err, LAM_E_FORMAT, "config.json: %s is missing", key) : LAM_OK;
    if (!json_is_number(value)) return LAM_RAISE(err, LAM_E_FORMAT, "config.json: %s is not a number", key);
    *out = json_number_value(value);
    return LAM_OK;
}

lam_code lam_hf_text(const json_t *object, const char *key, const char **out, lam_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LAM_OK;
    if (!json_is_string(value)) return LAM_RAISE(err, LAM_E_FORMAT, "config.json: %s is not a text", key);
    *out = json_string_value(value);
    return LAM_OK;
}

lam_code lam_hf_object(const json_t *object, const char *key, const json_t **out, lam_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return LAM_OK;
    if (!json_is_object(value)) return LAM_RAISE(err, LAM_E_FORMAT, "config.json: %s is not an object", key);
    *out = value;
    return LAM_OK;
}

static lam_code read_yarn(const json_t *o, struct lam_rope *r, lam_error *err)
{
    r->beta_fast = 32.0;
    r->beta_slow = 1.0;
    const json_t *mscale = json_object_get(o, "mscale"), *truncate = json_object_get(o, "truncate");
    if (mscale && !json_is_null(mscale)) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "rope_scaling: yarn with mscale");
    if (json_is_false(truncate)) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "rope_scaling: yarn with truncate false");
    LAM_TRY(lam_hf_number(o, "beta_fast", false, &r->beta_fast, err));
    LAM_TRY(lam_hf_number(o, "beta_slow", false, &r->beta_slow, err));
    r->attention_factor = 0.1 * lam_log64(r->factor) + 1.0;
    return lam_hf_number(o, "attention_factor", false, &r->attention_factor, err);
}

/* o: rope_scaling of transformers 4 or one entry of rope_parameters of transformers 5; may be NULL. */
static lam_code read_scaling(const json_t *o, uint32_t context, struct lam_rope *r, lam_error *err)
{
    const char *type = NULL;
    LAM_TRY(lam_hf_text(o, "type", &type, err));
    LAM_TRY(lam_hf_text(o, "rope_type", &type, err));
    if (!type && json_object_get(o, "factor")) return LAM_RAISE(err, LAM_E_FORMAT, "rope_scaling: a factor without a type");
    if (!type || strcmp(type, "default") == 0) return LAM_OK;
    LAM_TRY(lam_hf_number(o, "factor", true, &r->factor, err));
    if (!(r->factor > 0.0)) return LAM_RAISE(err, LAM_E_FORMAT, "rope_scaling: factor %g", r->factor);
    r->original_context = context;
    if (strcmp(type, "linear") == 0) {
        r->scaling = LAM_ROPE_LINEAR;
        r->original_context = 0;
        return LAM_OK;
    }
    LAM_TRY(lam_hf_number(o, "original_max_position_embeddings", false, &r->original_context, err));
    if (strcmp(type, "llama3") == 0) {
        r->scaling = LAM_ROPE_LLAMA3;
        LAM_TRY(lam_hf_number(o, "low_freq_factor", true, &r->low_freq_factor, err));
        return lam_hf_number(o, "high_freq_factor", true, &r->high_freq_factor, err);
    }
    if (strcmp(type, "yarn") == 0) {
        r->scaling = LAM_ROPE_YARN;
        return read_yarn(o, r, err);
    }
    return LAM_RAISE(err, LAM_E_UNSUPPORTED, "rope_scaling of type %s", type);
}

static lam_code refuse_unknown_rope_keys(const json_t *o, lam_error *err)
{
    static const char *const known[] = {"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor",
                                        "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "truncate",
                                        "partial_rotary_factor"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o, key, value)
        if (!json_is_null(value) && !listed(key, known, sizeof known / sizeof *known))
            return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "config.json: rope_scaling: %s is not known and may change results", key);
    return LAM_OK;
}

static lam_code read_rope(const json_t *config, struct lam_config *c, lam_error *err)
{
    c->rope = (struct lam_rope){.theta = 10000.0, .attention_factor = 1.0};
    if (strcmp(c->arch->name, "gemma3") == 0) c->rope.theta = 1000000.0;
    const json_t *o = NULL;
    LAM_TRY(lam_hf_object(config, "rope_scaling", &o, err));
    LAM_TRY(lam_hf_object(config, "rope_parameters", &o, err));
    LAM_TRY(lam_hf_object(o, "full_attention", &o, err));
    LAM_TRY(lam_hf_number(config, "rope_theta", false, &c->rope.theta, err));
    LAM_TRY(lam_hf_number(o, "rope_theta", false, &c->rope.theta, err));
    double partial = 1.0;
    LAM_TRY(lam_hf_number(config, "partial_rotary_factor", false, &partial, err));
    LAM_TRY(lam_hf_number(o, "partial_rotary_factor", false, &partial, err));
    if (partial != 1.0) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "partial_rotary_factor %g", partial);
    LAM_TRY(read_scaling(o, c->n_context, &c->rope, err));
    return refuse_unknown_rope_keys(o, err);
}

static lam_code check_features(const json_t *config, const struct lam_config *c, lam_error *err)
{
    const json_t *quantised = json_object_get(config, "quantization_config");
    if (quantised && !json_is_null(quantised))
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "config.json: quantization_config (a quantised checkpoint); import the GGUF instead");
    if (json_is_true(json_object_get(config, "use_bidirectional_attention")))
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "config.json: use_bidirectional_attention");
    const char *act = NULL;
    LAM_TRY(lam_hf_text(config, "hidden_act", &act, err));
    LAM_TRY(lam_hf_text(config, "hidden_activation", &act, err));
    const char *wanted = c->activation == LAM_SILU ? "silu" : "gelu_pytorch_tanh";
    if (act && strcmp(act, wanted) != 0)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "config.json: activation %s (%s has %s)", act, c->arch->name, wanted);
    if (c->arch->from_hf) return LAM_OK; /* reads its own windows */
    const json_t *window = json_object_get(config, "sliding_window");
    bool switched = json_object_get(config, "use_sliding_window") != NULL;
    if (json_is_true(json_object_get(config, "use_sliding_window")) || (!switched && json_is_integer(window)))
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "config.json: a sliding window in architecture %s", c->arch->name);
    return LAM_OK;
}

lam_code lam_config_from_hf(const json_t *config, struct lam_config *out, lam_error *err)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    if (!type) return LAM_RAISE(err, LAM_E_FORMAT, "config.json: model_type is missing");
    struct lam_config c = {.embedding_scale = 1.0f};
    c.arch = lam_arch_by_hf_type(type);
    if (!c.arch) return LAM_RAISE(err, LAM_E_ARCHITECTURE, "model_type %s is not one that we run (%s)", type, lam_arch_names());
    LAM_TRY(refuse_unknown_keys(config, err));
    LAM_TRY(lam_hf_u32(config, "num_hidden_layers", true, &c.n_layers, err));
    LAM_TRY(lam_hf_u32(config, "hidden_size", true, &c.d_model, err));
    LAM_TRY(lam_hf_u32(config, "intermediate_size", true, &c.d_ff, err));
    LAM_TRY(lam_hf_u32(config, "num_attention_heads", true, &c.n_heads, err));
    LAM_TRY(lam_hf_u32(config, "vocab_size", true, &c.n_vocab, err));
    LAM_TRY(lam_hf_u32(config, "max_position_embeddings", true, &c.n_context, err));
    c.n_kv_heads = c.n_heads;
    LAM_TRY(lam_hf_u32(config, "num_key_value_heads", false, &c.n_kv_heads, err));
    c.head_dim = c.n_heads ? c.d_model / c.n_heads : 0;
    LAM_TRY(lam_hf_u32(config, "head_dim", false, &c.head_dim, err));
    double eps = 1e-6;
    LAM_TRY(lam_hf_number(config, "rms_norm_eps", false, &eps, err));
    c.norm_eps = (float)eps;
    c.norm_offset = c.arch->hf_norm_offset;
    c.activation = c.arch->activation;
    c.rope_interleaved = c.arch->hf_rope_interleaved;
    c.attention_scale = c.head_dim ? (float)(1.0 / sqrt((double)c.head_dim)) : 0.0f;
    const json_t *tied = json_object_get(config, "tie_word_embeddings");
    if (tied && !json_is_boolean(tied) && !json_is_null(tied))
        return LAM_RAISE(err, LAM_E_FORMAT, "config.json: tie_word_embeddings is neither true nor false");
    c.tied = json_is_boolean(tied) ? json_is_true(tied) : c.arch->hf_tied_default;
    LAM_TRY(check_features(config, &c, err));
    LAM_TRY(read_rope(config, &c, err));
    c.rope_local = c.rope;
    LAM_TRY(lam_config_check(&c, err));
    if (c.arch->from_hf) LAM_TRY(c.arch->from_hf(config, &c, err));
    LAM_TRY(lam_config_check(&c, err)); /* what the architecture added */
    *out = c;
    return LAM_OK;
}
