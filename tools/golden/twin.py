"""GGUF twins: written as llama.cpp's converter writes them, and read back into Hugging Face's layout."""
import json
import math
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q

import kquant

PLAIN = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
         "up_proj": "ffn_up", "down_proj": "ffn_down", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
         "input_layernorm": "attn_norm"}


def gguf_name(hf: str, arch: str) -> str:
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    if hf in top:
        return top[hf]
    parts = hf.split(".")
    layer, leaf, kind = parts[2], parts[-2], parts[-1]
    if arch == "gemma3":
        norms = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}
    else:
        norms = {"post_attention_layernorm": "ffn_norm"}
    return f"blk.{layer}.{norms.get(leaf) or PLAIN[leaf]}.{kind}"


def permute(w: np.ndarray, heads: int) -> np.ndarray:
    """From half-split rotary rows (Hugging Face) to interleaved ones (llama in GGUF)."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w: np.ndarray, heads: int) -> np.ndarray:
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def arch_of(config: dict) -> str:
    return "gemma3" if config["model_type"] == "gemma3_text" else config["model_type"]


def to_gguf_layout(hf: str, value: np.ndarray, config: dict) -> np.ndarray:
    arch = arch_of(config)
    if arch == "llama" and hf.split(".")[-2] == "q_proj":
        return permute(value, config["num_attention_heads"])
    if arch == "llama" and hf.split(".")[-2] == "k_proj":
        return permute(value, config["num_key_value_heads"])
    if arch == "gemma3" and hf.endswith("norm.weight"):
        return value + np.float32(1)
    return value


def from_gguf_layout(hf: str, value: np.ndarray, config: dict) -> np.ndarray:
    arch = arch_of(config)
    if arch == "llama" and hf.split(".")[-2] == "q_proj":
        return unpermute(value, config["num_attention_heads"])
    if arch == "llama" and hf.split(".")[-2] == "k_proj":
        return unpermute(value, config["num_key_value_heads"])
    if arch == "gemma3" and hf.endswith("norm.weight"):
        return value - np.float32(1)
    return value


def head_dim(config: dict) -> int:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope_factors(config: dict) -> np.ndarray:
    scaling = config["rope_scaling"]
    old = scaling["original_max_position_embeddings"]
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    dim = head_dim(config)
    freqs = 1.0 / (config["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    out = []
    for freq in freqs:
        wave = 2 * math.pi / freq
        if wave < old / high:
            out.append(1)
        elif wave > old / low:
            out.append(factor)
        else:
            smooth = (old / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(torch.tensor(out, dtype=torch.float32))


def add_parameters(w: gguf.GGUFWriter, name: str, config: dict, file_type: int) -> None:
    arch, rope = arch_of(config), config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type"))
    w.add_type("model")
    w.add_name(name)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    if kind in ("linear", "yarn"):
        w.add_rope_scaling_type(gguf.RopeScalingType(kind))
        w.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    w.add_rope_freq_base(config["rope_theta"])
    if arch == "gemma3":
        w.add_rope_freq_base_swa(config["rope_local_base_freq"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        w.add_key_length(config["head_dim"])
        w.add_value_length(config["head_dim"])
    w.add_file_type(file_type)
    if arch == "llama":
        w.add_vocab_size(config["vocab_size"])
        w.add_rope_dimension_count(head_dim(config))
    if arch == "gemma3":
        if config["final_logit_softcapping"]:
            w.add_final_logit_softcapping(config["final_logit_softcapping"])
        w.add_sliding_window(config["sliding_window"])
        if config["sliding_window_pattern"] != 6:
            w.add_sliding_window_pattern(config["sliding_window_pattern"])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_tokenizer(w: gguf.GGUFWriter, folder: Path, info: dict, config: dict) -> None:
    arch, size = arch_of(config), config["vocab_size"]
    if "pieces" in info:
        w.add_tokenizer_model("llama")
        w.add_tokenizer_pre("default")
        w.add_token_list(info["pieces"])
        w.add_token_scores(info["scores"])
        w.add_token_types(info["kinds"])
    else:
        data = json.loads((folder / "tokenizer.json").read_text())
        tokens = {i: t for t, i in data["model"]["vocab"].items()}
        special = {t["id"]: t["content"] for t in data["added_tokens"]}
        listed = [special.get(i) or tokens.get(i) or f"[PAD{i}]" for i in range(size)]
        kinds = [3 if i in special else 1 if i in tokens else 5 for i in range(size)]
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("llama-bpe" if arch == "llama" else "qwen2")
        w.add_token_list(listed)
        w.add_token_types(kinds)
        w.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in data["model"]["merges"]])
    if info.get("bos") is not None:
        w.add_bos_token_id(info["bos"])
    w.add_eos_token_id(info["eos"])
    if "unk" in info:
        w.add_unk_token_id(info["unk"])
    if arch == "gemma3":
        w.add_pad_token_id(0)
    conf = json.loads((folder / "tokenizer_config.json").read_text())
    w.add_add_bos_token(conf["add_bos_token"])
    if "pieces" in info:
        w.add_add_eos_token(False)
    if "chat_template" in conf:
        w.add_chat_template(conf["chat_template"])
    if arch == "gemma3":
        w.add_add_space_prefix(False)


def pick(name: str, dims, kind: str, gen) -> Q:
    """The block type of one tensor: `kind` where its rows allow, else as llama.cpp falls back."""
    if len(dims) == 1:
        return Q.F32
    if kind == "KMIX":
        order = [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K]
        return Q.Q6_K if name == "token_embd.weight" else order[int(gen.integers(5))]
    if kind == "LEGACYMIX":
        order = [Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1]
        choice = order[int(gen.integers(5))]
        return choice if dims[-1] % 32 == 0 else Q.F16
    want = Q[kind]
    return want if dims[-1] % gguf.GGML_QUANT_SIZES[want][0] == 0 else Q.F16


def write(path: Path, name: str, config: dict, state: dict, folder: Path, info: dict, kind: str, gen) -> None:
    file_types = {"F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "LEGACYMIX": 7,
                  "Q2_K": 10, "Q3_K": 12, "Q4_K": 15, "Q5_K": 17, "Q6_K": 18, "KMIX": 15}
    w = gguf.GGUFWriter(path, arch_of(config))
    add_parameters(w, name, config, file_types[kind])
    add_tokenizer(w, folder, info, config)
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(config))
    for hf, tensor in state.items():
        value = np.ascontiguousarray(to_gguf_layout(hf, tensor.numpy(), config))
        out = gguf_name(hf, arch_of(config))
        q = pick(out, value.shape, kind, gen)
        if q in kquant.RANDOM:
            data = kquant.RANDOM[q](gen, value.shape, float(value.std()))
        else:
            data = value if q == Q.F32 else gguf.quants.quantize(value, q)
        w.add_tensor(out, data, raw_dtype=None if q in (Q.F32, Q.F16) else q)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read_state(path: Path, config: dict, names: list[str]) -> dict[str, torch.Tensor]:
    """The twin's weights decoded by `gguf.quants`, in Hugging Face's layout."""
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    state = {}
    for hf in names:
        t = tensors[gguf_name(hf, arch_of(config))]
        value = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        state[hf] = torch.from_numpy(np.ascontiguousarray(from_gguf_layout(hf, value, config)))
    return state
