#!/usr/bin/env python3
"""Golden data for tests/test_blocks.c: blocks, and digests of what other programs make of them.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0 numpy
    /tmp/venv/bin/python tools/make_block_golden.py tests/data/blocks

<TYPE>.blocks    64 blocks in GGUF's form: random bytes, all bytes alike, extreme scales; scales are finite
golden.txt       "<TYPE> <sha256 of gguf.quants.dequantize(blocks) as little-endian float32>", and for NumPy's conversions
                 "f16_to_f32" (all 65536, NaN as 0) and "f32_to_f16" (the sample below, in its order)
"""
import hashlib
import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

N_BLOCKS = 64
SCALES_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
             "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
EXTREME = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00], dtype=np.uint16)
ALIKE = [0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x55, 0xAA]


def blocks_of(name, rng):
    elements, size = GGML_QUANT_SIZES[T[name]]
    blocks = rng.integers(0, 256, (N_BLOCKS, size), dtype=np.uint8)
    for i, byte in enumerate(ALIKE):
        blocks[i] = byte
    for at in SCALES_AT[name]:
        scales = rng.integers(0, 0x10000, N_BLOCKS, dtype=np.uint16)
        scales = np.where(scales & 0x7C00 == 0x7C00, scales & 0xBFFF, scales).astype(np.uint16)
        scales[:len(ALIKE)] = 0x3C00
        scales[len(ALIKE):len(ALIKE) + len(EXTREME)] = EXTREME
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(N_BLOCKS, 2)
    return blocks


def f32_sample():
    """10^6 bit patterns spread over all, then every midpoint of neighbouring float16 values and its neighbours; no NaN."""
    spread = (np.arange(1_000_000, dtype=np.uint64) * 2654435761 % 2**32).astype(np.uint32)
    spread = np.where(spread & 0x7FFFFFFF > 0x7F800000, spread & 0x80000000, spread)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    upper = np.append(halves[1:], 65536.0)
    middle = ((halves + upper) / 2).astype(np.float32).view(np.uint32)
    ties = np.stack([middle - 1, middle, middle + 1], axis=1).reshape(-1)
    return np.concatenate([spread, ties, ties | 0x80000000]).astype(np.uint32)


def digest(array, dtype):
    return hashlib.sha256(np.ascontiguousarray(array).astype(dtype).tobytes()).hexdigest()


def main():
    out = pathlib.Path(sys.argv[1])
    rng = np.random.default_rng(20260701)
    lines = []
    for name in SCALES_AT:
        blocks = blocks_of(name, rng)
        blocks.tofile(out / f"{name}.blocks")
        values = np.concatenate([dequantize(b, T[name]).reshape(-1) for b in blocks])
        lines.append(f"{name} {digest(values, '<f4')}")
    with np.errstate(all="ignore"):
        wide = np.arange(0x10000, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float32)
        lines.append(f"f16_to_f32 {digest(np.where(np.isnan(wide), np.float32(0), wide), '<f4')}")
        lines.append(f"f32_to_f16 {digest(f32_sample().view(np.float32).astype(np.float16).view(np.uint16), '<u2')}")
    (out / "golden.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
