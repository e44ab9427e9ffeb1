"""Adapters of every method, stacks of up to four of them, and the logits that PEFT, transformers and the formulas give with them.

    python tools/golden/make_methods.py [BASE ...]          # writes tests/golden/methods/<base>/ and the cases of index.json
    python ../emulator/nc1.py --index methods               # then: the emulator's logits of the same stacks on quantised twins

Run make_models.py first. Says for each case how far PEFT and the float64 formulas are from each other, and stops if that is far.
"""
import json
import shutil
import sys
import warnings

import numpy as np
import torch
from peft import IA3Config, PeftModel, get_peft_model
from safetensors.torch import save_file

import formulas
import slm
import tiny_models as tm
import twin
from common import GOLDEN, Packed, load_index, put, rng, save_index
from make_adapters import ALL, ATTENTION, fill, lora

BASES = ["llama-gqa", "qwen2-tied", "qwen3-wide", "gemma3-swa"]
K_QUANTS = {"llama-k": ["dora", "rslora", "ia3"]}  # bases that are there in quantised form alone
STACKS = 20
FIRST, SECOND = [20, 21, 22], [30, 31]  # invocations


def is_tied(base: str) -> bool:
    return tm.as_config(tm.MODELS[base][0]).tie_word_embeddings


def ia3(modules, feedforward):
    return IA3Config(target_modules=modules, feedforward_modules=feedforward, task_type="CAUSAL_LM")


def adapters_of(base: str) -> dict:
    out = {
        "lora": lora(4, 8, ALL),
        "rslora": lora(8, 4, ["q_proj", "v_proj", "up_proj"], use_rslora=True),
        "dora": lora(4, 8, ALL, use_dora=True),
        "dora-b": lora(2, 6, ["q_proj", "v_proj", "o_proj", "up_proj"], use_dora=True, use_rslora=True),
        "ia3": ia3(["k_proj", "v_proj", "down_proj"], ["down_proj"]),
        "ia3-b": ia3(["k_proj", "v_proj", "o_proj", "down_proj"], ["down_proj"]),
        "ia3-joined": ia3(["q_proj", "k_proj", "gate_proj", "down_proj"], ["k_proj", "gate_proj"]),
        "alora": lora(4, 8, [*ATTENTION, "down_proj"], alora_invocation_tokens=FIRST),
        "alora-b": lora(2, 6, ["q_proj", "k_proj", "v_proj"], alora_invocation_tokens=SECOND),
        "norms": lora(2, 4, ["o_proj"], modules_to_save=["norm"]),
        "lora-bias": lora(3, 6, ["q_proj", "k_proj", "v_proj"], lora_bias=True),
        "embed": lora(3, 6, ["embed_tokens", "up_proj"]),
        "saved-head": lora(2, 4, ["q_proj"], modules_to_save=["lm_head"]),
    }
    if base in ("llama-gqa", "gemma3-swa"):
        out["saved-embed"] = lora(2, 4, ["v_proj"], modules_to_save=["embed_tokens"])
    if base == "qwen2-tied":
        out["bias-all"] = lora(2, 4, ["q_proj", "down_proj"], bias="all")
    if not is_tied(base):
        out["head"] = lora(3, 6, ["lm_head"])
    return out


# What PEFT puts together by set_adapter([...]): of LoRA's family; those that hold own copies of tensors at weight 1 alone.
FAMILY = ["lora", "rslora", "dora", "dora-b", "alora", "alora-b", "lora-bias", "embed", "head"]
COPIES = ["norms", "saved-head", "saved-embed"]


def prompt(base: str, *places: tuple[int, list[int]], n: int = 14) -> list[int]:
    """n tokens with each invocation at its place; no other one holds a part of an invocation."""
    bos = tm.MODELS[base][0].get("bos_token_id")
    ids = rng("prompt:" + base).integers(40, 280, n).tolist()
    ids[0] = ids[0] if bos is None else bos
    for at, sought in places:
        ids[at:at + len(sought)] = sought
    return ids


def prompts(base: str) -> dict[str, list[int]]:
    return {"once": prompt(base, (7, FIRST), (4, SECOND)), "twice": prompt(base, (2, FIRST), (9, FIRST)),
            "start": prompt(base, (0, FIRST)), "end": prompt(base, (11, FIRST)), "overlap": prompt(base, (3, FIRST[:2]), (5, FIRST))}


