"""Adapters of every method and the stacks that they form, in NumPy, written from docs/numeric.md ("Adapters") alone.

    stack = Stack(model, [Item(read_adapter(path, model), weight=1.0)], policy="dual")
    y = stack.project(name, x)          # one matrix, all rows of the prompt
"""
import json
import math
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

F = np.float32
TINY = F(2.0 ** -100)


class Refused(Exception):
    """The contract ends the request: a value is not finite or leaves float16's range."""


# ---- products that the model shares ---------------------------------------------------------------------------------

def quantise(x: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of x in groups of 32, the last padded with zeros: integer codes [n, groups, 32] and scales [n, groups]."""
    if not np.isfinite(x).all():
        raise Refused("an activation is not finite")
    n, width = x.shape
    groups = -(-width // 32)
    padded = np.zeros((n, groups * 32), dtype=F)
    padded[:, :width] = x
    padded = padded.reshape(n, groups, 32)
    amax = np.abs(padded).max(axis=2)
    live = amax >= TINY
    safe = np.where(live, amax, F(1))
    inv = F(top) / safe
    codes = np.where(live[..., None], np.rint(padded * inv[..., None]), F(0))
    return codes.astype(np.int32), np.where(live, safe / F(top), F(0))


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integer products through float64 matrix products: every partial sum is below 2**53, so the result is exact."""
    return a.astype(np.float64) @ b.astype(np.float64).T


def float_product(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The float-matrix rule: groups of 32 columns in order, each from +0."""
    acc = np.zeros((x.shape[0], w.shape[0]), dtype=F)
    columns = np.ascontiguousarray(w.T)
    for start in range(0, x.shape[1], 32):
        part = np.zeros_like(acc)
        for k in range(start, min(start + 32, x.shape[1])):
            part = part + columns[k][None, :] * x[:, k, None]
        acc = acc + part
    return acc


# How factors are kept on block-quantised matrices. Only "q14" is the contract; the others are there to be compared with it.
STAGING = {"q14": 8191, "int8": 127, "f16": None}


class Factor:
    """One staged factor: float32 on a float matrix, else 14-bit codes in groups of 32 along the sum axis."""

    def __init__(self, w: np.ndarray, staged: bool, form: str = "q14"):
        self.w, self.top = np.ascontiguousarray(w, dtype=F), STAGING[form] if staged else None
        if staged and form == "f16":
            self.w = self.w.astype(np.float16).astype(F)
        if self.top:
            self.codes, self.scale = quantise(self.w, self.top)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if not self.top:
            return float_product(self.w, x)
        codes, xs = quantise(x, self.top)
        acc = np.zeros((x.shape[0], self.w.shape[0]), dtype=F)
        for g in range(codes.shape[1]):
            acc = acc + exact(codes[:, g], self.codes[:, g]).astype(F) * (self.scale[:, g] * xs[:, g, None])
        return acc


# ---- artefacts ------------------------------------------------------------------------------------------------------

@dataclass
class Module:
    """What an adapter does to one target. Arrays are float32, in the order of the base's rows."""
    a: np.ndarray | None = None          # [rank, cols]; of an embedding [rank, vocabulary]
    b: np.ndarray | None = None          # [rows, rank]; of an embedding [width, rank]
    s: float = 1.0
    b_bias: np.ndarray | None = None
    magnitude: np.ndarray | None = None
    ia3_output: np.ndarray | None = None
    ia3_input: np.ndarray | None = None
    sparse: tuple | None = None          # starts, columns, values
    delta: np.ndarray | None = None
    weight: np.ndarray | None = None     # a matrix, or a norm as the base's file would hold it
    bias: np.ndarray | None = None


@dataclass
class Artefact:
    modules: dict[str, Module] = field(default_factory=dict)
    invocation: list[int] | None = None

    def module(self, name: str) -> Module:
        return self.modules.setdefault(name, Module())


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + size + begin:8 + size + end]
        if entry["dtype"] == "BF16":
            value = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(F)
        else:
            value = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(F)
        out[name] = value.reshape(entry["shape"])
    return out


def matched(pattern: dict, module: str, default):
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default


MATRICES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
            "up_proj": "ffn_up", "down_proj": "ffn_down"}
