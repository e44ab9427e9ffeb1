#!/usr/bin/env python3
"""What merging an adapter into weights and taking it out again does to them, for contrast: Lamina never writes the base.

    python3 tools/merge_drift.py [CYCLES]

Needs numpy and gguf. One matrix of 1024 by 1024, normal with a deviation of 0.02, and LoRAs of rank 16 whose products are 5 % of its
norm. A cycle is W <- store(W + BA); W <- store(W - BA), the adapters of a set of 1 or of 12 in turn, with the type's own rounding each time: float16, bfloat16, or blocks of Q8_0
and Q4_0 (decoded, added to, encoded by gguf's reference). The adapter's product is taken in float32. Printed: ||W - W0|| / ||W0||,
and the share of weights whose stored value changed, after 1, 10, 100 and 1000 cycles.
"""
import sys

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType


def bf16(x):
    return gguf.quants.dequantize(gguf.quants.quantize(x, Q.BF16), Q.BF16)


def blocks(kind):
    return lambda x: gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)


STORES = {"float32": lambda x: x, "float16": lambda x: x.astype(np.float16).astype(np.float32), "bfloat16": bf16, "Q8_0": blocks(Q.Q8_0),
          "Q4_0": blocks(Q.Q4_0)}


def main():
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = np.random.default_rng(7)
    start = (rng.standard_normal((1024, 1024)) * 0.02).astype(np.float32)
    changes = []
    for _ in range(12):
        change = rng.standard_normal((1024, 16)).astype(np.float32) @ rng.standard_normal((16, 1024)).astype(np.float32)
        changes.append(change * np.float32(0.05 * np.linalg.norm(start) / np.linalg.norm(change)))
    print("stored as | adapters | cycles | relative drift | weights that changed")
    for name, store in STORES.items():
        for n in 1, len(changes):
            first = store(start)
            w = first.copy()
            for i in range(cycles):
                w = store(store(w + changes[i % n]) - changes[i % n])
                if i + 1 in (1, 10, 100, 1000) and (n > 1 or i):
                    print(f"{name} | {n} | {i + 1} | {np.linalg.norm(w - first) / np.linalg.norm(first):.2e} | {100 * np.mean(w != first):.1f} %")


main()
