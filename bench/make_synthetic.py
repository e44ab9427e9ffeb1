#!/usr/bin/env python3
"""Writes GGUF models of a known shape with random weights: speed depends on shapes and types alone, not on what weights say.

    python3 bench/make_synthetic.py 0.5b shape-f16.gguf
    llama-quantize shape-f16.gguf shape-q4_k_m.gguf Q4_K_M

The shapes are those of the public Qwen2.5 configurations. The vocabulary is made up: 256 bytes, then merges of two and three
bytes, so that every text has tokens and both programs load it. The same seed gives the same file. Needs numpy and gguf.
"""
import argparse

import gguf
import numpy as np

SHAPES = {
    "0.5b": dict(layers=24, width=896, heads=14, kv_heads=2, head=64, ff=4864, vocab=151936, context=32768),
    "1.5b": dict(layers=28, width=1536, heads=12, kv_heads=2, head=128, ff=8960, vocab=151936, context=32768),
}
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPREAD = 0.02  # of weights and of embeddings: as such models are initialised


def byte_characters():
    """The printable stand-in for each byte that byte-level BPE uses (GPT-2)."""
    plain = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = (b for b in range(256) if b not in plain)
    code = {b: b for b in plain} | {b: 256 + i for i, b in enumerate(rest)}
    return [chr(code[b]) for b in range(256)]


def vocabulary(size):
    """tokens, their types, merges: every pair of bytes, then pairs with a third byte, until only the padding is left."""
    single = byte_characters()
    pairs = [(a, b) for a in single for b in single]
    room = size - 256 - len(CONTROL)
    merges = pairs + [(a + b, c) for a, b in pairs for c in single][:max(0, room - len(pairs))]
    merges = merges[:room]
    normal = single + [a + b for a, b in merges]
    kinds = [gguf.TokenType.NORMAL] * len(normal) + [gguf.TokenType.CONTROL] * len(CONTROL)
    return normal + CONTROL, kinds, [f"{a} {b}" for a, b in merges]


def tensors(s):
    """(name, shape as rows × columns, kind) in file order."""
    q, kv = s["heads"] * s["head"], s["kv_heads"] * s["head"]
    yield "token_embd.weight", (s["vocab"], s["width"]), "matrix"
    for i in range(s["layers"]):
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            yield f"blk.{i}.{name}.weight", (rows, s["width"]), "matrix"
            yield f"blk.{i}.{name}.bias", (rows,), "bias"
        yield f"blk.{i}.attn_output.weight", (s["width"], q), "matrix"
        yield f"blk.{i}.attn_norm.weight", (s["width"],), "norm"
        yield f"blk.{i}.ffn_norm.weight", (s["width"],), "norm"
        yield f"blk.{i}.ffn_gate.weight", (s["ff"], s["width"]), "matrix"
        yield f"blk.{i}.ffn_up.weight", (s["ff"], s["width"]), "matrix"
        yield f"blk.{i}.ffn_down.weight", (s["width"], s["ff"]), "matrix"
    yield "output_norm.weight", (s["width"],), "norm"


def values(random, shape, kind):
    v = random.standard_normal(shape, dtype=np.float32)
    v *= 0.1 if kind == "norm" else SPREAD
    if kind == "norm":
        v += 1.0
    return v.astype(np.float16) if kind == "matrix" else v


def write(path, name, s, seed):
    w = gguf.GGUFWriter(path, "qwen2")
    w.add_name(f"qwen2.5-{name}-shape")
    w.add_description("random weights, for measuring speed")
    w.add_context_length(s["context"])
    w.add_embedding_length(s["width"])
    w.add_block_count(s["layers"])
    w.add_feed_forward_length(s["ff"])
    w.add_head_count(s["heads"])
    w.add_head_count_kv(s["kv_heads"])
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e6)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    tokens, kinds, merges = vocabulary(s["vocab"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges(merges)
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_pad_token_id(tokens.index("<|endoftext|>"))
    w.add_bos_token_id(tokens.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    for tensor, shape, kind in tensors(s):
        dtype = np.dtype(np.float16 if kind == "matrix" else np.float32)
        w.add_tensor_info(tensor, shape, dtype, int(np.prod(shape)) * dtype.itemsize)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    random = np.random.default_rng(seed)
    for _, shape, kind in tensors(s):
        w.write_tensor_data(values(random, shape, kind))
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    write(a.out, a.shape, SHAPES[a.shape], a.seed)


if __name__ == "__main__":
    main()
