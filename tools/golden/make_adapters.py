"""Writes PEFT adapters for the tiny models with real PEFT, one llama.cpp LoRA GGUF per architecture, and the
logits that transformers and PEFT give with them. Run make_models.py first.

    python tools/golden/make_adapters.py [ADAPTER ...]    # with names: only the cases of these adapters, whose folders stand already
"""
import json
import shutil
import sys
import warnings
from pathlib import Path

import gguf
import numpy as np
import torch
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model

import tiny_models as tm
import twin
from common import GOLDEN, load_index, put, rng, save_index, save_logits

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
ROWS = 8


def lora(r, alpha, modules, **more) -> LoraConfig:
    return LoraConfig(r=r, lora_alpha=alpha, target_modules=modules, task_type="CAUSAL_LM", **more)


# base, adapter, configuration. Each becomes tests/golden/adapters/<base>/<adapter>/.
ADAPTERS = [
    ("llama-gqa", "all-r4", lora(4, 8, ALL)),
    ("llama-gqa", "attention-r8", lora(8, 16, ATTENTION)),
    ("llama-gqa", "rslora-r64", lora(64, 16, r".*layers\.0\.self_attn\.v_proj", use_rslora=True)),
    ("llama-gqa", "plain-r64", lora(64, 16, r".*layers\.0\.self_attn\.v_proj")),
    ("llama-gqa", "patterns", lora(2, 4, ["q_proj", "v_proj", "down_proj"],
                                   rank_pattern={"^q_proj": 5, "q_proj": 3, r"layers\.0\..*v_proj": 7, "typo_proj": 9},
                                   alpha_pattern={"q_proj": 12, r"layers\.1\..*v_proj": 1, r"layers\.1\..*q_proj": 40})),
    ("llama-gqa", "rslora-patterns", lora(2, 4, ["k_proj", "up_proj"], use_rslora=True, rank_pattern={"k_proj": 7},
                                          alpha_pattern={r"layers\.0\.mlp\.up_proj": 6})),
    ("llama-gqa", "layer-1", lora(3, 6, ["q_proj", "up_proj"], layers_to_transform=[1], layers_pattern="layers")),
    ("llama-gqa", "rank-1", lora(1, 2, ["o_proj", "down_proj"])),
    ("llama-gqa", "rank-7", lora(7, 7, ["k_proj"])),
    ("llama-gqa", "rank-12", lora(12, 6, ["gate_proj"])),
    ("llama-gqa", "fan-in-fan-out", lora(4, 8, ["q_proj", "o_proj"], fan_in_fan_out=True)),
    ("llama-gqa", "embed", lora(4, 8, ["embed_tokens", "v_proj"])),
    ("llama-gqa", "head", lora(4, 8, ["lm_head"])),
    ("llama-gqa", "zero-b", lora(2, 4, ["q_proj"])),
    # PEFT's default for a target among the embeddings: the folder also holds a copy of the base's embedding.
    ("llama-gqa", "embed-with-base", lora(1, 2, ["embed_tokens"])),
    ("llama-gqa", "dora", lora(2, 4, ["q_proj"], use_dora=True)),
    ("llama-gqa", "modules-to-save", lora(2, 4, ["q_proj"], modules_to_save=["norm"])),
    ("llama-gqa", "ia3", IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"],
                                   task_type="CAUSAL_LM")),
    ("llama-gqa", "activated", lora(2, 4, ["q_proj"], alora_invocation_tokens=[20, 21])),
    ("llama-bias", "all-r4", lora(4, 8, ALL)),
    ("llama-bias", "bias-lora-only", lora(2, 4, ["q_proj", "o_proj"], bias="lora_only")),
    ("llama-bias", "bias-all", lora(2, 4, ["q_proj"], bias="all")),
    ("llama-bias", "lora-bias", lora(2, 4, ["q_proj"], lora_bias=True)),
    ("llama-rope3", "all-r4", lora(4, 8, ALL)),
    ("qwen2-tied", "all-r4", lora(4, 8, ALL)),
    ("qwen2-tied", "embed-tied", lora(4, 8, ["embed_tokens"])),
    ("qwen2-tied", "head-tied", lora(4, 8, ["lm_head"])),
    ("qwen3-wide", "all-r4", lora(4, 8, ALL)),
    ("gemma3-swa", "all-r2", lora(2, 4, ALL)),
    ("gemma3-swa", "embed", lora(3, 6, ["embed_tokens"])),
    ("llama-k", "all-r4", lora(4, 8, ALL)),
    ("gemma3-k", "attention-r3", lora(3, 6, ATTENTION)),
]
# Adapters that must be refused by name: PEFT writes and loads all of them.
REFUSED = [
    ("llama-gqa", "trainable-tokens", lora(2, 4, ["q_proj"], trainable_token_indices={"embed_tokens": [5, 9]}),
     "trainable_token_indices"),
    ("llama-gqa", "target-parameters", LoraConfig(r=2, lora_alpha=4, target_modules=[], task_type="CAUSAL_LM",
                                                  target_parameters=["self_attn.q_proj.weight"]), "target_parameters"),
]
# base case, [(adapter, weight), ...]; a case of a quantised twin says its file's suffix.
CASES = [(b, None, [(a, 1.0)]) for b, a, _ in ADAPTERS if not b.endswith("-k") and a != "activated"] + [
    ("llama-gqa", None, [("all-r4", 0.5)]), ("llama-gqa", None, [("all-r4", -0.5)]), ("llama-gqa", None, [("all-r4", 1.7)]),
    ("llama-gqa", None, [("all-r4", 1.0), ("attention-r8", 1.0)]),
    ("llama-gqa", None, [("attention-r8", 1.7), ("all-r4", -0.5)]),
    ("llama-gqa", None, [("all-r4", 1.0), ("embed", 1.0), ("head", 0.5)]),
    ("llama-gqa", "f32", [("all-r4", 1.0)]),
    ("llama-rope3", "f16", [("all-r4", 1.0)]),
    ("llama-bias", "f16", [("bias-lora-only", 1.0)]),
    ("qwen2-tied", "f16", [("all-r4", 1.0)]), ("qwen3-wide", "f16", [("all-r4", 1.0)]),
    ("gemma3-swa", "bf16", [("all-r2", 1.0)]), ("gemma3-swa", "bf16", [("embed", 1.0)]),
    ("llama-gqa", "q8_0", [("all-r4", 1.0)]), ("llama-gqa", "q4_0", [("all-r4", 1.0), ("attention-r8", 0.5)]),
    ("llama-gqa", "q4_1", [("rslora-r64", 1.0), ("rank-7", 1.0)]),
    ("llama-gqa", "q5_1", [("embed", 1.0), ("head", 1.0)]), ("qwen2-tied", "q8_0", [("all-r4", 1.0)]),
    ("qwen3-wide", "legacymix", [("all-r4", 1.0)]), ("gemma3-swa", "q8_0", [("all-r2", 1.0)]),
    ("llama-bias", "legacymix", [("bias-lora-only", 1.0)]),
    ("llama-k", "kmix", [("all-r4", 1.0)]), ("gemma3-k", "kmix", [("attention-r3", -0.5)]),
]
GGUF_ADAPTERS = [("llama-gqa", "all-r4"), ("llama-gqa", "embed"), ("llama-gqa", "head"), ("llama-rope3", "all-r4"),
                 ("qwen2-tied", "all-r4"), ("qwen3-wide", "all-r4"), ("gemma3-swa", "all-r2")]


