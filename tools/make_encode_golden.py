#!/usr/bin/env python3
"""Blocks as the gguf package (llama.cpp's gguf-py) quantises them: tests/data/encode. Needs numpy and gguf.

    python3 tools/make_encode_golden.py

x.f32: 4096 floats, little-endian: random blocks of many scales, zeros, equal elements, halves between two steps, magnitudes around
the least that float16 holds. TYPE.bin: the same as blocks.
"""
from pathlib import Path

import gguf
import numpy as np

OUT = Path(__file__).resolve().parent.parent / "tests/data/encode"
TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16", "F16"]


def values() -> np.ndarray:
    rng = np.random.default_rng(20261130)
    x = rng.standard_normal((128, 32)).astype(np.float32)
    x *= (2.0 ** rng.integers(-30, 10, (128, 1))).astype(np.float32)
    x[0] = 0.0
    x[1] = 0.75
    x[2] = -3.0
    x[3] = np.arange(32) - 16
    x[4] = np.arange(32) / 2 - 8 + 0.25
    x[5] = (np.arange(32) - 15.5) * 8
    x[6] = np.where(np.arange(32) == 5, 1e-7, 0)
    x[7, 1:] = 0.0
    x[8] = -np.abs(x[8])
    x[9] = np.abs(x[9])
    x[10] = np.where(np.arange(32) % 2, 127.0, 0.5)
    return x.reshape(-1)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    x = values()
    (OUT / "x.f32").write_bytes(x.astype("<f4").tobytes())
    for name in TYPES:
        packed = x.astype("<f2").tobytes() if name == "F16" else gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).tobytes()
        (OUT / f"{name}.bin").write_bytes(packed)


main()
