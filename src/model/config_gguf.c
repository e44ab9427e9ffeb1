/* Configuration from GGUF keys (names: the GGUF specification's "Standardized key-value pairs"). */
#include "model/arch.h"
#include "kernels/math.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys under "<arch>." that are read here or by the architecture's file, or that cannot change a result. */
static const char *const known_keys[] = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "use_parallel_residual",
    "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.key_length",
    "attention.value_length", "attention.sliding_window", "attention.sliding_window_pattern", "attention.causal",
    "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.finetuned", "rope.scale_linear",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "final_logit_softcapping",
    "expert_count", "expert_used_count",
};

static lam_code refuse_unknown_keys(const struct lam_gguf *g, const char *arch, lam_error *err)
{
    size_t prefix = strlen(arch);
    for (size_t i = 0; i < g->n_kvs; i++) {
        const struct lam_gguf_kv *kv = &g->kvs[i];
        if (kv->key_len <= prefix || memcmp(kv->key, arch, prefix) != 0 || kv->key[prefix] != '.') continue;
        const char *rest = kv->key + prefix + 1;
        size_t len = kv->key_len - prefix - 1;
        bool known = false;
        for (size_t k = 0; k < sizeof known_keys / sizeof *known_keys; k++)
            known |= strlen(known_keys[k]) == len && memcmp(known_keys[k], rest, len) == 0;
        if (!known) return LAM_RAISE(err, LAM_E_UNKNOWN_FIELD, "key %.*s is not known and may change results",
                                     (int)kv->key_len, kv->key);
    }
    return LAM_OK;
}

/* arch and suffix joined: key[96]. */
static const char *key_of(const char *arch, const char *suffix, char key[96])
{
    snprintf(key, 96, "%s.%s", arch, suffix);
    return key;
}

static lam_code read_rope(const struct lam_gguf *g, const char *arch, struct lam_config *c, lam_error *err)
{
    char key[96];
    float theta = 10000.0f, factor = 0.0f, attn_factor = 1.0f, beta_fast = 32.0f, beta_slow = 1.0f;
    uint32_t original = c->n_context, dims = c->head_dim;
    const char *type = NULL;
    size_t len = 0;
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "rope.freq_base", key), false, &theta, err));
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "rope.dimension_count", key), false, &dims, err));
    if (dims != c->head_dim)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "partial rotary embedding: %s is %u, the head has %u", key, dims, c->head_dim);
    LAM_TRY(lam_gguf_string(g, key_of(arch, "rope.scaling.type", key), false, &type, &len, err));
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "rope.scale_linear", key), false, &factor, err));
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "rope.scaling.factor", key), false, &factor, err));
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "rope.scaling.attn_factor", key), false, &attn_factor, err));
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "rope.scaling.yarn_beta_fast", key), false, &beta_fast, err));
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "rope.scaling.yarn_beta_slow", key), false, &beta_slow, err));
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "rope.scaling.original_context_length", key), false, &original, err));
    c->rope = (struct lam_rope){.theta = theta, .attention_factor = 1.0};
    if (type && len == 4 && memcmp(type, "yarn", 4) == 0) {
        c->rope.scaling = LAM_ROPE_YARN;
        c->rope.factor = factor;
        c->rope.original_context = original;
        c->rope.beta_fast = beta_fast;
        c->rope.beta_slow = beta_slow;
        c->rope.attention_factor = (double)attn_factor * (0.1 * lam_log64((double)factor) + 1.0);
    } else if (!type || (len == 6 && memcmp(type, "linear", 6) == 0) || (len == 4 && memcmp(type, "none", 4) == 0)) {
        if (factor != 0.0f && factor != 1.0f && !(type && len == 4)) {
            c->rope.scaling = LAM_ROPE_LINEAR;
            c->rope.factor = factor;
        }
    } else {
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "rope.scaling.type %.*s", (int)len, type);
    }
    return LAM_OK;
}

