"""The tiny models of the golden data: their configurations, and random weights that make logits vary."""
import contextlib
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

import tiny_tokenizers as tt
from common import rng

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 288, "attention_bias": False,
         "mlp_bias": False, "tie_word_embeddings": False, "rope_theta": 10000.0, "rope_scaling": None}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "rms_norm_eps": 1e-6,
         "max_position_embeddings": 256, "vocab_size": 288, "tie_word_embeddings": True, "rope_theta": 1000000.0,
         "use_sliding_window": False, "sliding_window": None}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "rms_norm_eps": 1e-6,
         "max_position_embeddings": 256, "vocab_size": 288, "tie_word_embeddings": False, "rope_theta": 1000000.0,
         "attention_bias": False, "use_sliding_window": False, "sliding_window": None}
GEMMA3 = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
          "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0,
          "vocab_size": 288, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "attention_bias": False,
          "sliding_window": 16, "sliding_window_pattern": 6, "final_logit_softcapping": None,
          "attn_logit_softcapping": None, "rope_scaling": None}


def shape(d, heads, kv, ff, layers, head_dim=None):
    out = {"hidden_size": d, "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": ff,
           "num_hidden_layers": layers}
    if head_dim:
        out["head_dim"] = head_dim
    return out


# name: (config, dtype of the safetensors file, tokenizer kind, other options)
MODELS = {
    "llama-gqa": ({**LLAMA, **shape(64, 4, 2, 108, 2)}, "float32", "spm", {}),
    "llama-rope3": ({**LLAMA, **shape(96, 6, 3, 64, 2), "tie_word_embeddings": True, "rope_theta": 500000.0,
                     "bos_token_id": 285, "eos_token_id": 286, "rope_scaling": {
                         "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 32}}, "float16", "llama3", {}),
    "llama-linear": ({**LLAMA, **shape(64, 4, 4, 64, 2, 24), "rope_scaling": {"type": "linear", "factor": 2.0}},
                     "bfloat16", "spm", {}),
    "llama-bias": ({**LLAMA, **shape(64, 4, 2, 64, 2), "attention_bias": True}, "float16", "spm-model", {"shards": 3}),
    "llama-yarn": ({**LLAMA, **shape(64, 4, 2, 64, 2), "max_position_embeddings": 128, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}, "float16", "spm", {}),
    "qwen2-tied": ({**QWEN2, **shape(64, 4, 2, 64, 3)}, "float32", "qwen", {}),
    "qwen3-wide": ({**QWEN3, **shape(64, 4, 2, 64, 2, 32)}, "float16", "qwen", {}),
    "qwen3-tied": ({**QWEN3, **shape(64, 4, 1, 64, 2, 16), "tie_word_embeddings": True}, "bfloat16", "qwen", {}),
    "gemma3-swa": ({**GEMMA3, **shape(64, 4, 1, 32, 7, 16), "query_pre_attn_scalar": 16}, "bfloat16", "gemma", {}),
    "gemma3-linear": ({**GEMMA3, **shape(64, 2, 2, 32, 6, 24), "query_pre_attn_scalar": 24,
                       "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "bfloat16", "gemma", {}),
    "gemma3-caps": ({**GEMMA3, **shape(64, 2, 1, 32, 3, 32), "query_pre_attn_scalar": 20, "sliding_window": 12,
                     "sliding_window_pattern": 3, "final_logit_softcapping": 6.0, "attn_logit_softcapping": 2.0},
                    "float16", "gemma", {}),
    # Rows that are multiples of 256, so that K-quants fit. Only their quantised twins are kept.
    "llama-k": ({**LLAMA, **shape(256, 4, 1, 256, 1), "tie_word_embeddings": True}, None, "spm", {}),
    "qwen2-k": ({**QWEN2, **shape(256, 4, 1, 256, 1)}, None, "qwen", {}),
    "qwen3-k": ({**QWEN3, **shape(256, 4, 1, 256, 1, 64)}, None, "qwen", {}),
    "gemma3-k": ({**GEMMA3, **shape(256, 4, 1, 256, 2, 64), "sliding_window_pattern": 2, "query_pre_attn_scalar": 64},
                 None, "gemma", {}),
}


def make_tokenizer(folder: Path, kind: str, vocab: int) -> dict:
    if kind.startswith("spm"):
        info = tt.sentencepiece_bpe(folder, vocab, ["<unk>", "<s>", "</s>"], True, kind == "spm-model")
        if kind == "spm-model":
            (folder / "tokenizer.json").unlink()
        return info
    if kind == "gemma":
        return tt.sentencepiece_bpe(folder, vocab, ["<pad>", "<eos>", "<bos>", "<unk>"], False, True)
    if kind == "llama3":
        return tt.byte_level(folder, vocab, tt.LLAMA3, "<|begin_of_text|>", "<|end_of_text|>",
                             ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], True, None)
    return tt.byte_level(folder, 280, tt.QWEN2, None, "<|im_end|>", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                         False, CHATML)


def weight(gen, name: str, dims, config) -> np.ndarray:
    gemma = config["model_type"].startswith("gemma")
    if name.endswith("norm.weight"):
        center = 0.0 if gemma else 1.0
        return center + 0.25 * gen.standard_normal(dims)
    if name.endswith(".bias"):
        return 0.5 * gen.standard_normal(dims)
    if "embed_tokens" in name:
        tied = gemma or config["tie_word_embeddings"]
        return (2.4 / np.sqrt(dims[1]) if tied else 1.0) * gen.standard_normal(dims)
    if "lm_head" in name:
        return 2.4 / np.sqrt(dims[1]) * gen.standard_normal(dims)
    gain = 1.4 if ("q_proj" in name or "k_proj" in name) else 1.0
    return gain / np.sqrt(dims[1]) * gen.standard_normal(dims)


def state_for(name: str) -> dict[str, torch.Tensor]:
    """The model's weights by their Hugging Face names, in float32, already rounded to the file's type."""
    config, dtype, _, _ = MODELS[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(as_config(config))
    gen = rng("weights:" + name)
    state = {}
    for key, param in sorted(model.state_dict().items()):
        if key == "lm_head.weight" and as_config(config).tie_word_embeddings:
            continue
        value = torch.from_numpy(weight(gen, key, tuple(param.shape), config).astype(np.float32))
        state[key] = value.to(getattr(torch, dtype)).float() if dtype else value
    return state


def as_config(config: dict):
    data = json.loads(json.dumps(config))
    return AutoConfig.for_model(data.pop("model_type"), **data)


def build(config: dict, state: dict[str, torch.Tensor]):
    """A float32 eager HF model with exactly these weights."""
    conf = as_config(config)
    conf._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(conf, dtype=torch.float32, attn_implementation="eager")
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert all(m == "lm_head.weight" and conf.tie_word_embeddings for m in missing), missing
    model.tie_weights()
    return model.eval()


def save_folder(folder: Path, name: str, state: dict[str, torch.Tensor]) -> None:
    config, dtype, _, options = MODELS[name]
    (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": dtype}, indent=1) + "\n")
    stored = {k: v.to(getattr(torch, dtype)).contiguous() for k, v in state.items()}
    shards = options.get("shards", 1)
    if shards == 1:
        save_file(stored, str(folder / "model.safetensors"), metadata={"format": "pt"})
        return
    keys = sorted(stored)
    names = [f"model-{i + 1:05d}-of-{shards:05d}.safetensors" for i in range(shards)]
    where = {k: names[i * shards // len(keys)] for i, k in enumerate(keys)}
    for shard in names:
        save_file({k: stored[k] for k in keys if where[k] == shard}, str(folder / shard), metadata={"format": "pt"})
    total = sum(v.numel() * v.element_size() for v in stored.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=1) + "\n")


def load_folder(folder: Path):
    """The folder as a user of transformers would load it, in float32."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@contextlib.contextmanager
def kv_as_f16():
    """Within this context the HF models attend over K and V rounded to float16, as a float16 cache stores them."""
    modules = [modeling_llama, modeling_qwen2, modeling_qwen3, modeling_gemma3]
    kept = [m.eager_attention_forward for m in modules]

    def rounded(original):
        def forward(module, query, key, value, *args, **kwargs):
            return original(module, query, key.half().float(), value.half().float(), *args, **kwargs)
        return forward

    for module, original in zip(modules, kept):
        module.eager_attention_forward = rounded(original)
    try:
        yield
    finally:
        for module, original in zip(modules, kept):
            module.eager_attention_forward = original


def logits(model, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()
