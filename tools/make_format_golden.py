#!/usr/bin/env python3
"""Writes tests/data/format/: files made by other programs, and what they hold, for the tests of src/format.

Needs the Python packages gguf, safetensors, numpy and torch, and the zstd program. Run from the repository root; the
output is the same for the same package versions (gguf 0.19.0, safetensors 0.8, zstd 1.5.4 were used).
"""
import hashlib
import json
import os
import struct
import subprocess

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

OUT = "tests/data/format"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def put(name, data):
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)


def put_json(name, value):
    put(name, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode())


# ---------------------------------------------------------------- GGUF

def add_keys(w):
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_uint64("t.u64", 2**63 + 5)
    w.add_int64("t.i64", -(2**62))
    w.add_float32("t.f32", 0.1)
    w.add_float64("t.f64", 0.1)
    w.add_bool("t.yes", True)
    w.add_bool("t.no", False)
    w.add_string("t.text", "Grüße, 世界")
    w.add_array("t.strings", ["a", "", "héllo"])
    w.add_array("t.ints", [1, -2, 3])
    w.add_array("t.floats", [0.5, -0.25])
    w.add_array("t.bools", [True, False, True])


def tensors():
    rng = np.random.default_rng(7)
    yield "blk.0.attn_q.weight", rng.standard_normal((3, 64)).astype(np.float32), None
    yield "output_norm.weight", rng.standard_normal(5).astype(np.float32), None
    yield "half", rng.standard_normal((2, 3, 4)).astype(np.float16), None
    for kind in ("Q8_0", "Q4_0", "Q5_1"):
        q = gguf.GGMLQuantizationType[kind]
        yield "m." + kind, gguf.quants.quantize(rng.standard_normal((4, 64)).astype(np.float32), q), q