static lam_code read_shape(const struct lam_gguf *g, const char *arch, struct lam_config *c, lam_error *err)
{
    char key[96];
    uint32_t experts = 0, value_length = 0;
    bool causal = true;
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "expert_count", key), false, &experts, err));
    if (experts) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "mixture of experts (%s is %u)", key, experts);
    LAM_TRY(lam_gguf_bool(g, key_of(arch, "attention.causal", key), false, &causal, err));
    if (!causal) return LAM_RAISE(err, LAM_E_UNSUPPORTED, "attention that is not causal (%s)", key);
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "block_count", key), true, &c->n_layers, err));
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "context_length", key), true, &c->n_context, err));
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "embedding_length", key), true, &c->d_model, err));
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "feed_forward_length", key), true, &c->d_ff, err));
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "attention.head_count", key), true, &c->n_heads, err));
    c->n_kv_heads = c->n_heads;
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "attention.head_count_kv", key), false, &c->n_kv_heads, err));
    LAM_TRY(lam_gguf_f32(g, key_of(arch, "attention.layer_norm_rms_epsilon", key), true, &c->norm_eps, err));
    c->head_dim = c->n_heads ? c->d_model / c->n_heads : 0;
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "attention.key_length", key), false, &c->head_dim, err));
    value_length = c->head_dim;
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "attention.value_length", key), false, &value_length, err));
    if (value_length != c->head_dim)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "values of %u dimensions beside keys of %u", value_length, c->head_dim);
    const struct lam_gguf_tensor *embedding = lam_gguf_find_tensor(g, "token_embd.weight");
    if (!embedding) return LAM_RAISE(err, LAM_E_MISSING_TENSOR, "token_embd.weight");
    if (embedding->dims[1] > UINT32_MAX) return LAM_RAISE(err, LAM_E_LIMIT, "token_embd.weight has too many rows");
    c->n_vocab = (uint32_t)embedding->dims[1];
    c->tied = !lam_gguf_find_tensor(g, "output.weight");
    return LAM_OK;
}

/* An architecture without windows may carry the key with 0 only. */
static lam_code refuse_window(const struct lam_gguf *g, const char *arch, lam_error *err)
{
    char key[96];
    uint32_t window = 0;
    LAM_TRY(lam_gguf_u32(g, key_of(arch, "attention.sliding_window", key), false, &window, err));
    return window ? LAM_RAISE(err, LAM_E_UNSUPPORTED, "a sliding window (%s is %u)", key, window) : LAM_OK;
}

lam_code lam_config_from_gguf(const struct lam_gguf *g, struct lam_config *out, lam_error *err)
{
    const char *name = NULL;
    size_t len = 0;
    LAM_TRY(lam_gguf_string(g, "general.architecture", true, &name, &len, err));
    struct lam_config c = {.embedding_scale = 1.0f};
    c.arch = lam_arch_by_name(name, len);
    if (!c.arch)
        return LAM_RAISE(err, LAM_E_ARCHITECTURE, "architecture %.*s is not one that we run (%s)", (int)len, name, lam_arch_names());
    LAM_TRY(refuse_unknown_keys(g, c.arch->name, err));
    LAM_TRY(read_shape(g, c.arch->name, &c, err));
    LAM_TRY(read_rope(g, c.arch->name, &c, err));
    c.rope_interleaved = c.arch->gguf_rope_interleaved;
    c.activation = c.arch->activation;
    c.attention_scale = c.head_dim ? (float)(1.0 / sqrt((double)c.head_dim)) : 0.0f;
    c.rope_local = c.rope;
    LAM_TRY(lam_config_check(&c, err));
    if (c.arch->from_gguf) LAM_TRY(c.arch->from_gguf(g, &c, err));
    else LAM_TRY(refuse_window(g, c.arch->name, err));
    LAM_TRY(lam_config_check(&c, err)); /* what the architecture added */
    *out = c;
    return LAM_OK;
}
