/* Gemma 3, text (arXiv:2503.19786): norms before and after each block, QK norm, GELU, five sliding-window layers to one global
 * one, two rotary bases, scaled embeddings. */
#include "model/arch.h"

#include <math.h>
#include <string.h>

static const struct lam_tensor_spec tensors[] = {
    {LAM_ROLE_EMBEDDING, LAM_REQUIRED, false, "token_embd.weight", "embed_tokens.weight"},
    {LAM_ROLE_OUTPUT_NORM, LAM_REQUIRED, false, "output_norm.weight", "norm.weight"},
    {LAM_ROLE_OUTPUT, LAM_OPTIONAL, false, "output.weight", "lm_head.weight"},
    {LAM_ROLE_ATTN_NORM, LAM_REQUIRED, true, "attn_norm.weight", "input_layernorm.weight"},
    {LAM_ROLE_Q, LAM_REQUIRED, true, "attn_q.weight", "self_attn.q_proj.weight"},
    {LAM_ROLE_K, LAM_REQUIRED, true, "attn_k.weight", "self_attn.k_proj.weight"},
    {LAM_ROLE_V, LAM_REQUIRED, true, "attn_v.weight", "self_attn.v_proj.weight"},
    {LAM_ROLE_O, LAM_REQUIRED, true, "attn_output.weight", "self_attn.o_proj.weight"},
    {LAM_ROLE_Q_BIAS, LAM_OPTIONAL, true, "attn_q.bias", "self_attn.q_proj.bias"},
    {LAM_ROLE_K_BIAS, LAM_OPTIONAL, true, "attn_k.bias", "self_attn.k_proj.bias"},
    {LAM_ROLE_V_BIAS, LAM_OPTIONAL, true, "attn_v.bias", "self_attn.v_proj.bias"},
    {LAM_ROLE_O_BIAS, LAM_OPTIONAL, true, "attn_output.bias", "self_attn.o_proj.bias"},
    {LAM_ROLE_Q_NORM, LAM_REQUIRED, true, "attn_q_norm.weight", "self_attn.q_norm.weight"},
    {LAM_ROLE_K_NORM, LAM_REQUIRED, true, "attn_k_norm.weight", "self_attn.k_norm.weight"},
    {LAM_ROLE_POST_ATTN_NORM, LAM_REQUIRED, true, "post_attention_norm.weight", "post_attention_layernorm.weight"},
    {LAM_ROLE_FFN_NORM, LAM_REQUIRED, true, "ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {LAM_ROLE_GATE, LAM_REQUIRED, true, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {LAM_ROLE_UP, LAM_REQUIRED, true, "ffn_up.weight", "mlp.up_proj.weight"},
    {LAM_ROLE_DOWN, LAM_REQUIRED, true, "ffn_down.weight", "mlp.down_proj.weight"},
    {LAM_ROLE_POST_FFN_NORM, LAM_REQUIRED, true, "post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};

#define LOCAL_THETA 10000.0
#define PATTERN 6 /* every sixth layer is global */

static void set_pattern(struct lam_config *c, uint32_t pattern)
{
    for (uint32_t i = 0; i < c->n_layers; i++) c->local[i] = (i + 1) % pattern != 0;
}

static void set_shared(struct lam_config *c, double local_theta)
{
    c->embedding_scale = sqrtf((float)c->d_model);
    c->rope_local = (struct lam_rope){.theta = local_theta, .attention_factor = 1.0};
}

static lam_code from_gguf(const struct lam_gguf *g, struct lam_config *c, lam_error *err)
{
    float local_theta = (float)LOCAL_THETA, softcap = 0.0f;
    LAM_TRY(lam_gguf_f32(g, "gemma3.rope.freq_base_swa", false, &local_theta, err));
    LAM_TRY(lam_gguf_f32(g, "gemma3.final_logit_softcapping", false, &softcap, err));
    LAM_TRY(lam_gguf_u32(g, "gemma3.attention.sliding_window", true, &c->window, err));
    uint32_t pattern = PATTERN;
    LAM_TRY(lam_gguf_u32(g, "gemma3.attention.sliding_window_pattern", false, &pattern, err));
    if (pattern == 0) return LAM_RAISE(err, LAM_E_FORMAT, "gemma3.attention.sliding_window_pattern is 0");
    set_pattern(c, pattern);
    set_shared(c, local_theta);
    c->logit_softcap = softcap;
    /* The file does not carry query_pre_attn_scalar: it is the head size, but d_model / n_heads for the 27B (62 layers). */
    uint32_t scalar = c->n_layers == 62 ? c->d_model / c->n_heads : c->head_dim;
    c->attention_scale = (float)(1.0 / sqrt((double)scalar));
    return LAM_OK;
}

/* The old files say sliding_window_pattern, the new ones list layer_types. */
static lam_code read_layer_types(const json_t *config, struct lam_config *c, lam_error *err)
{
    const json_t *types = json_object_get(config, "layer_types"), *pattern = json_object_get(config, "sliding_window_pattern");
    if (!pattern) pattern = json_object_get(config, "_sliding_window_pattern");
    if (!types || json_is_null(types)) {
        json_int_t p = pattern && !json_is_null(pattern) ? json_integer_value(pattern) : PATTERN; /* 0 if it is no integer */
        if (p < 1 || p > LAM_MAX_LAYERS) return LAM_RAISE(err, LAM_E_FORMAT, "sliding_window_pattern %lld", (long long)p);
        set_pattern(c, (uint32_t)p);
        return LAM_OK;
    }
    if (json_array_size(types) != c->n_layers)
        return LAM_RAISE(err, LAM_E_FORMAT, "layer_types has %zu entries for %u layers", json_array_size(types), c->n_layers);
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type && strcmp(type, "sliding_attention") == 0) c->local[i] = true;
        else if (!type || strcmp(type, "full_attention") != 0)
            return LAM_RAISE(err, LAM_E_UNSUPPORTED, "layer_types[%u]: %s", i, type ? type : "not a string");
    }
    return LAM_OK;
}

static lam_code read_local_theta(const json_t *config, double *theta, lam_error *err)
{
    const json_t *ropes = NULL, *local = NULL;
    const char *type = "default";
    LAM_TRY(lam_hf_object(config, "rope_parameters", &ropes, err));
    LAM_TRY(lam_hf_object(ropes, "sliding_attention", &local, err));
    LAM_TRY(lam_hf_text(local, "rope_type", &type, err));
    if (strcmp(type, "default") != 0)
        return LAM_RAISE(err, LAM_E_UNSUPPORTED, "rope_parameters: sliding_attention of type %s", type);
    LAM_TRY(lam_hf_number(local, "rope_theta", false, theta, err));
    return lam_hf_number(config, "rope_local_base_freq", false, theta, err);
}

static lam_code from_hf(const json_t *config, struct lam_config *c, lam_error *err)
{
    double theta = LOCAL_THETA, softcap = 0.0, scalar = 256.0;
    LAM_TRY(read_layer_types(config, c, err));
    c->window = 4096;
    LAM_TRY(lam_hf_u32(config, "sliding_window", false, &c->window, err));
    if (c->window == 0) return LAM_RAISE(err, LAM_E_FORMAT, "sliding_window is 0");
    LAM_TRY(read_local_theta(config, &theta, err));
    set_shared(c, theta);
    LAM_TRY(lam_hf_number(config, "final_logit_softcapping", false, &softcap, err));
    c->logit_softcap = (float)softcap;
    /* attn_logit_softcapping stands in the configuration, but Gemma 3's attention never applies it (unlike Gemma 2's). */
    LAM_TRY(lam_hf_number(config, "query_pre_attn_scalar", false, &scalar, err));
    c->attention_scale = (float)(1.0 / sqrt(scalar));
    return LAM_OK;
}

const struct lam_arch lam_arch_gemma3 = {
    .name = "gemma3",
    .hf_type = "gemma3_text",
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .activation = LAM_GELU_TANH,
    .hf_norm_offset = 1.0f,
    .hf_tied_default = true,
    .from_gguf = from_gguf,
    .from_hf = from_hf,
};
