"""An emulator of the numeric contract nc1 in NumPy, written from docs/numeric.md alone, never from the C kernels.

It runs a GGUF model with float32 operations in the contract's order and writes its logits, so that the C program can
be compared with something that shares no code with it. It is slow and keeps no cache: the whole sequence is computed
layer by layer, which the contract says must give the same result.

    python tools/emulator/nc1.py MODEL.gguf --tokens 1,2,3 [--adapter FOLDER[=WEIGHT] ...] -o logits.f32
    python tools/emulator/nc1.py MODEL-f16.gguf --quantise q4_64:outliers=0.01 --tokens 1,2,3    # float weights, encoded first
    python tools/emulator/nc1.py --index            # adds the nc1 logits of every quantised case of tests/golden
    python tools/emulator/nc1.py --index q4_64      # of those that --quantise makes alone
    python tools/emulator/nc1.py --index methods    # of the stacks that make_methods.py made, on quantised twins
"""
import argparse
import math
import re
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

import q4_64
from adapters import F, TINY, Item, Refused, Stack, exact, float_product, quantise, read_adapter

# ---- block formats: integer codes in groups of 32 -------------------------------------------------------------------

def halves(raw: np.ndarray, at: int) -> np.ndarray:
    return np.ascontiguousarray(raw[..., at:at + 2]).view(np.float16)[..., 0].astype(F)


def nibbles(raw: np.ndarray) -> np.ndarray:
    return np.concatenate([raw & 15, raw >> 4], axis=-1).astype(np.int16)


def fifth_bits(raw: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(raw), axis=-1, bitorder="little").astype(np.int16) << 4


