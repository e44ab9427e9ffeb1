#!/usr/bin/env python3
"""Writes tests/data/adapters/matching.json and configs.json; plain Python, nothing to install, unless asked for --peft.

    python3 tools/make_adapter_cases.py [--peft]

matching.json: which modules PEFT 0.21 takes for target_modules, exclude_modules, layers_to_transform and layers_pattern, which are saved
whole by modules_to_save, which are feed-forward ones of IA3, and which entry of rank_pattern or alpha_pattern, by Python's own re. The
rules are written here from PEFT's documentation of LoraConfig and from check_target_module_exists, _set_trainable,
IA3Model._check_target_module_feedforward and get_pattern_key (huggingface/peft); with --peft their results are compared with PEFT's own
functions, which takes PEFT and torch.

configs.json: for the example configurations of PEFT in configs/ (huggingface/peft, Apache-2.0, LICENSE.peft) whether Lamina takes them,
and otherwise the method or the field that must be named.

With --peft also peft/: small adapters written by PEFT itself for models of tests/golden, and what they must become (write_adapters).
"""
import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "adapters"

LAYER = ["self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj", "input_layernorm"]
MODULES = ["model.embed_tokens"] + [f"model.layers.{n}.{m}" for n in (0, 1, 2, 10, 21) for m in LAYER] + ["model.norm", "lm_head"]


def kind(module: str) -> str:
    if module == "lm_head":
        return "head"
    if module.endswith("embed_tokens"):
        return "embedding"
    return "norm" if "norm" in module else "linear"


def in_list(module: str, names: list) -> bool:
    return module in names or any(module.endswith("." + name) for name in names)


def wanted_layer(module: str, layers, patterns) -> bool:
    if layers is None or layers == []:
        return True
    if not patterns:
        match = re.match(r".*?\.[^.]*\.(?P<idx>\d+)\.", module)
    else:
        match = None
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            match = re.match(rf"(?:^|.*?\.){pattern}\.(?P<idx>\d+)\.", module)
            if match is not None:
                break
    index = match.groupdict().get("idx") if match else None
    if index is None:
        return False
    return int(index) == layers if isinstance(layers, int) else int(index) in layers


def targeted(rules: dict, module: str) -> bool:
    exclude = rules.get("exclude_modules")
    if any(re.match(rf"(^|.*\.){name}($|\..*)", module) for name in rules.get("modules_to_save") or []):
        return False
    if exclude and (re.fullmatch(exclude, module) if isinstance(exclude, str) else in_list(module, exclude)):
        return False
    target = rules.get("target_modules")
    if target is None:
        target = ["q_proj", "v_proj"]
    if isinstance(target, str):
        if target.lower() == "all-linear":
            return kind(module) == "linear"
        return bool(re.fullmatch(target, module))
    if module in target:
        return True
    return in_list(module, target) and wanted_layer(module, rules.get("layers_to_transform"), rules.get("layers_pattern"))


def saved(rules: dict, module: str) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:n]).endswith(name) for n in range(1, len(parts) + 1) for name in rules.get("modules_to_save") or [])


def feedforward(rules: dict, module: str) -> bool:
    wanted = rules["feedforward_modules"]
    return bool(re.fullmatch(wanted, module)) if isinstance(wanted, str) else any(module.endswith(name) for name in wanted)


def pattern_value(table: dict, module: str):
    for key, value in table.items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return None