def write_folder(base: str, name: str, config) -> None:
    folder = GOLDEN / "methods" / base / name
    model = get_peft_model(tm.build(tm.MODELS[base][0], tm.state_for(base)), config)
    fill(model, f"methods/{base}/{name}")
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    saved = json.loads(path.read_text())
    for key in ("target_modules", "feedforward_modules", "modules_to_save"):
        if isinstance(saved.get(key), list):
            saved[key].sort()  # sets in PEFT
    path.write_text(json.dumps(saved, indent=2) + "\n")


# ---- task vectors ---------------------------------------------------------------------------------------------------

def tuned_modules(base: str, kind: str, state: dict) -> list[str]:
    """Weights that change. Rows of q and k lie otherwise in llama's GGUF, and Gemma's norms, so those stay as they are."""
    leaves = ("o_proj", "down_proj", "v_proj") if kind == "dense" else ("up_proj", "o_proj")
    leaves += () if base.startswith("llama") or kind == "sparse" else ("q_proj",)
    layer = "1" if kind == "sparse" else "0"
    names = [k for k in state if k.split(".")[-2] in leaves and k.endswith("weight") and k.split(".")[2] == layer]
    if kind == "sparse":
        return names + (["model.embed_tokens.weight"] if base == "qwen2-tied" else ["lm_head.weight"] if base == "qwen3-wide" else [])
    return names + ["model.embed_tokens.weight"] + ([] if base.startswith("gemma") else ["model.norm.weight"])


def tuned_state(base: str, kind: str, state: dict) -> dict:
    gen, dtype = rng(f"tuned:{base}:{kind}"), getattr(torch, tm.MODELS[base][1])
    tuned = dict(state)
    for key in tuned_modules(base, kind, state):
        value = state[key]
        change = 0.4 * float(value.std()) * gen.standard_normal(tuple(value.shape))
        if kind == "sparse":
            change = np.where(gen.random(tuple(value.shape)) < 0.03, 4 * change, 0)
            change[3] = 0  # a row without values
            change[5, 1:] = 0
        tuned[key] = (value + torch.from_numpy(change.astype(np.float32))).to(dtype).float()
    return tuned


def write_task_vector(base: str, kind: str, state: dict) -> None:
    tuned, modules = tuned_state(base, kind, state), {}
    arch = twin.arch_of(tm.MODELS[base][0])
    for key in tuned_modules(base, kind, state):
        name = twin.gguf_name(key, arch).removesuffix(".weight")
        delta = (tuned[key].double() - state[key].double()).float().numpy()
        if key.endswith("norm.weight"):
            modules[name] = {"weight": tuned[key].numpy()}
        else:
            modules[name] = {"delta": delta} if kind == "dense" else slm.sparse_parts(delta)
        if name == "token_embd" and is_tied(base):  # two targets of an artefact, one tensor of a checkpoint
            modules["output"] = modules[name]
    slm.write(GOLDEN / "methods" / base / f"{kind}.slm", kind, modules)
    if (kind == "sparse") == (base == "qwen3-wide"):
        folder = GOLDEN / "methods" / base / f"tuned-{kind}"
        shutil.copytree(GOLDEN / base, folder, ignore=lambda _, names: [n for n in names if not n.startswith(("config", "tokenizer"))])
        tm.save_folder(folder, base, tuned)


def task_item(base: str, kind: str, state: dict) -> dict:
    tuned = tuned_state(base, kind, state)
    modules = {}
    for key in tuned_modules(base, kind, state):
        part = "weight" if key.endswith("norm.weight") else "delta"
        modules[key.removesuffix(".weight")] = {part: tuned[key].double() - (0 if part == "weight" else state[key].double())}
        if key == "model.embed_tokens.weight" and is_tied(base):
            modules["lm_head"] = modules["model.embed_tokens"]
    return modules


# ---- references -----------------------------------------------------------------------------------------------------

def with_peft(base: str, model, stack):
    """All adapters of a stack active in PEFT, in order, their scales multiplied by the weights."""
    folder = GOLDEN / "methods" / base
    names = [f"a{i}" for i in range(len(stack))]
    peft = PeftModel.from_pretrained(model, str(folder / stack[0][0]), adapter_name=names[0])
    for label, (adapter, *_) in list(zip(names, stack))[1:]:
        peft.load_adapter(str(folder / adapter), adapter_name=label)
    if len(names) > 1:
        # PEFT looks for the invocation of the one adapter that the outer model calls active.
        activated = [n for n, (a, *_) in zip(names, stack) if a.startswith("alora")]
        peft.set_adapter(activated[0] if activated else names[0])
        peft.base_model.set_adapter(names, inference_mode=True)
    for label, (_, weight, *_) in zip(names, stack):
        for module in peft.modules():
            if hasattr(module, "set_scale"):
                module.set_scale(label, weight)
    return peft.eval()


