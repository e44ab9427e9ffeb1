/* Qwen2 and Qwen2.5 (arXiv:2407.10671, arXiv:2412.15115): llama's form with biases on q, k and v. */
#include "model/arch.h"

static const struct lam_tensor_spec tensors[] = {
    {LAM_ROLE_EMBEDDING, LAM_REQUIRED, false, "token_embd.weight", "embed_tokens.weight"},
    {LAM_ROLE_OUTPUT_NORM, LAM_REQUIRED, false, "output_norm.weight", "norm.weight"},
    {LAM_ROLE_OUTPUT, LAM_OPTIONAL, false, "output.weight", "lm_head.weight"},
    {LAM_ROLE_ATTN_NORM, LAM_REQUIRED, true, "attn_norm.weight", "input_layernorm.weight"},
    {LAM_ROLE_Q, LAM_REQUIRED, true, "attn_q.weight", "self_attn.q_proj.weight"},
    {LAM_ROLE_K, LAM_REQUIRED, true, "attn_k.weight", "self_attn.k_proj.weight"},
    {LAM_ROLE_V, LAM_REQUIRED, true, "attn_v.weight", "self_attn.v_proj.weight"},
    {LAM_ROLE_O, LAM_REQUIRED, true, "attn_output.weight", "self_attn.o_proj.weight"},
    {LAM_ROLE_Q_BIAS, LAM_REQUIRED, true, "attn_q.bias", "self_attn.q_proj.bias"},
    {LAM_ROLE_K_BIAS, LAM_REQUIRED, true, "attn_k.bias", "self_attn.k_proj.bias"},
    {LAM_ROLE_V_BIAS, LAM_REQUIRED, true, "attn_v.bias", "self_attn.v_proj.bias"},
    {LAM_ROLE_FFN_NORM, LAM_REQUIRED, true, "ffn_norm.weight", "post_attention_layernorm.weight"},
    {LAM_ROLE_GATE, LAM_REQUIRED, true, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {LAM_ROLE_UP, LAM_REQUIRED, true, "ffn_up.weight", "mlp.up_proj.weight"},
    {LAM_ROLE_DOWN, LAM_REQUIRED, true, "ffn_down.weight", "mlp.down_proj.weight"},
};

const struct lam_arch lam_arch_qwen2 = {
    .name = "qwen2",
    .hf_type = "qwen2",
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .activation = LAM_SILU,
};
