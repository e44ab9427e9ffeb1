#!/usr/bin/env python3
"""Writes tests/data/adapters/matching.json and configs.json; plain Python, nothing to install.

    python3 tools/make_adapter_cases.py

matching.json: which modules PEFT 0.21 takes for target_modules, exclude_modules, layers_to_transform and layers_pattern, and which
entry of rank_pattern or alpha_pattern, by Python's own re. The rules are written here from PEFT's documentation of LoraConfig and
from check_target_module_exists and get_pattern_key (huggingface/peft); with --peft their results are compared with PEFT's own
functions, which takes PEFT and torch.

configs.json: for the example configurations of PEFT in configs/ (huggingface/peft, Apache-2.0, LICENSE.peft) whether they are plain
LoRA, and otherwise the method or the field that must be named.
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
    rules = [{"rules": r, "targeted": [m for m in MODULES if targeted(r, m)]} for r in RULES]
    tables = [{"table": t, "values": {m: pattern_value(t, m) for m in MODULES if pattern_value(t, m) is not None}} for t in TABLES]
    return {"modules": [{"name": m, "kind": kind(m)} for m in MODULES], "rules": rules, "tables": tables, "refused": REFUSED}


# LoRA's variants that Lamina does not have, by the field that asks for them.
VARIANTS = ["use_dora", "kasa_config", "use_bdlora", "modules_to_save", "use_qalora", "lora_bias"]


def configs() -> dict:
    result = {}
    for path in sorted((FOLDER / "configs").glob("*.json")):
        config = json.loads(path.read_text())
        named = None if config["peft_type"] == "LORA" else config["peft_type"]
        if named is None:
            named = next((field for field in VARIANTS if config.get(field)), None)
        result[path.name] = named
    return result


def compare_with_peft() -> None:
    from types import SimpleNamespace

    from peft.tuners.tuners_utils import check_target_module_exists
    from peft.utils.other import get_pattern_key
    for rules in RULES:
        target = rules.get("target_modules", ["q_proj", "v_proj"])
        if isinstance(target, str) and target.lower() == "all-linear":
            target = [m for m in MODULES if kind(m) == "linear"]
        config = SimpleNamespace(target_modules=set(target) if isinstance(target, list) else target, target_parameters=None,
                                 exclude_modules=rules.get("exclude_modules"), modules_to_save=None,
                                 layers_to_transform=rules.get("layers_to_transform"), layers_pattern=rules.get("layers_pattern"))
        for module in MODULES:
            assert bool(check_target_module_exists(config, module)) == targeted(rules, module), (rules, module)
    for table in TABLES:
        for module in MODULES:
            assert table.get(get_pattern_key(table.keys(), module)) == pattern_value(table, module), (table, module)
    print("equal to PEFT's own functions")


def write(name: str, content) -> None:
    (FOLDER / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if "--peft" in sys.argv[1:]:
        compare_with_peft()
    write("matching.json", matching())
    write("configs.json", configs())