def by_peft(base, config, state, stack, tokens):
    model = with_peft(base, tm.build(config, state), stack)
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


# Two adapters that claim the same targets alone, and who has which.
OWNED = {"owned": ([("lora", 1.0, "replace"), ("rslora", 1.0, "replace")],
                   {**{f"model.layers.{i}.self_attn.q_proj": 0 for i in (0, 1)}, **{f"model.layers.{i}.self_attn.v_proj": 1 for i in (0, 1)},
                    **{f"model.layers.{i}.mlp.up_proj": i for i in (0, 1)}}),
         "owned-norm": ([("norms", 1.0), ("dense", 1.0)], {"model.norm": 1})}


def by_formulas(base, config, state, stack, tokens, plain_state, owners):
    items = []
    for name, weight, *rule in stack:
        if name in ("dense", "sparse"):
            modules, invocation = task_item(base, name, plain_state), None
        else:
            modules, invocation = formulas.read_folder(GOLDEN / "methods" / base / name)
        items.append(formulas.Item(modules, invocation, weight, *rule))
    return formulas.logits(config, state, items, tokens, owners)


def is_peft(stack) -> bool:
    """Whether PEFT computes this stack as it is meant: one adapter of any kind at weight 1, several LoRA at any, several IA³ at 1.

    It does not where two invocations meet (one offset is used for both), where a stored bias meets a module that is wrapped already (the
    bias is dropped silently), and it refuses LoRA on a tensor that another adapter has a copy of, and methods of different kinds."""
    names, rules = [s[0] for s in stack], [s[2:] for s in stack]
    if any(rules) or any(n in ("dense", "sparse") for n in names):
        return False
    if all(n in FAMILY + COPIES for n in names):
        return sum(n.startswith("alora") for n in names) < 2 and all(s[1] == 1 for s in stack if s[0] in COPIES) and \
            not any({a, b} <= set(names) for a, b in (("head", "saved-head"), ("embed", "saved-embed")))
    whole = all(s[1] == 1 for s in stack)
    return whole and (len(stack) == 1 or all(n in ("ia3", "ia3-b") for n in names))


# ---- stacks ---------------------------------------------------------------------------------------------------------

def claims(base: str, name: str, rule: str) -> set[str]:
    """Targets that an adapter wants alone."""
    if name in ("dense", "sparse"):
        modules = task_item(base, name, tm.state_for(base))
    else:
        modules, _ = formulas.read_folder(GOLDEN / "methods" / base / name)
    return {n for n, m in modules.items() if rule == "replace" or "weight" in m or "bias" in m}


def legal(base: str, stack) -> bool:
    taken = [claims(base, name, rule[0] if rule else "add") for name, weight, *rule in stack if weight != 0]
    return sum(map(len, taken)) == len(set().union(*taken))


def random_stacks(base: str, pool: list[str]) -> list[list[tuple]]:
    """Ten stacks of what PEFT can put together, ten of everything; three of those with a rule *replace*."""
    gen, out = rng("stacks:" + base), []
    while len(out) < STACKS:
        anything = len(out) >= STACKS // 2
        names = gen.permutation(sorted(pool if anything else set(FAMILY + COPIES) & set(pool)))[:gen.integers(2, 5)].tolist()
        weights = gen.choice([1.0, 1.0, 0.5, -0.5, 1.7], len(names)).tolist()
        if anything and len(out) == STACKS - 4:
            weights[0] = 0.0
        stack = [(n, w if anything or n not in COPIES else 1.0) for n, w in zip(names, weights)]
        if anything and len(out) >= STACKS - 3:
            stack[-1] = (*stack[-1], "replace")
        if not legal(base, stack) or anything == is_peft(stack):
            continue
        out.append(stack)
    return out


def label_of(stack) -> str:
    return "+".join(("!" if rule else "") + name + ("" if w == 1 else f"={w:g}") for name, w, *rule in stack)


