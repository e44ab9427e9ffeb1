"""The formulas of docs/numeric.md ("Adapters") in float64 over transformers' own model, for stacks that PEFT can't load.

Nothing is staged or rounded: this is what the operators mean. It reads PEFT's folders by itself and shares no code with the emulator.
"""
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import tiny_models as tm
from common import matched


@dataclass
class Item:
    """One adapter of a stack. modules: by Hugging Face's module name, their parts as float64 tensors."""
    modules: dict
    invocation: list | None = None
    weight: float = 1.0
    rule: str = "add"
    start: int = 0


ENDINGS = {".lora_A.weight": "a", ".lora_B.weight": "b", ".lora_B.bias": "b_bias", ".lora_embedding_A": "a", ".lora_embedding_B": "b",
           ".lora_magnitude_vector": "magnitude", ".ia3_l": "ia3", ".base_layer.bias": "bias", ".bias": "bias", ".weight": "weight"}


def read_folder(folder: Path) -> tuple[dict, list | None]:
    config, modules = json.loads((folder / "adapter_config.json").read_text()), {}
    for key, value in load_file(str(folder / "adapter_model.safetensors")).items():
        ending = next(e for e in ENDINGS if key.endswith(e))
        name = key.removeprefix("base_model.model.").removesuffix(ending)
        m = modules.setdefault(name, {})
        m[ENDINGS[ending]] = value.double()
        if ENDINGS[ending] == "a":
            r = matched(config.get("rank_pattern"), name, config["r"])
            alpha = matched(config.get("alpha_pattern"), name, config["lora_alpha"])
            m["s"] = alpha / math.sqrt(r) if config["use_rslora"] else alpha / r
    return modules, config.get("alora_invocation_tokens")


def factor(l, w):
    return 1 + w * (l.reshape(-1) - 1)


class Target(nn.Module):
    """A matrix or the embedding under a stack."""

    def __init__(self, original, items, scale=None):
        super().__init__()
        self.w, self.bias = original.weight.double(), None if getattr(original, "bias", None) is None else original.bias.double()
        self.items, self.scale, self.is_embedding = items, scale, isinstance(original, nn.Embedding)

    def forward(self, x):
        out = []
        for t in range(x.shape[1]):
            active = [i for i in self.items if i[0].start <= t]
            last = max((j for j, (item, _) in enumerate(active) if item.rule == "replace"), default=0)
            out.append((self.embed if self.is_embedding else self.linear)(x[:, t], active[last:]))
        y = torch.stack(out, dim=1)
        return y if self.scale is None else y * self.scale

    def blended(self, active):
        """The matrix, or what an adapter's own copy makes of it, wherever in the stack that adapter stands."""
        return self.w + sum(item.weight * (m["weight"] - self.w) for item, m in active if "weight" in m)

    def embed(self, ids, active):
        e = self.blended(active)[ids]
        for item, m in active:
            w = item.weight
            if "a" in m:
                e = e + w * m["s"] * (m["a"].T[ids] @ m["b"].T)
            if "delta" in m:
                e = e + w * m["delta"][ids]
        return e

    def linear(self, x, active):
        bias, outputs = self.bias, []
        for item, m in active:
            if "ia3" in m and m["ia3"].shape[0] == 1:
                x = x * factor(m["ia3"], item.weight)
        y = x @ self.blended(active).T
        for item, m in active:
            w = item.weight
            if "a" in m:
                c = w * m["s"]
                d = c * (x @ m["a"].T @ m["b"].T + m.get("b_bias", 0))
                if "magnitude" in m:
                    scale = m["magnitude"] / torch.linalg.norm(self.w + c * (m["b"] @ m["a"]), dim=1)
                    y = scale * y + scale * d
                else:
                    y = y + d
            if "ia3" in m and m["ia3"].shape[0] != 1:
                f = factor(m["ia3"], w)
                y = y * f
                outputs.append(f)
            if "delta" in m:
                y = y + w * (x @ m["delta"].T)
            if "bias" in m:
                bias = bias + w * (m["bias"] - bias)
        for f in outputs:
            bias = None if bias is None else bias * f
        return y if bias is None else y + bias


def invocation_start(tokens: list[int], sought: list | None) -> int:
    if not sought:
        return 0
    return max(i for i in range(len(tokens) - len(sought) + 1) if tokens[i:i + len(sought)] == sought)


def logits(config: dict, state: dict, items: list[Item], tokens: list[int], owners: dict | None = None) -> np.ndarray:
    """owners: by module, the place in the stack of the one adapter that is left of several that claim it alone."""
    for module, owner in (owners or {}).items():
        for at, item in enumerate(items):
            if at != owner and (item.rule == "replace" or "weight" in item.modules.get(module, {})):
                item.modules.pop(module, None)
    model = tm.build(config, state).double()
    items = [i for i in items if i.weight != 0]
    for item in items:
        item.start = invocation_start(tokens, item.invocation)
    named = dict(model.named_modules())
    for name in sorted({n for i in items for n in i.modules}):
        original, mine = named[name], [(i, i.modules[name]) for i in items if name in i.modules]
        if isinstance(original, (nn.Linear, nn.Embedding)):
            parent, _, leaf = name.rpartition(".")
            setattr(named[parent] if parent else model, leaf, Target(original, mine, getattr(original, "embed_scale", None)))
        else:
            weight = original.weight.data.clone()
            for item, m in mine:
                weight = weight + item.weight * (m["weight"] - weight)
            original.weight = nn.Parameter(weight)
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