RULES = [
    {},
    {"target_modules": ["q_proj", "v_proj"]},
    {"target_modules": ["proj"]},
    {"target_modules": ["self_attn.q_proj", "lm_head", "embed_tokens", "norm"]},
    {"target_modules": ["model.layers.1.self_attn.q_proj", "o_proj"], "layers_to_transform": [0]},
    {"target_modules": ["layers.1.self_attn.q_proj", "o_proj"], "layers_to_transform": [0, 2]},
    {"target_modules": []},
    {"target_modules": ["q_proj"], "layers_to_transform": 1},
    {"target_modules": ["q_proj"], "layers_to_transform": [1, 21]},
    {"target_modules": ["q_proj"], "layers_to_transform": []},
    {"target_modules": ["q_proj", "lm_head"], "layers_to_transform": [0, 1], "layers_pattern": "layers"},
    {"target_modules": ["q_proj"], "layers_to_transform": [0, 10], "layers_pattern": ["h", "layers"]},
    {"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": "layer"},
    {"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": "l[a-z]+s"},
    {"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": "layers|h"},
    {"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": []},
    {"target_modules": ["q_proj", "gate_proj"], "exclude_modules": ["layers.1.self_attn.q_proj", "gate_proj"]},
    {"target_modules": ["q_proj"], "exclude_modules": r".*layers\.[01]\..*"},
    {"target_modules": ["q_proj"], "exclude_modules": r"layers\.[01]\..*"},
    {"target_modules": ["q_proj"], "exclude_modules": ""},
    {"target_modules": "all-linear"},
    {"target_modules": "All-Linear", "exclude_modules": ["down_proj"]},
    {"target_modules": r".*\.q_proj"},
    {"target_modules": "q_proj"},
    {"target_modules": r".*\.(q|v)_proj"},
    {"target_modules": r"model\.layers\.\d+\.self_attn\.[qv]_proj"},
    {"target_modules": r"model\.layers\.(1|2)\.(?:self_attn|mlp)\..*_proj"},
    {"target_modules": r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|v_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn"
                       r"|mlp)\.(?:(?:q_proj|v_proj|down_proj)))"},
    {"target_modules": r"(?!.*layers\.1\.).*down_proj"},
    {"target_modules": r".*(?<=layers\.10)\.mlp\.\w+"},
    {"target_modules": r".*layers.1..*"},
    {"target_modules": r"^model.*q_proj$"},
    {"target_modules": r"lm_head|model\.embed_tokens"},
    {"target_modules": r"(?P<part>model)\.[a-z.]*\d{2}\.[^.]+\.q_proj\Z"},
    {"target_modules": ""},
    {"target_modules": "all-linear", "modules_to_save": ["lm_head", "embed_tokens"]},
    {"target_modules": ["q_proj", "lm_head"], "modules_to_save": ["head", "norm"]},
    {"target_modules": ["q_proj", "down_proj"], "modules_to_save": ["layers.1.self_attn", "model.layers.2.mlp.down_proj"]},
    {"target_modules": ["q_proj", "down_proj"], "modules_to_save": ["mlp", "1"]},
    {"target_modules": ["q_proj"], "modules_to_save": []},
    {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    {"target_modules": "all-linear", "feedforward_modules": ["proj"]},
    {"target_modules": "all-linear", "feedforward_modules": []},
    {"target_modules": "all-linear", "feedforward_modules": r".*\.mlp\..*"},
    {"target_modules": "all-linear", "feedforward_modules": "down_proj"},
]

TABLES = [
    {"q_proj": 3},
    {"^q_proj": 5, "q_proj": 3},
    {r"layers\.0\..*q_proj": 1, "q_proj": 2, "v_proj": 3},
    {"q_proj": 2, r"layers\.0\..*q_proj": 1},
    {"typo_proj": 9, "proj": 8},
    {"model.layers.1.mlp.down_proj": 4, r"layers\.1.*": 5},
    {"layers.1.self_attn": 6},
    {r".*": 7},
    {"": 7},
    {"_proj": 1, "[qv]_proj": 2, r"(gate|down)_proj": 3},
    {r"layers\.(0|1)\.self_attn\.(q|v)_proj": 1, r"layers\.1\d?\.self_attn.*": 2},
    {"lm_head": 1, "embed_tokens": 2, "model.norm": 3},
    {"^lm_head": 1, "^model.embed_tokens": 2, r"^model\.layers\.2\..*o_proj": 3},
    {"q_proj|v_proj": 1},
    {"q_proj$": 1, r"\w+_proj": 2},
    {r"d?own_proj": 1, r"\.down_proj": 2, "o{1,2}_proj": 3, r"_?proj": 4},
    {r"[^.]+": 1},
    {r"[]a-z_]+": 1},
]

# What Python's re and PCRE2 read differently, or what would make the two differ: refused, not guessed.
REFUSED = [
    r"(?i)Q_PROJ", r"(?R)", r"(*ACCEPT)", r"q_proj\K", r"\Qq_proj\E", r"[[:alpha:]]_proj", r"(?P>x)", r"(?<x>q)_proj", r"\h", r"\R",
    r"(q)\1", r"(?>q)_proj", r"(?(1)a|b)", r"q_proj(?#c)", r"q{,2}_proj", r"q{x}", r"\v", r"\x41", r"\u0041", r"q_proj)", r"(q_proj",
    r"a)|(b", "q_proj\\", r"[q_proj", r"(?x: q)", r"\N{DIGIT ONE}", r"\p{L}", r"\d\G",
]


def matching() -> dict:
    rules = [{"rules": r, "targeted": [m for m in MODULES if targeted(r, m)], "saved": [m for m in MODULES if saved(r, m)]} for r in RULES]
    for one in rules:
        if "feedforward_modules" in one["rules"]:
            one["feedforward"] = [m for m in MODULES if feedforward(one["rules"], m)]
    tables = [{"table": t, "values": {m: pattern_value(t, m) for m in MODULES if pattern_value(t, m) is not None}} for t in TABLES]
    return {"modules": [{"name": m, "kind": kind(m)} for m in MODULES], "rules": rules, "tables": tables, "refused": REFUSED}


# LoRA's variants that Lamina does not have, by the field that asks for them.
VARIANTS = ["kasa_config", "use_bdlora", "use_qalora", "velora_config", "monteclora_config", "arrow_config", "target_parameters"]


def configs() -> dict:
    result = {}
    for path in sorted((FOLDER / "configs").glob("*.json")):
        config = json.loads(path.read_text())
        named = None if config["peft_type"] in ("LORA", "IA3") else config["peft_type"]
        if named is None:
            named = next((field for field in VARIANTS if config.get(field)), None)
        result[path.name] = named
    return result


def compare_with_peft() -> None:
    from types import SimpleNamespace

    from peft.tuners.ia3 import IA3Model
    from peft.tuners.tuners_utils import _ExcludedModule, check_target_module_exists
    from peft.utils.other import get_pattern_key
    for rules in RULES:
        target = rules.get("target_modules", ["q_proj", "v_proj"])
        if isinstance(target, str) and target.lower() == "all-linear":
            target = [m for m in MODULES if kind(m) == "linear"]
        config = SimpleNamespace(target_modules=set(target) if isinstance(target, list) else target, target_parameters=None,
                                 exclude_modules=rules.get("exclude_modules"), modules_to_save=rules.get("modules_to_save"),
                                 layers_to_transform=rules.get("layers_to_transform"), layers_pattern=rules.get("layers_pattern"))
        for module in MODULES:
            found = check_target_module_exists(config, module)
            assert (bool(found) and not isinstance(found, _ExcludedModule)) == targeted(rules, module), (rules, module)
            if "feedforward_modules" in rules:
                ia3 = SimpleNamespace(feedforward_modules=rules["feedforward_modules"])
                assert IA3Model._check_target_module_feedforward(ia3, module) == feedforward(rules, module), (rules, module)
    for table in TABLES:
        for module in MODULES:
            assert table.get(get_pattern_key(table.keys(), module)) == pattern_value(table, module), (table, module)
    print("equal to PEFT's own functions")


def write(name: str, content) -> None:
    (FOLDER / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


# Adapters written by PEFT: name, model of tests/golden, what PEFT is told, tokens of the invocation, and on which bases they are checked
# ("" for the Hugging Face folder, else the suffix of a GGUF file).
def adapters() -> list:
    from peft import IA3Config, LoraConfig

    def lora(modules, **more):
        return LoraConfig(r=2, lora_alpha=3, target_modules=modules, task_type="CAUSAL_LM", **more)

    return [
        ("dora", "llama-gqa", lora(["q_proj", "k_proj", "down_proj"], use_dora=True, use_rslora=True), ["", "-f32", "-q4_0"]),
        ("lora-bias", "llama-bias", lora(["k_proj", "o_proj"], lora_bias=True), ["", "-f16"]),
        ("activated", "llama-gqa", lora(["q_proj", "lm_head"], alora_invocation_tokens=[20, 21, 287]), ["", "-q4_0"]),
        ("ia3", "llama-gqa", IA3Config(target_modules=["q_proj", "k_proj", "up_proj", "down_proj"], feedforward_modules=["down_proj"],
                                       modules_to_save=["norm"], task_type="CAUSAL_LM"), ["", "-f32"]),
        ("saved-matrices", "llama-gqa", lora(["up_proj"], modules_to_save=["layers.1.self_attn", "layers.0.self_attn.q_proj"]), ["", "-f32", "-q4_0"]),
        ("saved-norms", "gemma3-swa", lora(["layers.0.self_attn.q_proj"], modules_to_save=["norm"]), ["", "-bf16"]),
        ("saved-embedding", "qwen2-tied", lora(["q_proj"], modules_to_save=["embed_tokens"]), ["", "-f16"]),
        ("saved-head", "qwen2-tied", lora(["q_proj"], modules_to_save=["lm_head"]), ["", "-q8_0"]),
        ("embedding-in-place", "qwen2-tied", lora(["embed_tokens"]), ["", "-f16"]),
        ("tokens", "llama-gqa", lora(["v_proj"], trainable_token_indices={"embed_tokens": [9, 5], "lm_head": [287]}), ["", "-f32"]),
        ("tokens-tied", "qwen2-tied", lora(["v_proj"], trainable_token_indices=[30, 2]), [""]),
    ]


GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


def gguf_name(module: str, model: str) -> str:
    names = {**GGUF_NAMES, **(GEMMA_NAMES if model.startswith("gemma3") else {})}
    if not module.startswith("model.layers."):
        return names[module]
    number, _, rest = module.removeprefix("model.layers.").partition(".")
    return f"blk.{number}.{names[rest]}"


def set_randomly(model, config) -> None:
    """Adapters as if trained: every value of theirs is another one."""
    import torch
    random = torch.Generator().manual_seed(7)
    marks = ["lora_", "ia3_", "modules_to_save", "trainable_tokens_delta"]
    in_place = "embed_tokens" in (config.target_modules or [])
    with torch.no_grad():
        for name, value in model.named_parameters():
            if any(mark in name for mark in marks) or (in_place and name.endswith("embed_tokens.base_layer.weight")):
                value.add_(torch.randn(value.shape, generator=random).to(value.dtype) * 0.25)


def effective(module, base):
    """What the loaded PEFT model has for one module that the base does not have: parts in Lamina's names, float32."""
    import torch
    parts = {}
    real = module
    if hasattr(module, "modules_to_save"):
        real = module.modules_to_save["default"]
    elif hasattr(module, "token_adapter"):
        rows = module.token_adapter.get_merged_weights(["default"]).float() - base.weight.float()
        used = [r for r in range(rows.shape[0]) if r in set(module.token_adapter.token_indices["default"])]
        starts = [sum(r < n for r in used) * rows.shape[1] for n in range(rows.shape[0] + 1)]
        parts["delta_starts"] = torch.tensor(starts, dtype=torch.int32)
        parts["delta_columns"] = torch.arange(rows.shape[1], dtype=torch.int32).repeat(len(used))
        parts["delta_values"] = rows[used].reshape(-1)
        return parts
    elif hasattr(module, "base_layer"):
        real = module.base_layer
    for name in ("weight", "bias"):
        own, old = getattr(real, name, None), getattr(base, name, None)
        if own is not None and not torch.equal(own, old):
            parts[name] = own.float()
    if "default" in getattr(module, "lora_A", {}):
        parts["lora_a"], parts["lora_b"] = module.lora_A["default"].weight, module.lora_B["default"].weight
        if module.lora_B["default"].bias is not None:
            parts["lora_b_bias"] = module.lora_B["default"].bias
        if "default" in (module.lora_magnitude_vector or {}):
            parts["lora_magnitude"] = module.lora_magnitude_vector["default"].weight
    if "default" in getattr(module, "lora_embedding_A", {}):
        parts["lora_a"], parts["lora_b"] = module.lora_embedding_A["default"].T, module.lora_embedding_B["default"]
    if "default" in getattr(module, "ia3_l", {}):
        parts["ia3_input" if module.is_feedforward else "ia3_output"] = module.ia3_l["default"].flatten()
    return parts


def in_file(part: str, values, module: str, model: str, base: str, heads: dict):
    """A part as a base of this kind needs it: rows of q and k in pairs for llama's GGUF files, norms of Gemma's as 1 + w."""
    if not base:
        return values
    head = next((n for name, n in heads.items() if module.endswith(name)), None)
    if model.startswith("llama") and head and part not in ("lora_a", "ia3_input"):
        shape = values.shape
        return values.reshape(head, 2, shape[0] // head // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    return values + 1 if model.startswith("gemma3") and part == "weight" and "norm" in module else values


def find_module(model, name: str):
    """The module of this name, inside of the copy that modules_to_save made of one around it."""
    module = model
    for part in name.split("."):
        module = module.modules_to_save["default"] if hasattr(module, "modules_to_save") else module
        module = getattr(module, part)
    return module


def describe(loaded, fresh, model: str, bases: list) -> dict:
    import hashlib

    heads = {"q_proj": fresh.config.num_attention_heads, "k_proj": fresh.config.num_key_value_heads}
    result = {}
    for base in bases:
        tensors = {}
        for name, old in fresh.named_modules(remove_duplicate=False):
            if not hasattr(old, "weight"):
                continue
            for part, values in effective(find_module(loaded.base_model.model, name), old).items():
                values = in_file(part, values.detach(), name, model, base, heads).contiguous()
                tensors[f"{gguf_name(name, model)}.{part}"] = {
                    "dims": list(reversed(values.shape)), "sha256": hashlib.sha256(values.numpy().tobytes()).hexdigest()}
        result[model + base] = dict(sorted(tensors.items()))
    return result


def write_adapters() -> None:
    """peft/NAME: what PEFT's save_pretrained writes. peft/expected.json: what the model that PEFT's from_pretrained makes of it differs
    in from the base, by module and part; each tensor with the SHA-256 of its values as float32 (indices: int32) in row order."""
    import shutil

    import torch
    from peft import PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    golden, expected = FOLDER.parent.parent / "golden", {}
    shutil.rmtree(FOLDER / "peft", ignore_errors=True)
    for name, model, config, bases in adapters():
        def load():
            return AutoModelForCausalLM.from_pretrained(golden / model, dtype=torch.float32)
        torch.manual_seed(1)
        made = get_peft_model(load(), config)
        set_randomly(made, config)
        made.peft_config["default"].base_model_name_or_path = model
        folder = FOLDER / "peft" / name
        made.save_pretrained(folder, save_embedding_layers=name == "embedding-in-place")
        (folder / "README.md").unlink()
        loaded = PeftModel.from_pretrained(load(), folder)
        method = "ia3" if config.peft_type == "IA3" else "dora" if config.use_dora else "lora"
        expected[name] = {"method": method, "invocation": getattr(config, "alora_invocation_tokens", None),
                          "tensors": describe(loaded, load(), model, bases)}
    write("peft/expected.json", expected)


if __name__ == "__main__":
    if "--peft" in sys.argv[1:]:
        compare_with_peft()
        write_adapters()
    write("matching.json", matching())
    write("configs.json", configs())