def six_bit_pairs(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight minima of six bits from the 12 bytes of Q4_K and Q5_K."""
    a, b, c = raw[..., 0:4], raw[..., 4:8], raw[..., 8:12]
    sc = np.concatenate([a & 63, (c & 15) | ((a >> 6) << 4)], axis=-1)
    mn = np.concatenate([b & 63, (c >> 4) | ((b >> 6) << 4)], axis=-1)
    return sc, mn


class Blocks:
    """A quantised matrix: codes [rows, groups, 32]; per group either a scale `s`, or two integer scales `sc` and `s` = d;
    and for types with a minimum `m` (sign +1 or -1), or two integer minima `mn` with `m` = dmin."""

    def __init__(self, data: np.ndarray, kind: Q):
        rows = data.shape[0]
        size = gguf.GGML_QUANT_SIZES[kind][1]
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(rows, -1, size)
        self.sc = self.mn = self.m = None
        self.sign = F(0)
        getattr(self, kind.name.lower())(raw, rows)
        self.codes = self.codes.reshape(rows, -1, 32).astype(np.int8)
        for name in ("s", "m"):
            if getattr(self, name) is not None:
                setattr(self, name, np.ascontiguousarray(getattr(self, name).reshape(rows, -1), dtype=F))
        for name in ("sc", "mn"):
            if getattr(self, name) is not None:
                setattr(self, name, getattr(self, name).reshape(rows, -1, 2).astype(np.int32))

    def q8_0(self, raw, rows):
        self.s, self.codes = halves(raw, 0), raw[..., 2:].view(np.int8)

    def q4_0(self, raw, rows):
        self.s, self.codes = halves(raw, 0), nibbles(raw[..., 2:]) - 8

    def q4_1(self, raw, rows):
        self.s, self.m, self.sign, self.codes = halves(raw, 0), halves(raw, 2), F(1), nibbles(raw[..., 4:])

    def q5_0(self, raw, rows):
        self.s, self.codes = halves(raw, 0), (nibbles(raw[..., 6:]) | fifth_bits(raw[..., 2:6])) - 16

    def q5_1(self, raw, rows):
        self.s, self.m, self.sign = halves(raw, 0), halves(raw, 2), F(1)
        self.codes = nibbles(raw[..., 8:]) | fifth_bits(raw[..., 4:8])

    def q4_k(self, raw, rows):
        sc, mn = six_bit_pairs(raw[..., 4:16])
        self.s, self.m, self.sign = halves(raw, 0)[..., None] * sc.astype(F), halves(raw, 2)[..., None] * mn.astype(F), F(-1)
        qs = raw[..., 16:].reshape(*raw.shape[:2], 4, 32)
        self.codes = np.stack([qs & 15, qs >> 4], axis=3)

    def q5_k(self, raw, rows):
        sc, mn = six_bit_pairs(raw[..., 4:16])
        self.s, self.m, self.sign = halves(raw, 0)[..., None] * sc.astype(F), halves(raw, 2)[..., None] * mn.astype(F), F(-1)
        high, qs = raw[..., 16:48], raw[..., 48:].reshape(*raw.shape[:2], 4, 32)
        low = np.stack([qs & 15, qs >> 4], axis=3).reshape(*raw.shape[:2], 8, 32)
        bits = (high[..., None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
        self.codes = low | (bits << 4)

    def q6_k(self, raw, rows):
        ql = raw[..., :128].reshape(*raw.shape[:2], 2, 2, 32)
        qh = raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32)
        low = np.stack([ql & 15, ql >> 4], axis=3).reshape(*raw.shape[:2], 2, 4, 32)
        high = (qh >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]) & 3
        self.codes = (low | (high << 4)).astype(np.int16) - 32
        self.sc = raw[..., 192:208].view(np.int8)
        self.s = np.repeat(halves(raw, 208)[..., None], 8, axis=-1)

    def two_bits(self, qs):
        return (qs.reshape(*qs.shape[:2], 2, 1, 32) >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]) & 3

    def q2_k(self, raw, rows):
        self.sc, self.mn = raw[..., :16] & 15, raw[..., :16] >> 4
        self.codes = self.two_bits(raw[..., 16:80])
        self.s = np.repeat(halves(raw, 80)[..., None], 8, axis=-1)
        self.m = np.repeat(halves(raw, 82)[..., None], 8, axis=-1)
        self.sign = F(-1)

    def q3_k(self, raw, rows):
        low = self.two_bits(raw[..., 32:96]).reshape(*raw.shape[:2], 8, 32).astype(np.int16)
        bit = (raw[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
        self.codes = low - np.where(bit == 1, 0, 4)
        packed = raw[..., 96:108]
        nib = np.concatenate([packed[..., :8] & 15, packed[..., :8] >> 4], axis=-1)
        top = (packed[..., None, 8:12] >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]) & 3
        self.sc = (nib | (top.reshape(*raw.shape[:2], 16) << 4)).astype(np.int16) - 32
        self.s = np.repeat(halves(raw, 108)[..., None], 8, axis=-1)


# ---- products -------------------------------------------------------------------------------------------------------

def block_product(w: Blocks, x: np.ndarray) -> np.ndarray:
    codes, xs = quantise(x, 127)
    acc = np.zeros((x.shape[0], w.codes.shape[0]), dtype=F)
    for g in range(w.codes.shape[1]):
        xg, wg, scale = codes[:, g], w.codes[:, g], xs[:, g, None]
        if w.sc is None:
            p = exact(xg, wg)
        else:
            p = exact(xg[:, :16], wg[:, :16]) * w.sc[:, g, 0] + exact(xg[:, 16:], wg[:, 16:]) * w.sc[:, g, 1]
        acc = acc + p.astype(F) * (w.s[:, g] * scale)
        if w.mn is not None:
            big = xg[:, :16].sum(1)[:, None] * w.mn[:, g, 0] + xg[:, 16:].sum(1)[:, None] * w.mn[:, g, 1]
            acc = acc - (w.m[:, g] * scale) * big.astype(F)
        elif w.m is not None:
            u = scale * xg.sum(1)[:, None].astype(F)
            acc = acc + w.m[:, g] * u if w.sign > 0 else acc - w.m[:, g] * u
    return acc


class Encoded:
    """A matrix in Q4_64, encoded here; the product is that of Blocks with s = d, then the residual."""

    is_float = False

    def __init__(self, w: np.ndarray, fraction: float):
        self.data, self.residual = q4_64.encode_with_outliers(w, fraction)
        self.w = Blocks.__new__(Blocks)
        d, codes = q4_64.parts(self.data)
        self.w.sc = self.w.mn = self.w.m = None
        self.w.s = np.repeat(d, 2, axis=1)
        self.w.codes = codes.reshape(len(w), -1, 32).astype(np.int8)

    def rows_f32(self, rows=slice(None)) -> np.ndarray:
        x = q4_64.decode(self.data[rows])
        return self.residual.add_rows(x, np.arange(len(self.data))[rows]) if self.residual else x

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = block_product(self.w, x)
        return self.residual.add_product(y, x) if self.residual else y


class Matrix:
    def __init__(self, tensor):
        self.kind = tensor.tensor_type
        self.is_float = self.kind in (Q.F32, Q.F16, Q.BF16)
        self.data = tensor.data
        self.w = self.rows_f32() if self.is_float else Blocks(self.data, self.kind)

    def rows_f32(self, rows=slice(None)) -> np.ndarray:
        return gguf.quants.dequantize(np.ascontiguousarray(self.data[rows]), self.kind).astype(F)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return float_product(self.w, x) if self.is_float else block_product(self.w, x)


# ---- functions ------------------------------------------------------------------------------------------------------

def tree16(lanes: np.ndarray) -> np.ndarray:
    for half in (8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half:2 * half]
    return lanes[..., 0]


def lane_sum(terms: np.ndarray) -> np.ndarray:
    """Sixteen lanes over the last axis, each summed in order, then the tree. `terms` are already rounded products."""
    width = terms.shape[-1]
    padded = np.zeros((*terms.shape[:-1], -(-width // 16) * 16), dtype=F)
    padded[..., :width] = terms
    padded = padded.reshape(*terms.shape[:-1], -1, 16)
    acc = np.zeros((*terms.shape[:-1], 16), dtype=F)
    for i in range(padded.shape[-2]):
        acc = acc + padded[..., i, :]
    return tree16(acc)


EXP_LOG2E, EXP_MAGIC = F(float.fromhex("0x1.715476p+0")), F(float.fromhex("0x1.8p23"))
EXP_LN2_HIGH, EXP_LN2_LOW = F(float.fromhex("0x1.63p-1")), F(float.fromhex("-0x1.bd0106p-13"))
EXP_C = [F(float.fromhex(c)) for c in ("0x1.6a234ep-10", "0x1.123a6cp-7", "0x1.5558f4p-5", "0x1.555490p-3", "0x1.fffffcp-2")]


def exp(x: np.ndarray) -> np.ndarray:
    clamped = np.clip(x, F(-87), F(88))
    n = (clamped * EXP_LOG2E + EXP_MAGIC) - EXP_MAGIC
    r = (clamped - n * EXP_LN2_HIGH) - n * EXP_LN2_LOW
    p = EXP_C[0]
    for c in EXP_C[1:]:
        p = p * r + c
    e = F(1) + (r + (r * r) * p)
    scaled = (e.view(np.int32) + (n.astype(np.int32) << 23)).view(F)
    return np.where(x < F(-87), F(0), scaled)


def rms_norm(x: np.ndarray, w: np.ndarray, eps: np.float32) -> np.ndarray:
    r = F(1) / np.sqrt(lane_sum(x * x) / F(x.shape[-1]) + eps)
    return (x * r[..., None]) * w


def silu(x: np.ndarray) -> np.ndarray:
    return x / (F(1) + exp(-x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    u = (x * F(1.5957691216)) * (F(1) + F(0.044715) * (x * x))
    return x / (F(1) + exp(-u))


def soft_cap(x: np.ndarray, cap: float | None) -> np.ndarray:
    if not cap:
        return x
    return (np.float64(cap) * np.tanh(x.astype(np.float64) / np.float64(cap))).astype(F)


# ---- the model ------------------------------------------------------------------------------------------------------

class Model:
    def __init__(self, path: str, quantise: str | None = None):
        self.quantise = q4_64.parse(quantise) if quantise else None
        reader = gguf.GGUFReader(path)
        self.fields = {k: v.contents() for k, v in reader.fields.items() if not k.startswith("tokenizer.")}
        self.tensors = {t.name: t for t in reader.tensors}
        self.arch = self.fields["general.architecture"]
        if self.arch not in ("llama", "qwen2", "qwen3", "gemma3"):
            raise SystemExit(f"architecture {self.arch} is not emulated")
        self.layers, self.d = self.key("block_count"), self.key("embedding_length")
        self.heads = self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        self.head_dim = self.key("attention.key_length", self.d // self.heads)
        self.eps = F(self.key("attention.layer_norm_rms_epsilon"))
        self.window = self.key("attention.sliding_window", 0) if self.arch == "gemma3" else 0
        self.period = self.key("attention.sliding_window_pattern", 6)
        self.has_blocks = any(t.tensor_type not in (Q.F32, Q.F16, Q.BF16) for t in self.tensors.values())
        self.has_blocks |= any(self.encodes(name.removesuffix(".weight")) for name, t in self.tensors.items() if len(t.shape) == 2)
        self.cache: dict[str, Matrix] = {}

    def key(self, name, default=None):
        value = self.fields.get(f"{self.arch}.{name}", default)
        if value is None:
            raise SystemExit(f"missing key {self.arch}.{name}")
        return value

    def matrix_of(self, name: str) -> Matrix:
        if name == "output" and "output.weight" not in self.tensors:
            name = "token_embd"
        if name not in self.cache:
            plain = Matrix(self.tensors[name + ".weight"])
            self.cache[name] = Encoded(plain.w, self.quantise[0]) if self.encodes(name) else plain
        return self.cache[name]

    def encodes(self, name: str) -> bool:
        return self.quantise is not None and name not in self.quantise[1] and self.tensors[name + ".weight"].shape[0] % 64 == 0

    def vector(self, name: str) -> np.ndarray | None:
        t = self.tensors.get(name)
        return None if t is None else gguf.quants.dequantize(t.data, t.tensor_type).astype(F)

    def is_local(self, layer: int) -> bool:
        return self.window > 0 and (layer + 1) % self.period != 0

    def rotations(self, layer: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin [position, pair], float64 inside, rounded once."""
        local = self.is_local(layer)
        base = self.key("rope.freq_base_swa", 10000.0) if local else self.key("rope.freq_base", 10000.0)
        dim = self.key("rope.dimension_count", self.head_dim)
        inv = np.exp(-np.arange(0, dim, 2, dtype=np.float64) / dim * np.log(np.float64(base)))
        kind = self.fields.get(f"{self.arch}.rope.scaling.type", "none")
        factor = self.fields.get(f"{self.arch}.rope.scaling.factor", 1.0)
        magnitude = 1.0
        if kind == "linear" and not local:
            inv = inv / factor
        elif kind == "yarn":
            inv, magnitude = self.yarn(inv, base, dim, factor)
        elif kind not in ("none", "linear"):
            raise SystemExit(f"rope scaling {kind} is not emulated")
        if "rope_freqs.weight" in self.tensors:
            inv = inv / self.vector("rope_freqs.weight").astype(np.float64)
        angle = np.arange(count, dtype=np.float64)[:, None] * inv.astype(F).astype(np.float64)
        return (np.cos(angle) * magnitude).astype(F), (np.sin(angle) * magnitude).astype(F)

    def yarn(self, inv, base, dim, factor):
        old = self.key("rope.scaling.original_context_length")

        def turn(rotations):
            return dim * math.log(old / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(turn(32.0)), 0), min(math.ceil(turn(1.0)), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        return inv / factor * ramp + inv * (1 - ramp), 0.1 * math.log(factor) + 1.0

    def rope(self, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
        """x [n, heads, head_dim]; pairs are neighbours for llama and halves for the others."""
        out, pairs = x.copy(), cos.shape[1]
        first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if self.arch == "llama" else \
            (slice(0, pairs), slice(pairs, 2 * pairs))
        a, b, c, s = x[..., first], x[..., second], cos[:, None], sin[:, None]
        out[..., first] = a * c - b * s
        out[..., second] = a * s + b * c
        return out

    def attend(self, q, k, v, window: int) -> np.ndarray:
        """q [n, heads, dim]; k and v per KV head as stored."""
        n, group = q.shape[0], self.heads // self.kv_heads
        scaled = q * F(1.0 / math.sqrt(self.head_dim))
        out = np.empty_like(q)
        position = np.arange(n)
        visible = position[None, :] <= position[:, None]
        if window:
            visible &= position[None, :] > position[:, None] - window
        for h in range(self.heads):
            kh, vh = k[h // group], v[h // group]
            score = np.where(visible, soft_cap(self.scores(scaled[:, h], kh), self.fields.get(f"{self.arch}.attn_logit_softcapping")), F(-np.inf))
            delta = score - score.max(axis=1, keepdims=True)
            p = np.where(delta < F(-64), F(0), exp(np.maximum(delta, F(-80))))
            total_l, total_o = np.zeros(n, dtype=F), np.zeros((n, self.head_dim), dtype=F)
            for start in range(0, n, 256):
                stop = min(start + 256, n)
                total_l = total_l + lane_sum(p[:, start:stop])
                total_o = total_o + self.page_of_values(p, vh, start, stop)
            out[:, h] = total_o / total_l[:, None]
        return out.reshape(n, -1)

    def scores(self, q, k) -> np.ndarray:
        """[n, n] of one head: q [n, dim], already scaled, and k as stored, in float32 or by groups of 32 in integers."""
        score = np.zeros((len(q), len(q)), dtype=F)
        if isinstance(k, tuple):
            (codes, ks), (q_codes, qs) = k, quantise(q, 127)
            for g in range(ks.shape[1]):
                score = score + exact(q_codes[:, g], codes[:, g]).astype(F) * (ks[None, :, g] * qs[:, g, None])
            return score
        for d in range(q.shape[1]):
            score = score + q[:, d, None] * k[None, :, d]
        return score

    def page_of_values(self, p, v, start: int, stop: int) -> np.ndarray:
        """The sum of weight times value of positions start .. stop-1, for every row of p."""
        if isinstance(v, tuple):
            codes, vs = v
            w = p[:, start:stop] * vs[None, start:stop]
            c = w.max(axis=1)
            live = c >= TINY
            safe = np.where(live, c, F(1))
            integers = np.where(live[:, None], np.rint(w * (F(32767) / safe)[:, None]), F(0))
            return exact(integers, codes[start:stop].T).astype(F) * np.where(live, safe / F(32767), F(0))[:, None]
        o = np.zeros((len(p), v.shape[1]), dtype=F)
        for t in range(start, stop):
            o = o + p[:, t, None] * v[t][None, :]
        return o

    def stored(self, x: np.ndarray, kv: str, value: bool):
        """x [n, heads, dim] as it is read back: per head an array, or for i8 codes and scales."""
        if kv == "i8":
            if not np.isfinite(x).all():
                raise Refused("a key or value is not finite")
            return [self.one_scale(x[:, h]) if value else quantise(x[:, h], 127) for h in range(x.shape[1])]
        return list(self.stored_float(x, kv).swapaxes(0, 1))

    def one_scale(self, v: np.ndarray):
        amax = np.abs(v).max(axis=1)
        live = amax >= TINY
        safe = np.where(live, amax, F(1))
        codes = np.where(live[:, None], np.rint(v * (F(127) / safe)[:, None]), F(0))
        return codes.astype(np.int32), np.where(live, safe / F(127), F(0))

    def stored_float(self, x: np.ndarray, kv: str) -> np.ndarray:
        if kv == "f32":
            return x
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        if not np.isfinite(half).all():
            raise Refused("a key or value leaves float16's range")
        return half.astype(F)

    def forward(self, tokens, stack=None, kv=None, first_row=0) -> np.ndarray:
        """Logits of rows first_row … of the prompt. `stack`: a Stack over this model, or None for the base alone."""
        kv, stack = kv or ("f16" if self.has_blocks else "f32"), stack or Stack(self, [])
        n, gemma = len(tokens), self.arch == "gemma3"
        runs = stack.segments(tokens)

        def by_runs(value, step, first=0):
            """step(rows of value, their active items) for each run of rows from `first` on."""
            return np.concatenate([step(value[max(r.start, first):r.stop], on) for r, on in runs if r.stop > first])

        def norm(value, name, first=0):
            return by_runs(value, lambda rows, on: rms_norm(rows, stack.norm(name, on), self.eps), first)

        def project(name, value, first=0):
            return by_runs(value, lambda rows, on: stack.project(name, rows, on), first)

        x = stack.embed(tokens)
        x = x * F(math.sqrt(self.d)) if gemma else x
        for i in range(self.layers):
            at = f"blk.{i}."
            h = norm(x, at + "attn_norm")
            q, k, v = (project(f"{at}attn_{c}", h) for c in "qkv")
            q, k, v = q.reshape(n, self.heads, -1), k.reshape(n, self.kv_heads, -1), v.reshape(n, self.kv_heads, -1)
            if f"{at}attn_q_norm.weight" in self.tensors:
                q, k = norm(q, at + "attn_q_norm"), norm(k, at + "attn_k_norm")
            cos, sin = self.rotations(i, n)
            q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
            y = self.attend(q, self.stored(k, kv, False), self.stored(v, kv, True), self.window if self.is_local(i) else 0)
            y = project(at + "attn_output", y)
            x = x + (norm(y, at + "post_attention_norm") if gemma else y)
            h = norm(x, at + "ffn_norm")
            gate, up = (project(f"{at}ffn_{c}", h) for c in ("gate", "up"))
            y = project(at + "ffn_down", (gelu_tanh(gate) if gemma else silu(gate)) * up)
            x = x + (norm(y, at + "post_ffw_norm") if gemma else y)
        h = norm(x, "output_norm", first_row)
        y = np.concatenate([stack.project("output", h[max(r.start, first_row) - first_row:r.stop - first_row], on)
                            for r, on in runs if r.stop > first_row])
        return soft_cap(y, self.fields.get(f"{self.arch}.final_logit_softcapping"))

    def stack(self, adapters, **more) -> Stack:
        """adapters: (path, weight) or (path, weight, rule) in order."""
        return Stack(self, [Item(read_adapter(path, self), weight, *rule) for path, weight, *rule in adapters], **more)


WITH_INT8 = ("qwen2-k/kmix", "gemma3-k/kmix", "llama-gqa/q4_0")


def make_int8_cases(index: dict) -> None:
    """The int8 cache over more positions than a page holds."""
    from common import GOLDEN, put, save_logits, tokens_for
    for case in [c for c in index["cases"] if c["id"] in WITH_INT8]:
        tokens = tokens_for(case["model"], case["vocab"], 270)
        logits = Model(str(GOLDEN / case["path"])).forward(tokens, kv="i8", first_row=266)
        saved = save_logits(f"{case['model']}/nc1-{case['id'].split('/', 1)[1]}-i8.f32", logits)
        put(index, "cases", {**case, "id": case["id"] + ":i8:nc1", "kv": "i8", "tokens": tokens, "first_row": 266, "rule": "nc1", **saved})
        print(f"{case['id']}: int8 cache", flush=True)


def run_index(only: str | None) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
    from common import GOLDEN, load_index, put, save_index, save_logits
    index = load_index()
    if only in ("i8", "methods"):
        make_int8_cases(index) if only == "i8" else make_method_cases(index)
        return save_index(index)
    make_quantised_cases(index)
    if only:
        return save_index(index)
    index["cases"] = [c for c in index["cases"] if c["rule"] != "nc1" or c.get("quantise") or "+methods:" in c["id"]]
    for case in [c for c in index["cases"] if c["rule"] == "report"]:
        model = Model(str(GOLDEN / case["path"]))
        stack = model.stack([(GOLDEN / a["path"], a["weight"]) for a in case["adapters"]])
        logits = model.forward(case["tokens"], stack, first_row=case["first_row"])
        reference = np.fromfile(GOLDEN / case["logits"], "<f4").reshape(logits.shape)
        cosine = float((logits * reference).sum() / np.linalg.norm(logits) / np.linalg.norm(reference))
        worst = float(np.abs(logits - reference).max() / np.abs(reference).max())
        saved = save_logits(str(Path(case["logits"]).parent / ("nc1-" + case["id"].split("/", 1)[1] + ".f32")), logits)
        put(index, "cases", {**case, "id": case["id"] + ":nc1", "rule": "nc1", **saved})
        print(f"{case['id']}: cosine to HF {cosine:.6f}, max |delta| / max |logit| {worst:.2e}", flush=True)
    make_int8_cases(index)
    make_method_cases(index)
    save_index(index)


QUANTISED = ["q4_64", "q4_64:outliers=0.02", "q4_64:outliers=0.01,keep=embedding"]


def make_quantised_cases(index: dict) -> None:
    """Float GGUF models with and without adapters, imported with --quantise: an id such as "llama-rope3/f16:q4_64:nc1"."""
    from common import GOLDEN, put, save_logits
    index["cases"] = [c for c in index["cases"] if not c.get("quantise") or "+methods:" in c["id"]]
    for case in [c for c in index["cases"] if c["rule"] == "float" and c["form"] == "gguf"]:
        for quantise in QUANTISED if not case["adapters"] else QUANTISED[1:2]:
            if "keep" in quantise and case["model"] != "llama-gqa" or any(not (GOLDEN / a["path"]).is_dir() for a in case["adapters"]):
                continue
            model = Model(str(GOLDEN / case["path"]), quantise)
            stack = model.stack([(GOLDEN / a["path"], a["weight"]) for a in case["adapters"]])
            first = len(case["tokens"]) - 8
            name = case["id"].split("/", 1)[1] + "-" + re.sub("[^a-z0-9.]+", "-", quantise)
            saved = save_logits(f"{case['model']}/nc1-{name}.f32", model.forward(case["tokens"], stack, first_row=first))
            kept = {k: v for k, v in case.items() if not k.startswith("logits") and k != "kv16_first_row"}
            put(index, "cases", {**kept, "id": f"{case['id']}:{quantise}:nc1", "weights": "Q4_64", "quantise": quantise, "rule": "nc1",
                                 "first_row": first, **saved})
            print(f"{case['id']}: {quantise}", flush=True)


# A quantised twin for each base of make_methods.py; some stacks on a base with a residual too.
METHOD_TWINS = {"llama-gqa": "llama-gqa/q4_0", "qwen2-tied": "qwen2-tied/q8_0", "qwen3-wide": "qwen3-wide/legacymix", "gemma3-swa": "gemma3-swa/q8_0"}
WITH_RESIDUAL = ("dora", "dora+dora-b", "ia3-joined", "norms", "sparse", "saved-head=0.5", "stack-00", "stack-01", "stack-18", "stack-19")
K_STACKS = {"dora": [("dora", 1.0)], "dora+rslora": [("dora", 1.0), ("rslora", 1.0)], "ia3+dora=0.5": [("ia3", 1.0), ("dora", 0.5)]}


def make_method_cases(index: dict) -> None:
    """Every stack of make_methods.py on a quantised twin, under both policies and, every fourth one, a mix of them."""
    from common import Packed
    index["cases"] = [c for c in index["cases"] if "+methods:" not in c["id"] or c["rule"] != "nc1"]
    by_id = {c["id"]: c for c in index["cases"]}
    packed = {model: Packed(f"methods/{model}/nc1.f32") for model in (*METHOD_TWINS, "llama-k")}
    for number, case in enumerate(c for c in list(index["cases"]) if "+methods:" in c["id"]):
        name, pack = case["id"].split("+methods:")[1], packed[case["model"]]
        one_stack(index, pack, by_id[METHOD_TWINS[case["model"]]], None, name, case, number % 4 == 0)
        if case["model"] == "llama-gqa" and name in WITH_RESIDUAL:
            one_stack(index, pack, by_id["llama-gqa/f32"], QUANTISED[1], name, case, True)
    for name, stack in K_STACKS.items():
        case = {"tokens": by_id["llama-k/kmix"]["tokens"][:14], "adapters": [{"path": f"methods/llama-k/{a}", "weight": w} for a, w in stack]}
        one_stack(index, packed["llama-k"], by_id["llama-k/kmix"], None, name, case, True)
    for pack in packed.values():
        pack.save()


def one_stack(index, packed, plain, quantise, name, case, mix) -> None:
    from common import GOLDEN, put
    model, tokens, adapters = Model(str(GOLDEN / plain["path"]), quantise), case["tokens"], case["adapters"]
    first, twin = len(tokens) - (8 if name.startswith("alora") else 1), plain["id"].split("/")[1] + (":" + quantise if quantise else "")
    stacked = [(GOLDEN / a["path"], a["weight"], *([a["rule"]] if "rule" in a else [])) for a in adapters]
    matrices = sorted(n.removesuffix(".weight") for n, t in model.tensors.items() if len(t.shape) == 2 and n != "token_embd.weight")
    half = matrices[::2]
    index["models"][plain["model"]]["materialized"] = half
    for policy in ("dual", "materialize", "mixed") if mix else ("dual", "materialize"):
        stack = model.stack(stacked, policy="materialize" if policy == "materialize" else "dual",
                            policies={m: "materialize" for m in half} if policy == "mixed" else {}, owners=case.get("owners"))
        saved = packed.add(model.forward(tokens, stack, first_row=first))
        put(index, "cases", {
            **{k: plain[k] for k in ("arch", "model", "path", "form")}, "tokens": tokens,
            "id": f"{plain['model']}/{twin}+methods:{name}:{policy}:nc1",
            "weights": "Q4_64" if quantise else plain["weights"], **({"quantise": quantise} if quantise else {}), "adapters": adapters, "rule": "nc1",
            **({"owners": case["owners"]} if "owners" in case else {}), **({"policy": policy} if policy != "dual" else {}),
            "first_row": first, **saved})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--tokens", help="comma-separated ids")
    parser.add_argument("--adapter", action="append", default=[], metavar="FOLDER[=WEIGHT]", help="a PEFT folder, or a .slm")
    parser.add_argument("--policy", choices=["dual", "materialize"], default="dual")
    parser.add_argument("--kv", choices=["f16", "f32", "i8"], help="default: as the contract says for the base")
    parser.add_argument("--first-row", type=int, default=0)
    parser.add_argument("--quantise", metavar="TYPE", help="encode float matrices first, as lamina import does")
    parser.add_argument("--index", nargs="?", const="", choices=["", "q4_64", "i8", "methods"])
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    if args.index is not None:
        return run_index(args.index)
    model = Model(args.model, args.quantise)
    adapters = []
    for text in args.adapter:
        folder, _, weight = text.partition("=")
        adapters.append((folder, float(weight or 1)))
    stack = model.stack(adapters, policy=args.policy)
    logits = model.forward([int(t) for t in args.tokens.split(",")], stack, args.kv, args.first_row)
    if args.output:
        Path(args.output).write_bytes(logits.astype("<f4").tobytes())
    for row in logits:
        print(int(row.argmax()), float(row.max()))


if __name__ == "__main__":
    main()