def fill(model, name: str) -> None:
    """Random factors that move each projection by about 0.4 of its own size."""
    gen = rng("adapter:" + name)

    def put_random(param, std, center=0.0):
        value = center + std * gen.standard_normal(tuple(param.shape))
        param.data.copy_(torch.from_numpy(value.astype(np.float32)))

    for key, module in sorted(model.named_modules()):
        for adapter in getattr(module, "lora_A", {}):
            r, s = module.r[adapter], module.scaling[adapter]
            put_random(module.lora_A[adapter].weight, module.in_features ** -0.5)
            put_random(module.lora_B[adapter].weight, 0.0 if name.endswith("zero-b") else 0.4 / (s * r ** 0.5))
            if module.lora_bias[adapter]:
                put_random(module.lora_B[adapter].bias, 0.2)
            if adapter in module.lora_magnitude_vector:
                weight = module.lora_magnitude_vector[adapter].weight
                weight.data.mul_(torch.from_numpy(gen.uniform(0.7, 1.4, tuple(weight.shape)).astype(np.float32)))
        for adapter in getattr(module, "lora_embedding_A", {}):
            r, s = module.r[adapter], module.scaling[adapter]
            put_random(module.lora_embedding_A[adapter], 1.0)
            put_random(module.lora_embedding_B[adapter], 0.15 / (s * r ** 0.5))
    for key, param in sorted(model.named_parameters()):
        if "ia3_l" in key:
            put_random(param, 0.3, 1.0)
        elif key.endswith(".bias") and "lora_" not in key and param.requires_grad:
            param.data.add_(torch.from_numpy(0.3 * gen.standard_normal(tuple(param.shape)).astype(np.float32)))
        elif "modules_to_save" in key or "trainable_tokens_delta" in key:
            param.data.add_(torch.from_numpy(0.3 * gen.standard_normal(tuple(param.shape)).astype(np.float32)))


def base_model(base: str):
    return tm.build(tm.MODELS[base][0], tm.state_for(base))


def write_adapter(base: str, name: str, config, keep_embeddings=False) -> None:
    folder = GOLDEN / "adapters" / base / name
    shutil.rmtree(folder, ignore_errors=True)
    asked = getattr(config, "fan_in_fan_out", None)
    model = get_peft_model(base_model(base), config)
    fill(model, f"{base}/{name}")
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(str(folder), save_embedding_layers=keep_embeddings)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    saved = json.loads(path.read_text())
    if isinstance(saved.get("target_modules"), list):
        saved["target_modules"].sort()  # a set in PEFT: its order would change with each run
    if asked:
        # PEFT turns the flag off for nn.Linear, with a warning. Adapters of other tools keep it: so does this one.
        saved["fan_in_fan_out"] = True
    path.write_text(json.dumps(saved, indent=2) + "\n")


