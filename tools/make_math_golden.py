#!/usr/bin/env python3
"""Golden values for tests/test_math.c by mpmath at 60 digits, rounded once to float64.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install mpmath==1.3.0
    /tmp/venv/bin/python tools/make_math_golden.py > tests/data/math/golden.txt

One line a point: function, argument, value (C99 hexadecimal). Arguments of the float32 functions are float32 numbers.
"""
import random
import struct

import mpmath as mp

mp.mp.dps = 60
N = 120


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def gelu_tanh(x):
    u = mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)
    return x / 2 * (1 + mp.tanh(u))


def spread(rng, low, high, extra, as_float):
    points = list(extra) + [rng.uniform(low, high) for _ in range(N)]
    return sorted({as_float(x) for x in points})


def tiny(rng, as_float):
    return [as_float(rng.choice((-1, 1)) * 2.0 ** rng.uniform(-60, 0)) for _ in range(30)]


def main():
    rng = random.Random(20260701)
    same = float
    ln2 = float(mp.log(2))
    edges = [k * ln2 / 2 for k in range(-251, 252, 10)]  # where the reduction changes its integer
    functions = [
        ("exp", mp.exp, f32, spread(rng, -87, 88, [0.0, 88.0, -87.0, 1.0, -1.0] + edges + tiny(rng, f32), f32)),
        ("exp64", mp.exp, same, spread(rng, -700, 700, [0.0, 700.0, -700.0, 1.0] + edges + tiny(rng, same), same)),
        ("log64", mp.log, same, spread(rng, 0.5, 2, [1.0 + s * 2.0**-k for s in (1, -1) for k in range(2, 53, 5)]
                                       + [2.0 ** rng.uniform(-1022, 1023) for _ in range(60)] + [2.0**-1022, 2.0**1023], same)),
        ("tanh64", mp.tanh, same, spread(rng, -21, 21, [0.0, 1e-4, -1e-4, 20.0, 25.0, -300.0] + tiny(rng, same), same)),
        ("silu", lambda x: x / (1 + mp.exp(-x)), f32, spread(rng, -86, 100, [0.0, 1.0, -1.0] + tiny(rng, f32), f32)),
        ("gelu", gelu_tanh, f32, spread(rng, -9, 20, [0.0, 1.0, -1.0, -8.5] + tiny(rng, f32), f32)),
    ]
    angles = spread(rng, 0, 10, [0.0] + [rng.uniform(0, 2.0**20) for _ in range(60)] + [rng.uniform(0, 2.0**31) for _ in range(30)]
                    + [float(mp.pi / 4 * k) for k in (1, 2, 3, 4, 5, 1001, 65537, 1000003)] + [2.0**20, 2.0**31 - 1]
                    + [abs(t) for t in tiny(rng, same)], same)
    functions += [("sin64", mp.sin, same, angles), ("cos64", mp.cos, same, angles)]
    for name, function, _, points in functions:
        for x in points:
            print(name, x.hex(), float(function(mp.mpf(x))).hex())


if __name__ == "__main__":
    main()
