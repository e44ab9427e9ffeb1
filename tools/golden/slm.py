"""Writes adapter .slm files by docs/format.md and the head of src/adapter/adapter.h alone: sparse and dense task vectors."""
import hashlib
import json
import struct
from pathlib import Path

import numpy as np

PIECE = 4 << 20
ROLES = {"token_embd": 1, "output_norm": 2, "output": 3, "attn_norm": 16, "attn_q": 17, "attn_k": 18, "attn_v": 19, "attn_output": 20,
         "attn_q_norm": 25, "attn_k_norm": 26, "post_attention_norm": 27, "ffn_norm": 28, "ffn_gate": 29, "ffn_up": 30, "ffn_down": 31,
         "post_ffw_norm": 35}
PARTS = {"bias": 3, "delta_starts": 8, "delta_columns": 9, "delta_values": 10, "delta": 11, "weight": 12}
TYPES = {"<f4": 0, "<f2": 1, "<i4": 26}


def up(x: int, m: int) -> int:
    return -(-x // m) * m


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def merkle(leaves: list[bytes]) -> bytes:
    if len(leaves) < 2:
        return leaves[0] if leaves else sha()
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha(b"\1", merkle(leaves[:k]), merkle(leaves[k:]))


def stored_frame(text: bytes) -> bytes:
    """One zstd frame (RFC 8878) of raw blocks that states its content size."""
    out = struct.pack("<IBI", 0xFD2FB528, 0xA0, len(text))
    chunks = [text[i:i + 65536] for i in range(0, len(text), 65536)]
    for i, chunk in enumerate(chunks):
        out += struct.pack("<I", len(chunk) << 3 | (i + 1 == len(chunks)))[:3] + chunk
    return out


def sparse_parts(delta: np.ndarray) -> dict[str, np.ndarray]:
    """The values of a matrix that are not zero, as CSR."""
    rows, columns = np.nonzero(delta)
    starts = np.searchsorted(rows, np.arange(delta.shape[0] + 1))
    return {"delta_starts": starts.astype("<i4"), "delta_columns": columns.astype("<i4"), "delta_values": delta[rows, columns].astype("<f4")}


def layer_of(module: str) -> int:
    return int(module.split(".")[1]) if module.startswith("blk.") else 0xFFFF


def write(path: Path, method: str, modules: dict[str, dict[str, np.ndarray]]) -> None:
    """modules: by GGUF name, their parts by the endings of tensor names. Bound to no base."""
    metadata = {"bases": [], "method": method, "modules": [{"name": m} for m in sorted(modules)], "name": path.stem, "source": {}}
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":")).encode()
    order = [(m, part) for m in sorted(modules, key=lambda m: (layer_of(m), m)) for part in modules[m]]
    data, entries, before = b"", [], None
    for module, part in order:
        value, layer = modules[module][part], layer_of(module)
        at = 0 if before is None else up(len(data), 64 if layer == before else 65536)
        raw, before = np.ascontiguousarray(value).tobytes(), layer
        data = data.ljust(at, b"\0") + raw
        dims = (*value.shape[::-1], 1, 1, 1)[:4]
        name = f"{module}.{part}".encode()
        role = ROLES[module.rsplit(".", 1)[-1]] | PARTS[part] << 16
        entries.append((name, TYPES[value.dtype.str], value.ndim, dims, at, len(raw), layer, role))
    data = data.ljust(up(len(data), 64), b"\0")
    directory, names = b"", b""
    for name, dtype, rank, dims, at, size, layer, role in sorted(entries):
        directory += struct.pack("<IHBB4IQQHHIII8s", len(names), len(name), dtype, rank, *dims, at, size, 0, layer, 0, role, 0, bytes(8))
        names += name
    leaves = [sha(b"\0", data[i:i + PIECE]) for i in range(0, len(data), PIECE)]
    frame = stored_frame(text)
    metadata_at = 128 + 32 * len(leaves)
    directory_at = up(metadata_at + len(frame), 64)
    data_at = up(directory_at + len(directory) + len(names), 65536)

    def header(root: bytes, crc: int) -> bytes:
        return struct.pack("<4sHBBIIIIQQQQQQQQ32sII", b"SLM0", 0, 1, 22, 0, len(entries), 0, len(text), metadata_at, len(frame),
                           directory_at, data_at, len(data), 0, 128, data_at + len(data), root, 0, crc)

    root = sha(b"\1", sha(b"\0", header(bytes(32), 0), frame, directory, names), merkle(leaves))
    head = header(root, 0)
    file = (header(root, crc32c(head[:124])) + b"".join(leaves) + frame).ljust(directory_at, b"\0") + directory + names
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.ljust(data_at, b"\0") + data)
