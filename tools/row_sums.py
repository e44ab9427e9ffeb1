#!/usr/bin/env python3
"""nc1's row sums against float64: the sequential order of groups, and a binary tree over the same groups (docs/numeric.md, "Row sums").

    python tools/row_sums.py [ROWS]      prints the table; needs NumPy

A row has n weights in int8 groups of 32 with float16 scales (as Q8_0) and n activations quantised to 8 bits in groups of 32. Their
magnitudes alternate by 10^4 from group to group, or from element to element within the groups. The error is that of the sum alone: the
reference multiplies the same integers and scales in float64. It is given relative to the sum of the terms' magnitudes. The last two
columns are what coding the activations in 8 bits changes, on the same scale.
"""
import sys

import numpy as np

GROUP = 32


def quantise(x):
    """x[rows, groups, 32] float32 -> codes, scales, by the rule of "Activations"."""
    largest = np.abs(x).max(axis=2, keepdims=True)
    inverse, scale = np.float32(127) / largest, largest / np.float32(127)
    return np.rint(x * inverse).astype(np.int64), scale[..., 0]


def terms(rng, rows, n, spread):
    """Group terms in float32 as the kernels form them, exactly in float64, and what the row would be without 8-bit codes."""
    groups = n // GROUP
    magnitude = np.ones((rows, groups, GROUP), np.float32)
    if spread == "groups":
        magnitude[:, 1::2] = 1e4
    elif spread == "elements":
        magnitude[:, :, 1::2] = 1e4
    x = rng.standard_normal((rows, groups, GROUP), np.float32) * magnitude
    q, xs = quantise(x)
    w = rng.integers(-127, 128, (rows, groups, GROUP))
    d = (rng.uniform(0.5, 1.5, (rows, groups)) * 1e-3).astype(np.float16)
    p = (w * q).sum(axis=2)
    single = p.astype(np.float32) * (d.astype(np.float32) * xs)
    uncoded = ((w * x.astype(np.float64)).sum(axis=2) * d.astype(np.float64)).sum(axis=1)
    return single, p.astype(np.float64) * d.astype(np.float64) * xs.astype(np.float64), uncoded


def float_terms(rng, rows, n):
    """Float weights: sums of 32 products in element order, magnitudes alternating from element to element."""
    x = rng.standard_normal((rows, n // GROUP, GROUP), np.float32)
    x[:, :, 1::2] *= np.float32(1e4)
    w = rng.standard_normal((rows, n // GROUP, GROUP), np.float32)
    total = np.zeros((rows, n // GROUP), np.float32)
    for k in range(GROUP):
        total = total + w[:, :, k] * x[:, :, k]
    return total, w.astype(np.float64) * x.astype(np.float64)


def in_order(t):
    total = np.zeros(len(t), np.float32)
    for g in range(t.shape[1]):
        total = total + t[:, g]
    return total


def tree(t):
    while t.shape[1] > 1:
        if t.shape[1] % 2:
            t = np.concatenate([t, np.zeros((len(t), 1), np.float32)], axis=1)
        t = t[:, 0::2] + t[:, 1::2]
    return t[:, 0]


def error(total, exact):
    relative = np.abs(total.astype(np.float64) - exact.reshape(len(exact), -1).sum(axis=1))
    relative /= np.abs(exact).reshape(len(exact), -1).sum(axis=1)
    return f"{relative.max():.1e} | {np.sqrt((relative ** 2).mean()):.1e}"


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    rng = np.random.default_rng(896)
    print("| row | magnitudes alternate | in order: largest | rms | tree: largest | rms | the 8-bit codes: largest | rms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for n in (896, 4864):
        for spread, name in (("none", "no"), ("groups", "by 10⁴ from group to group"), ("elements", "by 10⁴ within groups")):
            parts = [terms(rng, min(2000, rows - i), n, spread) for i in range(0, rows, 2000)]
            single, exact, uncoded = (np.concatenate(p) for p in zip(*parts))
            print(f"| {n}, 8-bit groups | {name} | {error(in_order(single), exact)} | {error(tree(single), exact)} | "
                  f"{error(uncoded, exact)} |")
        parts = [float_terms(rng, min(1000, rows - i), n) for i in range(0, rows // 4, 1000)]
        got = [(in_order(s), tree(s), e) for s, e in parts]
        del parts
        exact = np.concatenate([g[2] for g in got])
        print(f"| {n}, float weights | by 10⁴ within groups | {error(np.concatenate([g[0] for g in got]), exact)} | "
              f"{error(np.concatenate([g[1] for g in got]), exact)} | | |")
        del got, exact


main()
