#!/usr/bin/env python3
"""Writes tests/data/adapters/real: published adapters, cut small, and what PEFT makes of them and of every LoRA configuration here.

    python tools/golden/real_adapters.py ADAPTERS       (a folder with the adapters below; made with requirements.txt)
    python tools/golden/real_adapters.py                (expected.json alone, from what was cut before)

The adapters are of GPT-2, whose width is cut from 768 to 16: every tensor keeps its name, its type and its rank, and of its values
those of the first inputs and outputs. They load into a GPT-2 of that width. MLX's layout, which PEFT does not read, is cut alike.

expected.json: `models` has the linear layers of a small llama and a small GPT-2. `adapters` has for each the names of its tensors; what PEFT says of its configuration; the modules with rank, alpha
and scaling that it has in its own kind of model, loaded by PeftModel.from_pretrained; and what PEFT complains of there and on llama-gqa of
tests/golden (null: nothing). `configs` has for the configurations of real/ and configs/ whose method is Lamina's, too, the modules of such a llama (or GPT-2, for
adapters of GPT-2) to which PEFT gives an adapter.
"""
import json
import shutil
import struct
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "adapters"
REAL = FOLDER / "real"
WIDTH, OF = 16, 768  # of the cut models and of GPT-2
GPT2_LAYERS = {"gpt2-tigrinya": 12, "llms-from-groundup": 6, "gradience-synthetic": 12}


def metadata(path: Path) -> dict:
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]).get("__metadata__")


def cut(source: Path, target: Path) -> None:
    """A width of n * 768 becomes n * 16, one of MLX's 4096 or 1024 becomes 16; ranks stay."""
    def size(n: int) -> int:
        return n // OF * WIDTH if n % OF == 0 else WIDTH if n >= 1024 else n
    tensors = {name: t[tuple(slice(size(n)) for n in t.shape)].contiguous() for name, t in load_file(source).items()}
    save_file(tensors, target, metadata=metadata(source))


def cut_all(adapters: Path) -> None:
    for source in sorted(p.parent for p in adapters.glob("*/adapter_config.json")):
        target = REAL / source.name
        target.mkdir(parents=True, exist_ok=True)
        for name in ("adapter_config.json", "LICENSE"):
            if (source / name).exists():
                shutil.copyfile(source / name, target / name)
        for file in source.glob("*.safetensors"):
            cut(file, target / file.name)


def gpt2(n_layers: int) -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(n_embd=WIDTH, n_head=2, n_layer=n_layers, vocab_size=32, n_positions=16))


def llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, vocab_size=32))


MODELS = {"llama": llama, "gpt2": lambda: gpt2(2)}


def said_by(call):
    """The result, the names of the fields that PEFT ignores, and the class and beginning of what it raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = call(), None
        except Exception as e:  # whatever PEFT refuses with
            result, error = None, f"{type(e).__name__}: {str(e)[:80]}"
    unknown = [str(w.message).partition("[")[2].partition("]")[0] for w in caught if "nexpected keyword" in str(w.message)]
    missing = [str(w.message)[:80] for w in caught if "missing adapter keys" in str(w.message).lower()]
    return result, sorted(name.strip("' ") for names in unknown for name in names.split(",")), error or (missing[0] if missing else None)


def modules_of(model) -> dict:
    """Each adapted module with what PEFT computes with."""
    result = {}
    for name, module in model.base_model.model.named_modules():
        if "default" in getattr(module, "lora_A", {}):
            result[name] = {"rank": module.r["default"], "alpha": module.lora_alpha["default"], "scaling": module.scaling["default"]}
        elif "default" in getattr(module, "ia3_l", {}):
            result[name] = {"feedforward": bool(module.is_feedforward)}
    return result


def describe_adapter(folder: Path) -> dict:
    file = next(folder.glob("*.safetensors"))
    tensors = load_file(file)
    config, unknown, error = said_by(lambda: PeftConfig.from_pretrained(folder))
    result = {"tensors": sorted(tensors), "config_error": error, "unknown_fields": unknown}
    if config is not None:
        with torch.no_grad():
            loaded, _, result["on_own"] = said_by(lambda: PeftModel.from_pretrained(gpt2(GPT2_LAYERS[folder.name]), folder))
        state = {name: t for name, t in loaded.state_dict().items() if ".lora_" in name}
        for name, t in tensors.items():
            assert torch.equal(state[name.replace(".weight", ".default.weight")], t), name
        result["own_model"] = modules_of(loaded)
        other = AutoModelForCausalLM.from_pretrained(ROOT / "tests" / "golden" / "llama-gqa", dtype=torch.float32)
        _, _, result["on_llama"] = said_by(lambda: PeftModel.from_pretrained(other, folder))
    return result


def describe_config(path: Path) -> dict:
    text = json.loads(path.read_text())
    if text.get("peft_type") not in ("LORA", "IA3"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(path, Path(folder) / "adapter_config.json")
        config, unknown, error = said_by(lambda: PeftConfig.from_pretrained(folder))
    kind = "gpt2" if "gpt" in (text.get("base_model_name_or_path") or "").lower() else "llama"
    made = None
    if config is not None:
        made, _, error = said_by(lambda: get_peft_model(MODELS[kind](), config))
    return {"model": kind, "unknown_fields": unknown, "error": error, "modules": modules_of(made) if made else {}}


def linear_layers(model) -> list:
    return [name for name, m in model.named_modules() if type(m).__name__ in ("Linear", "Conv1D") and name != "lm_head"]


def main() -> None:
    if len(sys.argv) > 1:
        cut_all(Path(sys.argv[1]))
    folders = sorted(p for p in REAL.iterdir() if p.is_dir())
    configs = {f"real/{p.name}/adapter_config.json": p / "adapter_config.json" for p in folders}
    configs.update({f"configs/{p.name}": p for p in sorted((FOLDER / "configs").glob("*.json"))})
    expected = {"models": {kind: linear_layers(make()) for kind, make in MODELS.items()},
                "adapters": {p.name: describe_adapter(p) for p in folders},
                "configs": {name: d for name, p in configs.items() if (d := describe_config(p))}}
    (REAL / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