def with_adapters(model, folder: Path, adapters):
    """The PEFT model with every adapter (its name in `folder`, its weight) active and its scaling multiplied by the weight."""
    names = [f"a{i}" for i in range(len(adapters))]
    peft = PeftModel.from_pretrained(model, str(folder / adapters[0][0]), adapter_name=names[0])
    for label, (adapter, _) in list(zip(names, adapters))[1:]:
        peft.load_adapter(str(folder / adapter), adapter_name=label)
    peft.base_model.set_adapter(names, inference_mode=True)
    for module in peft.modules():
        for label, (_, weight) in zip(names, adapters):
            if label in getattr(module, "lora_alpha", {}):
                module.scaling[label] *= weight
    return peft.eval()


def write_gguf(base: str, name: str) -> Path:
    """As llama.cpp's convert_lora_to_gguf.py writes it, float32."""
    from safetensors.numpy import load_file
    folder = GOLDEN / "adapters" / base / name
    config = tm.MODELS[base][0]
    arch = twin.arch_of(config)
    tensors = load_file(str(folder / "adapter_model.safetensors"))
    path = folder.with_suffix(".gguf")
    w = gguf.GGUFWriter(path, arch)
    w.add_type(gguf.GGUFType.ADAPTER)
    w.add_string(gguf.Keys.Adapter.TYPE, "lora")
    w.add_name(name)
    w.add_float32(gguf.Keys.Adapter.LORA_ALPHA, json.loads((folder / "adapter_config.json").read_text())["lora_alpha"])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in tensors.items():
        hf, factor = key.removeprefix("base_model.model.").split(".lora_")
        hf += ".weight"
        out = twin.gguf_name(hf, arch)
        if factor in ("B.weight", "embedding_B"):
            w.add_tensor(out + ".lora_b", np.ascontiguousarray(twin.to_gguf_layout(hf, value, config)))
        else:
            w.add_tensor(out + ".lora_a", np.ascontiguousarray(value.T if "embed_tokens" in hf else value))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    index = load_index()
    only = set(sys.argv[1:])
    if not only:
        shutil.rmtree(GOLDEN / "adapters", ignore_errors=True)
        for base, name, config in ADAPTERS:
            write_adapter(base, name, config, keep_embeddings=name == "embed-with-base")
        index["cases"] = [c for c in index["cases"] if not c["adapters"] or "+methods:" in c["id"]]
    index["refusals"] = []
    for base, name, config, reason in REFUSED:
        if not only:
            write_adapter(base, name, config)
        put(index, "refusals", {"id": f"{base}+{name}", "base": base, "adapter": f"adapters/{base}/{name}", "names": reason})
    for base, twin_name, adapters in CASES:
        if only and not only.issuperset(a for a, _ in adapters):
            continue
        base_id = f"{base}/{twin_name or 'hf'}"
        plain = next(c for c in index["cases"] if c["id"] == base_id)
        config = tm.MODELS[base][0]
        state = tm.state_for(base)
        if plain["form"] == "gguf":
            state = twin.read_state(GOLDEN / plain["path"], config, list(state))
        logits = tm.logits(with_adapters(tm.build(config, state), GOLDEN / "adapters" / base, adapters), plain["tokens"])[-ROWS:]
        label = "+".join(a if w == 1 else f"{a}={w:g}" for a, w in adapters)
        saved = save_logits(f"adapters/{base}/{twin_name or 'hf'}+{label}.f32", logits)
        put(index, "cases", {
            "id": f"{base_id}+{label}", "arch": plain["arch"], "model": base, "tokens": plain["tokens"],
            "adapters": [{"path": f"adapters/{base}/{a}", "weight": w} for a, w in adapters],
            "path": plain["path"], "form": plain["form"], "weights": plain["weights"],
            "rule": plain["rule"], "first_row": len(plain["tokens"]) - ROWS, **saved})
        before = np.fromfile(GOLDEN / plain["logits"], "<f4").reshape(-1, plain["vocab"])[-ROWS:]
        print(f"{base_id}+{label}: moved by {np.abs(logits - before).max():.3f} of {saved['max_abs']:.1f}", flush=True)
    for base, name in [] if only else GGUF_ADAPTERS:
        path = write_gguf(base, name)
        for case in [c for c in index["cases"] if c["form"] == "gguf" and c["rule"] == "float"
                     and [a["path"] for a in c["adapters"]] == [f"adapters/{base}/{name}"]]:
            put(index, "cases", {**case, "id": case["id"] + ".gguf",
                                 "adapters": [{"path": f"adapters/{base}/{path.name}", "weight": 1.0}]})
    save_index(index)


if __name__ == "__main__":
    main()