NORMS = {"input_layernorm": "attn_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}


def gguf_module(module: str, arch: str) -> str:
    """"model.layers.0.self_attn.q_proj" → "blk.0.attn_q"."""
    leaf = module.split(".")[-1]
    top = {"embed_tokens": "token_embd", "lm_head": "output", "norm": "output_norm"}
    if leaf in top:
        return top[leaf]
    norms = dict(NORMS, post_attention_layernorm="post_attention_norm", pre_feedforward_layernorm="ffn_norm",
                 post_feedforward_layernorm="post_ffw_norm") if arch == "gemma3" else dict(NORMS, post_attention_layernorm="ffn_norm")
    return f"blk.{module.split('.')[2]}.{MATRICES.get(leaf) or norms[leaf]}"


PARTS = {"lora_A.weight": "a", "lora_embedding_A": "a", "lora_B.weight": "b", "lora_embedding_B": "b", "lora_B.bias": "b_bias",
         "lora_magnitude_vector": "magnitude", "lora_magnitude_vector.weight": "magnitude", "ia3_l": "ia3", "base_layer.bias": "bias",
         "bias": "bias", "weight": "weight", "base_layer.weight": None}
KEY = re.compile(r"base_model\.model\.(.*?)\.(" + "|".join(sorted(map(re.escape, PARTS), key=len, reverse=True)) + ")")


def read_peft(folder: Path, model) -> Artefact:
    config = json.loads((folder / "adapter_config.json").read_text())
    out = Artefact(invocation=config.get("alora_invocation_tokens"))
    for key, value in read_safetensors(folder / "adapter_model.safetensors").items():
        module, kind = KEY.fullmatch(key).groups()
        part = PARTS[kind]
        if part is None:  # a copy of the base's own
            continue
        leaf, name = module.split(".")[-1], gguf_module(module, model.arch)
        if part == "ia3":
            part = "ia3_input" if value.shape[0] == 1 and value.shape[1] != 1 else "ia3_output"
            value = value.reshape(-1)
        if model.arch == "llama" and leaf in ("q_proj", "k_proj") and part not in ("a", "ia3_input"):
            heads = model.heads if leaf == "q_proj" else model.kv_heads
            value = value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        if part == "weight" and value.ndim == 1 and model.arch == "gemma3":
            value = value + F(1)
        setattr(out.module(name), part, value)
        if part == "a":
            r = matched(config.get("rank_pattern"), module, config["r"])
            alpha = matched(config.get("alpha_pattern"), module, config["lora_alpha"])
            assert r == value.shape[0], (module, r, value.shape)
            out.module(name).s = alpha / math.sqrt(r) if config["use_rslora"] else alpha / r
    return out


SLM_PARTS = {3: "bias", 8: "starts", 9: "columns", 10: "values", 11: "delta", 12: "weight"}


def read_slm(path: Path) -> Artefact:
    """Sparse and dense artefacts (docs/format.md, src/adapter/adapter.h): the directory says all."""
    raw = path.read_bytes()
    count, = struct.unpack_from("<I", raw, 12)
    directory, data = struct.unpack_from("<QQ", raw, 40)
    out, sparse = Artefact(), {}
    for i in range(count):
        at = directory + 64 * i
        name_at, name_len, dtype, rank, row, rows = struct.unpack_from("<IHBBII", raw, at)
        offset, size = struct.unpack_from("<QQ", raw, at + 24)
        role, = struct.unpack_from("<I", raw, at + 48)
        start = directory + 64 * count + name_at
        module = raw[start:start + name_len].decode().rsplit(".", 1)[0]
        bytes_ = raw[data + offset:data + offset + size]
        if dtype == 30:
            value = (np.frombuffer(bytes_, "<u2").astype(np.uint32) << 16).view(F)
        else:
            value = np.frombuffer(bytes_, {0: "<f4", 1: "<f2", 26: "<i4"}[dtype])
        value = value if dtype == 26 else value.astype(F)
        value = value.reshape(rows, row) if rank == 2 else value
        part = SLM_PARTS[role >> 16]
        if part in ("starts", "columns", "values"):
            sparse.setdefault(module, {})[part] = value.reshape(-1)
        else:
            setattr(out.module(module), part, value)
    for module, parts in sparse.items():
        out.module(module).sparse = (parts["starts"], parts["columns"], parts["values"])
    return out


def read_adapter(path, model) -> Artefact:
    path = Path(path)
    return read_peft(path, model) if path.is_dir() else read_slm(path)


# ---- operators ------------------------------------------------------------------------------------------------------

@dataclass
class Item:
    artefact: Artefact
    weight: float = 1.0
    rule: str = "add"


def factor_of(l: np.ndarray, w: float) -> np.ndarray:
    return l if w == 1 else F(1) + F(w) * (l - F(1))


class Lora:
    def __init__(self, m: Module, w: float, staged: bool, form: str):
        self.m, self.c64 = m, w * m.s
        self.c, self.a, self.b = F(self.c64), Factor(m.a, staged, form), Factor(m.b, staged, form)
        self.shift = None if m.b_bias is None else self.c * m.b_bias

    def branch(self, x):
        return self.b(self.c * self.a(x))

    def apply(self, y, x):
        y = y + self.branch(x)
        return y if self.shift is None else y + self.shift

    def product(self):
        """B A of each row by the float-matrix rule along the rank."""
        return float_product(np.ascontiguousarray(self.m.a.T), self.m.b)

    def materialize(self, u):
        return u + self.c * self.product()

    def pass_shift(self, z):
        return z if self.shift is None else z + self.shift


class Dora(Lora):
    def __init__(self, m, w, staged, form, base_rows: np.ndarray):
        super().__init__(m, w, staged, form)
        w, a, b = base_rows.astype(np.float64), m.a.astype(np.float64), m.b.astype(np.float64)
        rank = range(len(a))
        n_w, n_x, n_d = np.zeros(len(b)), np.zeros(len(b)), np.zeros(len(b))
        q, gram = np.zeros((len(b), len(a))), np.zeros((len(a), len(a)))
        for k in range(w.shape[1]):
            n_w = n_w + w[:, k] * w[:, k]
            q = q + w[:, k, None] * a[None, :, k]
            gram = gram + a[:, k, None] * a[None, :, k]
        for i in rank:
            n_x = n_x + b[:, i] * q[:, i]
            inner = np.zeros(len(b))
            for j in rank:
                inner = inner + gram[i, j] * b[:, j]
            n_d = n_d + b[:, i] * inner
        c = self.c64
        self.scale = (m.magnitude.astype(np.float64) / np.sqrt((n_w + (2 * c) * n_x) + (c * c) * n_d)).astype(F)

    def apply(self, y, x):
        d = self.branch(x)
        if self.shift is not None:
            d = d + self.shift
        return y + ((self.scale - F(1)) * y + self.scale * d)

    def materialize(self, u):
        scale = self.scale[:, None]
        return u + ((scale - F(1)) * u + scale * (self.c * self.product()))

    def pass_shift(self, z):
        shift = F(0) if self.shift is None else self.shift
        return z + ((self.scale - F(1)) * z + self.scale * shift)


class Plain:
    """An operator without a bias of its own."""

    shift = None

    def pass_shift(self, z):
        return z


class Output(Plain):
    def __init__(self, m, w):
        self.factor = factor_of(m.ia3_output, w)

    def apply(self, y, x):
        return y * self.factor

    def materialize(self, u):
        return u * self.factor[:, None]

    def pass_shift(self, z):
        return z * self.factor


class Sparse(Plain):
    def __init__(self, m, w):
        (self.starts, self.columns, self.values), self.w = m.sparse, F(w)

    def rows(self):
        for r in range(len(self.starts) - 1):
            yield r, slice(self.starts[r], self.starts[r + 1])

    def apply(self, y, x):
        acc = np.zeros_like(y)
        for r, own in self.rows():
            for k, v in zip(self.columns[own], self.values[own]):
                acc[:, r] = acc[:, r] + v * x[:, k]
        return y + self.w * acc

    def materialize(self, u):
        u = u.copy()
        for r, own in self.rows():
            k = self.columns[own]
            u[r, k] = u[r, k] + self.w * self.values[own]
        return u

    def embed(self, e, ids):
        for i, r in enumerate(ids):
            own = slice(self.starts[r], self.starts[r + 1])
            k = self.columns[own]
            e[i, k] = e[i, k] + self.w * self.values[own]
        return e


class Dense(Plain):
    def __init__(self, m, w):
        self.delta, self.w = m.delta, F(w)

    def apply(self, y, x):
        return y + self.w * float_product(self.delta, x)

    def materialize(self, u):
        return u + self.w * self.delta

    def embed(self, e, ids):
        return e + self.w * self.delta[ids]


class New(Plain):
    """Another matrix at a weight other than 1."""

    def __init__(self, m, w):
        self.weight, self.w = m.weight, F(w)

    def apply(self, y, x):
        return y + self.w * (float_product(self.weight, x) - y)

    def materialize(self, u):
        return u + self.w * (self.weight - u)

    def embed(self, e, ids):
        return e + self.w * (self.weight[ids] - e)


class EmbeddingLora(Plain):
    """Factors of an embedding stay float32, whatever the embedding's type."""

    def __init__(self, m, w):
        self.a, self.b, self.c = m.a, m.b, F(w * m.s)

    def embed(self, e, ids):
        delta = np.zeros_like(e)
        for k in range(self.a.shape[0]):
            delta = delta + self.b[None, :, k] * (self.c * self.a[k, ids])[:, None]
        return e + delta


# ---- stacks ---------------------------------------------------------------------------------------------------------

class Slot:
    """What a stack does to one target."""

    def __init__(self):
        self.ops, self.input, self.weight, self.bias, self.vector = [], None, None, None, None


class Stack:
    """Adapters in order over a model. `policies` names the matrices whose policy is not `policy`."""

    def __init__(self, model, items: list[Item], policy: str = "dual", policies: dict | None = None, owners: dict | None = None,
                 form: str = "q14"):
        self.model, self.items, self.policy, self.policies = model, [i for i in items if i.weight != 0], policy, policies or {}
        self.owners = {k: items[i] for k, i in (owners or {}).items()}
        self.form, self.slots, self.formed = form, {}, {}

    def starts(self, tokens) -> list[int]:
        """The first row of each item; rows before it are computed without."""
        out = []
        for item in self.items:
            sought = item.artefact.invocation
            at = 0
            if sought:
                found = [i for i in range(len(tokens) - len(sought) + 1) if list(tokens[i:i + len(sought)]) == list(sought)]
                if not found:
                    raise Refused("the invocation is not in the prompt")
                at = found[-1]
            out.append(at)
        return out

    def segments(self, tokens) -> list[tuple[slice, tuple[bool, ...]]]:
        """Runs of rows under one set of active items."""
        starts = self.starts(tokens)
        edges = sorted({0, *starts, len(tokens)})
        return [(slice(a, b), tuple(s <= a for s in starts)) for a, b in zip(edges, edges[1:])]

    def slot(self, name: str, active: tuple[bool, ...]) -> Slot:
        key = name, active
        if key not in self.slots:
            self.slots[key] = self.build(name, [i for i, on in zip(self.items, active) if on])
        return self.slots[key]

    def build(self, name: str, items) -> Slot:
        slot, here = Slot(), [(i, i.artefact.modules[name]) for i in items if name in i.artefact.modules]

        def alone(claims):
            """The position of the one item that has what `claims` tells of."""
            found = [at for at, (item, m) in enumerate(here) if claims(item, m)]
            owned = [at for at in found if here[at][0] is self.owners.get(name)]
            assert owned or len(found) < 2, f"{name} needs an owner"
            return (owned or found or [None])[0]

        at = alone(lambda item, m: item.rule == "replace")
        if at is not None:
            here = [here[at], *(h for h in here[at + 1:] if h[0].rule != "replace")]
        weight, bias = alone(lambda item, m: m.weight is not None), alone(lambda item, m: m.bias is not None)
        for at, (item, m) in enumerate(here):
            self.lay(slot, name, m, item.weight, at == weight, at == bias)
        return slot

    def lay(self, slot: Slot, name: str, m: Module, w: float, has_weight: bool, has_bias: bool) -> None:
        model = self.model
        if name.endswith("norm") and not has_weight:
            return
        if name.endswith("norm"):
            base = model.vector(name + ".weight")
            slot.vector = m.weight if w == 1 else base + F(w) * (m.weight - base)
            return
        if has_weight:
            if w == 1:
                slot.weight = m.weight
            else:
                slot.ops.insert(0, New(m, w))
        if m.a is not None:
            staged = not model.matrix_of(name).is_float
            if name == "token_embd":
                slot.ops.append(EmbeddingLora(m, w))
            elif m.magnitude is not None:
                slot.ops.append(Dora(m, w, staged, self.form, model.matrix_of(name).rows_f32()))
            else:
                slot.ops.append(Lora(m, w, staged, self.form))
        if m.ia3_output is not None:
            slot.ops.append(Output(m, w))
        if m.ia3_input is not None:
            f = factor_of(m.ia3_input, w)
            slot.input = f if slot.input is None else slot.input * f
        if m.sparse is not None:
            slot.ops.append(Sparse(m, w))
        if m.delta is not None:
            slot.ops.append(Dense(m, w))
        if has_bias:
            base = model.vector(name + ".bias")
            slot.bias = m.bias if w == 1 else base + F(w) * (m.bias - base)

    def embed(self, tokens) -> np.ndarray:
        out = []
        for rows, active in self.segments(tokens):
            ids, slot = list(tokens[rows]), self.slot("token_embd", active)
            e = self.model.matrix_of("token_embd").rows_f32(ids) if slot.weight is None else slot.weight[ids]
            e = np.array(e, dtype=F)
            for op in slot.ops:
                e = op.embed(e, ids)
            out.append(e)
        return np.concatenate(out)

    def norm(self, name: str, active) -> np.ndarray:
        vector = self.slot(name, active).vector
        return self.model.vector(name + ".weight") if vector is None else vector

    def project(self, name: str, x: np.ndarray, active) -> np.ndarray:
        """One matrix for rows that share a set of active items."""
        slot = self.slot(name, active)
        bias = self.model.vector(name + ".bias") if slot.bias is None else slot.bias
        for op in slot.ops:
            if bias is not None and isinstance(op, Output):
                bias = bias * op.factor
        changed = bool(slot.ops) or slot.input is not None or slot.weight is not None
        how = self.materialized if changed and self.policies.get(name, self.policy) == "materialize" else self.dual
        y = how(name, slot, x, active)
        return y if bias is None else y + bias

    def dual(self, name, slot, x, active):
        x = x if slot.input is None else x * slot.input
        y = self.model.matrix_of(name)(x) if slot.weight is None else float_product(slot.weight, x)
        for op in slot.ops:
            y = op.apply(y, x)
        return y

    def materialized(self, name, slot, x, active):
        key = name, active
        if key not in self.formed:
            u = np.array(self.model.matrix_of(name).rows_f32() if slot.weight is None else slot.weight, dtype=F)
            for op in slot.ops:
                u = op.materialize(u)
            self.formed[key] = u if slot.input is None else u * slot.input
        y = float_product(self.formed[key], x)
        if all(op.shift is None for op in slot.ops):
            return y
        z = np.zeros(y.shape[1], dtype=F)
        for op in slot.ops:
            z = op.pass_shift(z)
        return y + z