def add_tensors(w):
    told = []
    for name, array, q in tensors():
        w.add_tensor(name, array, raw_dtype=q)
        kind = q.name if q is not None else {"float32": "F32", "float16": "F16"}[str(array.dtype)]
        shape = gguf.quant_shape_from_byte_shape(array.shape, q) if q is not None else array.shape
        told.append({"name": name, "dtype": kind, "dims": list(reversed([int(n) for n in shape])), "sha256": sha(array.tobytes())})
    return told


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make_gguf():
    w = gguf.GGUFWriter(f"{OUT}/python.gguf", "llama")
    add_keys(w)
    told = add_tensors(w)
    finish(w)
    put_json("python.gguf.json", {"tensors": told})

    w = gguf.GGUFWriter(f"{OUT}/aligned.gguf", "llama")
    w.add_custom_alignment(128)
    add_tensors(w)
    finish(w)

    w = gguf.GGUFWriter(f"{OUT}/split.gguf", "llama", split_max_tensors=2)
    w.add_string("t.text", "split")
    add_tensors(w)
    finish(w)

    w = gguf.GGUFWriter(f"{OUT}/big-endian.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    w.add_uint32("t.u32", 1)
    finish(w)


# ---------------------------------------------------------------- safetensors

def make_safetensors():
    torch.manual_seed(3)
    one = {
        "w.f32": torch.randn(3, 5), "w.f16": torch.randn(4, 2).half(), "w.bf16": torch.randn(2, 2, 2).bfloat16(),
        "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4), "naïve.weight": torch.ones(1),
    }
    save_file(one, f"{OUT}/single.safetensors", metadata={"format": "pt", "note": "a \"quoted\" \\ text"})
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    told = [{"name": k, "dtype": names[t.dtype], "dims": list(t.shape), "sha256": sha(t.contiguous().view(-1).view(torch.uint8).numpy().tobytes())}
            for k, t in sorted(one.items())]
    put_json("single.safetensors.json", {"tensors": told})

    parts = [{"a": torch.randn(2, 3), "c": torch.randn(4)}, {"b": torch.randn(1, 8)}]
    weight_map = {}
    for i, part in enumerate(parts):
        name = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file(part, f"{OUT}/{name}", metadata={"format": "pt"})
        weight_map.update({k: name for k in part})
    index = {"metadata": {"total_size": 72}, "weight_map": weight_map}
    put("model.safetensors.index.json", json.dumps(index, indent=2).encode())

    save_file({"x": torch.zeros(2, dtype=torch.float64)}, f"{OUT}/float64.safetensors")


# ---------------------------------------------------------------- Merkle tree, RFC 9162 section 2.1.1

def leaf(data):
    return hashlib.sha256(b"\0" + data).digest()


def root(leaves):
    """MTH by its recursive definition."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + root(leaves[:k]) + root(leaves[k:])).digest()


def make_merkle():
    inputs = [bytes.fromhex(h) for h in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")]
    classic = [root([leaf(d) for d in inputs[:n]]).hex() for n in range(len(inputs) + 1)]
    many = {str(n): root([leaf(struct.pack("<I", i)) for i in range(n)]).hex() for n in (9, 31, 32, 33, 100, 1000)}
    put_json("merkle.json", {"classic": classic, "u32_leaves": many})


# ---------------------------------------------------------------- .slm from docs/format.md

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def up(value, multiple):
    return -(-value // multiple) * multiple


def residual_bytes(rows, cols, values):
    """values: (row, column, value), sorted."""
    starts = [sum(v[0] < r for v in values) for r in range(rows + 1)]
    assert cols <= 65536
    return (struct.pack(f"<{rows + 1}I", *starts) + struct.pack(f"<{len(values)}H", *(v[1] for v in values))
            + struct.pack(f"<{len(values)}e", *(v[2] for v in values)))


def make_slm():
    # name, dtype number, dims, layout, bytes, layer, role, residual: in execution order
    write_slm("python.slm", [
        ("token_embd.weight", 1, (8, 20), 1, 2 * 16 * 8 * 2, 0xFFFF, 1),
        ("blk.0.attn_norm.weight", 0, (8,), 0, 32, 0, 7),
        ("blk.0.attn_q.weight", 8, (32, 3), 1, up(16 * 34, 64), 0, 3),
        ("blk.1.attn_norm.weight", 0, (7,), 0, 28, 1, 7),
        ("output_norm.weight", 30, (3,), 0, 6, 0xFFFF, 9),
    ])
    write_slm("residual.slm", [
        ("token_embd.weight", 1, (8, 20), 1, 2 * 16 * 8 * 2, 0, 1, [(0, 0, 1.5), (0, 7, -0.25), (19, 3, 65504.0)]),
        ("blk.0.attn_q.weight", 128, (64, 3), 1, up(16 * 36, 64), 0, 3,
         [(0, 5, 0.5), (0, 6, -0.5), (0, 63, 2.0 ** -24), (2, 0, 3.0), (2, 1, -4.0)]),
        ("blk.0.attn_k.weight", 128, (64, 2), 1, up(16 * 36, 64), 0, 4),
        ("output_norm.weight", 30, (3,), 0, 6, 0, 9),
    ])


def write_slm(file, plan):
    """Tensor i's bytes are (i * 37 + position) mod 251."""
    data, places = b"", []
    for i, (_, _, _, _, size, layer, *_) in enumerate(plan):
        same = i > 0 and plan[i - 1][5] == layer
        data += bytes(up(len(data), 64 if same else 65536) - len(data))
        places.append(len(data))
        data += bytes((i * 37 + j) % 251 for j in range(size))
    data += bytes(up(len(data), 64) - len(data))
    residuals_at, table, numbers = len(data), b"", {}
    sparse = [(i, residual_bytes(plan[i][2][1], plan[i][2][0], plan[i][7])) for i in range(len(plan)) if len(plan[i]) > 7]
    end = residuals_at + 16 * len(sparse)
    behind = b""
    for i, part in sparse:
        numbers[i] = len(numbers) + 1
        place = up(end, 64)
        table += struct.pack("<QII", place, len(plan[i][7]), 0)
        behind += bytes(place - end) + part
        end = place + len(part)
    data += table + behind
    data += bytes(up(len(data), 64) - len(data))

    entries, names = b"", b""
    for i in sorted(range(len(plan)), key=lambda i: plan[i][0].encode()):
        name, dtype, dims, layout, size, layer, role = plan[i][:7]
        padded = tuple(dims) + (1,) * (4 - len(dims))
        entries += struct.pack("<IHBB4IQQHHIII8x", len(names), len(name), dtype, len(dims), *padded, places[i], size,
                               layout, layer, numbers.get(i, 0), role, 0)
        names += name.encode()

    text = '{"architecture":"test","n":[1,0.5,"\u20ac"]}'.encode()
    packed = subprocess.run(["zstd", "-19", "--no-check", f"--stream-size={len(text)}", "-c"], input=text,
                            capture_output=True, check=True).stdout
    vocabulary = b"nineteen bytes here"
    leaves = [leaf(data[i:i + 4194304]) for i in range(0, len(data), 4194304)]
    metadata_at = 128 + 32 * len(leaves)
    vocabulary_at = up(metadata_at + len(packed), 64)
    directory_at = up(vocabulary_at + len(vocabulary), 64)
    data_at = up(directory_at + len(entries) + len(names), 65536)
    size = data_at + len(data)
    head = bytearray(struct.pack("<4sHBBIIIIQQQQQQQQ32sII", b"SLM0", 0, 0, 22, 1, len(plan), len(sparse), len(text), metadata_at, len(packed),
                                 directory_at, data_at, len(data), data_at + residuals_at if sparse else 0, 128, size, bytes(32), len(vocabulary), 0))
    inner = hashlib.sha256(b"\0" + bytes(head) + packed + vocabulary + entries + names).digest()
    head[88:120] = hashlib.sha256(b"\1" + inner + root(leaves)).digest()
    head[124:128] = struct.pack("<I", crc32c(head[:124]))
    out = bytearray(size)
    for at, part in ((0, head), (128, b"".join(leaves)), (metadata_at, packed), (vocabulary_at, vocabulary),
                     (directory_at, entries + names), (data_at, data)):
        out[at:at + len(part)] = part
    put(file, bytes(out))


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    make_gguf()
    make_safetensors()
    make_merkle()
    make_slm()