def stacks_of(base: str, pool: list[str]) -> list[tuple[str, list[tuple], str]]:
    """Name, stack, prompt of every case."""
    out = [(name, [(name, 1.0)], "once") for name in pool]
    out += [(f"alora:{p}", [("alora", 1.0)], p) for p in ("twice", "start", "end", "overlap")]
    out += [("dora=0.5", [("dora", 0.5)], "once"), ("ia3=0.5", [("ia3", 0.5)], "once"), ("dense=-0.5", [("dense", -0.5)], "once"),
            ("norms=0.5", [("norms", 0.5)], "once"), ("saved-head=0.5", [("saved-head", 0.5)], "once"),
            ("ia3+ia3-b", [("ia3", 1.0), ("ia3-b", 1.0)], "once")]
    if base == "qwen2-tied":
        out += [("bias-all=0.5", [("bias-all", 0.5)], "once"), ("lora-bias+dora", [("lora-bias", 1.0), ("dora", 1.0)], "once")]
    if base == "llama-gqa":  # an own copy and what others add to it, both ways round
        out += [("embed+saved-embed=0.5", [("embed", 1.0), ("saved-embed", 0.5)], "once"),
                ("saved-embed+embed", [("saved-embed", 1.0), ("embed", 1.0)], "once"),
                *((name, stack, "once") for name, (stack, _) in OWNED.items()),
                ("head+saved-head", [("head", 1.0), ("saved-head", 1.0)], "once"),
                ("saved-head=0.5+head", [("saved-head", 0.5), ("head", 1.0)], "once")]
    for one, two in (("dora", "dora-b"), ("lora", "dora-b")):  # order counts
        out += [(f"{a}+{b}", [(a, 1.0), (b, 1.0)], "once") for a, b in ((one, two), (two, one))]
    out += [(f"stack-{i:02}", stack, "once") for i, stack in enumerate(random_stacks(base, pool))]
    return out


def one_case(index, packed, base, name, stack, tokens, state) -> np.ndarray:
    config = tm.MODELS[base][0]
    plain = next(c for c in index["cases"] if c["id"] == f"{base}/hf")
    owners = OWNED[name][1] if name in OWNED else {}
    exact = by_formulas(base, config, state, stack, tokens, state, owners)
    reference, logits = "formulas in float64", exact
    if is_peft(stack):
        reference, logits = "PEFT", by_peft(base, config, state, stack, tokens)
    elif name in ("dense", "sparse"):
        reference, logits = "transformers on the tuned weights", tm.logits(tm.build(config, tuned_state(base, name, state)), tokens)
    apart = np.abs(logits - exact).max() / np.abs(exact).max()
    if apart > 2e-5:
        raise SystemExit(f"{base} {name} {label_of(stack)}: {reference} and the formulas differ by {apart:.2e}")
    rows = 8 if name.startswith("alora") else 3  # those that see where an invocation begins
    saved = packed.add(logits[-rows:])
    put(index, "cases", {
        "id": f"{base}/hf+methods:{name}", "arch": plain["arch"], "model": base, "tokens": tokens, "path": plain["path"], "form": "hf",
        "weights": plain["weights"], "rule": "float", "reference": reference, "stack": label_of(stack), "adapters": [
            {"path": f"methods/{base}/{a}" + (".slm" if a in ("dense", "sparse") else ""), "weight": w, **({"rule": rule[0]} if rule else {})}
            for a, w, *rule in stack], **({"owners": {twin.gguf_name(m + ".weight", plain["arch"]).removesuffix(".weight"): i
                                                     for m, i in owners.items()}} if owners else {}), "first_row": len(tokens) - rows, **saved})
    moved = np.abs(logits - tm.logits(tm.build(config, state), tokens)).max()
    print(f"{base} {name} [{label_of(stack)}]: {reference}, formulas {apart:.1e} away, moved by {moved:.2f} of {saved['max_abs']:.1f}", flush=True)
    return logits


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    index = load_index()
    for base in sys.argv[1:] or [*BASES, *K_QUANTS]:
        shutil.rmtree(GOLDEN / "methods" / base, ignore_errors=True)
        if base in K_QUANTS:
            for name in K_QUANTS[base]:
                write_folder(base, name, adapters_of(base)[name])
            continue
        index["cases"] = [c for c in index["cases"] if not c["id"].startswith(f"{base}/") or "+methods:" not in c["id"]]
        state = tm.state_for(base)
        for name, config in adapters_of(base).items():
            write_folder(base, name, config)
        for kind in ("dense", "sparse"):
            write_task_vector(base, kind, state)
        pool, texts, results = [*adapters_of(base), "dense", "sparse"], prompts(base), {}
        packed = Packed(f"methods/{base}/logits.f32")
        for name, stack, which in stacks_of(base, pool):
            results[name] = one_case(index, packed, base, name, stack, texts[which], state)
        for a, b in (("dora", "dora-b"), ("lora", "dora-b")):
            apart = np.abs(results[f"{a}+{b}"] - results[f"{b}+{a}"]).max() / np.abs(results[f"{a}+{b}"]).max()
            assert apart > 1e-3, (a, b, apart)
            print(f"{base}: {a}+{b} and {b}+{a} are {apart:.1e} apart")
        packed.save()
        save_index(index)


if __name__ == "__main__":
    main()
