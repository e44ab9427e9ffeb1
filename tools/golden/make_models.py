"""Writes the tiny models, their GGUF twins and their Hugging Face logits into tests/golden.

    python tools/golden/make_models.py [MODEL ...]
"""
import shutil
import sys

import numpy as np
import torch

import tiny_models as tm
import twin
from common import GOLDEN, load_index, put, rng, save_index, save_logits, tokens_for

TWINS = {
    "llama-gqa": ["F32", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"],
    "llama-rope3": ["F16", "Q8_0"], "llama-linear": ["Q4_0"], "llama-bias": ["F16", "LEGACYMIX"],
    "llama-yarn": ["F16"], "qwen2-tied": ["F16", "Q8_0"], "qwen3-wide": ["F16", "LEGACYMIX"],
    "qwen3-tied": ["BF16", "Q4_1"], "gemma3-swa": ["BF16", "Q8_0"], "gemma3-linear": ["Q5_1"],
    "gemma3-caps": [],
    "llama-k": ["Q2_K", "KMIX"], "qwen2-k": ["KMIX"], "qwen3-k": ["KMIX"], "gemma3-k": ["KMIX"],
}
FLOAT = {"F32", "F16", "BF16"}
QUANT_ROWS = 8  # logits kept for a quantised twin: the last rows


def kv16(name: str, stem: str, model, tokens: list[int]) -> dict:
    """The same logits, last rows only, with K and V rounded to float16."""
    first = len(tokens) - QUANT_ROWS
    with tm.kv_as_f16():
        saved = save_logits(f"{name}/{stem}.kv16.f32", tm.logits(model, tokens)[first:])
    return {"logits_kv16": saved["logits"], "kv16_first_row": first}


def make(name: str, index: dict) -> None:
    config, dtype, tokenizer, _ = tm.MODELS[name]
    folder = GOLDEN / name
    keep = folder if dtype else GOLDEN / "tmp-tokenizer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    keep.mkdir(parents=True, exist_ok=True)
    info = tm.make_tokenizer(keep, tokenizer, config["vocab_size"])
    state = tm.state_for(name)
    tokens = tokens_for(name, min(config["vocab_size"], 280), bos=config.get("bos_token_id"))
    common = {"arch": twin.arch_of(config), "model": name, "tokens": tokens, "adapters": []}
    index["models"][name] = {"arch": twin.arch_of(config), "folder": name if dtype else None, "dtype": dtype,
                             "parameters": int(sum(v.numel() for v in state.values()))}
    index["cases"] = [c for c in index["cases"] if c["model"] != name or c["adapters"]]
    base = None
    if dtype:
        tm.save_folder(folder, name, state)
        logits = tm.logits(tm.load_folder(folder), tokens)
        assert np.array_equal(logits, tm.logits(tm.build(config, state), tokens)), name
        base = {**save_logits(f"{name}/base.f32", logits), **kv16(name, "base", tm.load_folder(folder), tokens)}
        put(index, "cases", {"id": f"{name}/hf", **common, "path": name, "form": "hf", "weights": dtype,
                             "rule": "float", "first_row": 0, **base})
    for kind in TWINS[name]:
        path = folder / f"{name}-{kind.lower()}.gguf"
        twin.write(path, name, config, state, keep, info, kind, rng(f"twin:{name}:{kind}"))
        case = {"id": f"{name}/{kind.lower()}", **common, "path": f"{name}/{path.name}", "form": "gguf", "weights": kind}
        decoded = twin.read_state(path, config, list(state))
        if all(torch.equal(decoded[k], state[k]) or "norm" in k for k in state) and base:
            put(index, "cases", {**case, "rule": "float", "first_row": 0, **base})
            continue
        logits = tm.logits(tm.build(config, decoded), tokens)
        if kind in FLOAT:
            put(index, "cases", {**case, "rule": "float", "first_row": 0,
                                 **save_logits(f"{name}/{kind.lower()}.f32", logits),
                                 **kv16(name, kind.lower(), tm.build(config, decoded), tokens)})
        else:
            first = len(tokens) - QUANT_ROWS
            put(index, "cases", {**case, "rule": "report", "first_row": first,
                                 **save_logits(f"{name}/{kind.lower()}.hf.f32", logits[first:])})
    if not dtype:
        shutil.rmtree(keep)
    print(name, "max", np.abs(logits).max(), "std", logits.std(), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    index = load_index()
    for name in sys.argv[1:] or list(tm.MODELS):
        make(name, index)
        save_index(index)


if __name__ == "__main__":
    main()
