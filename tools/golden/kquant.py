"""Random but valid K-quant blocks. The `gguf` package decodes K-quants and cannot encode them."""
import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q


def half(values) -> np.ndarray:
    return np.asarray(values, dtype=np.float16)[..., None].view(np.uint8)


def scaled(build, kind: Q, gen, shape, std: float) -> np.ndarray:
    """Blocks whose decoded values have about the wanted standard deviation (d is a free factor of every block)."""
    rows, cols = shape
    count = rows * cols // 256
    state = gen.bit_generator.state
    trial = gguf.quants.dequantize(build(gen, count, 1.0), kind)
    gen.bit_generator.state = state
    return build(gen, count, std / float(trial.std())).reshape(rows, -1)


def spread(gen, count: int) -> np.ndarray:
    return np.exp(0.3 * gen.standard_normal(count))


def q2_k(gen, n, f):
    # scale nibble low, minimum nibble high: w = d*sc*q - dmin*m, q in 0..3
    sc = gen.integers(4, 16, (n, 16), dtype=np.uint8)
    mn = np.clip(np.rint(sc * gen.uniform(0.7, 1.3, (n, 16))), 0, 15).astype(np.uint8)
    d = f * spread(gen, n)
    return np.concatenate([sc | (mn << 4), gen.integers(0, 256, (n, 64), dtype=np.uint8), half(d), half(1.5 * d)], axis=1)


def q3_k(gen, n, f):
    return np.concatenate([gen.integers(0, 256, (n, 32), dtype=np.uint8), gen.integers(0, 256, (n, 64), dtype=np.uint8),
                           gen.integers(0, 256, (n, 12), dtype=np.uint8), half(f * spread(gen, n))], axis=1)


def pack_scales(sc, mn):
    """Eight 6-bit scales and minima in 12 bytes, as Q4_K and Q5_K hold them."""
    out = np.zeros((sc.shape[0], 12), dtype=np.uint8)
    out[:, 0:4] = sc[:, :4] | ((sc[:, 4:] >> 4) << 6)
    out[:, 4:8] = mn[:, :4] | ((mn[:, 4:] >> 4) << 6)
    out[:, 8:12] = (sc[:, 4:] & 15) | ((mn[:, 4:] & 15) << 4)
    return out


def q45_k(gen, n, f, high):
    top = 32 if high else 16
    sc = gen.integers(8, 64, (n, 8), dtype=np.uint8)
    mn = np.clip(np.rint(sc * gen.uniform(0.8, 1.2, (n, 8))), 0, 63).astype(np.uint8)
    d = f * spread(gen, n)
    parts = [half(d), half(d * (top - 1) / 2), pack_scales(sc, mn)]
    if high:
        parts.append(gen.integers(0, 256, (n, 32), dtype=np.uint8))
    return np.concatenate(parts + [gen.integers(0, 256, (n, 128), dtype=np.uint8)], axis=1)


def q6_k(gen, n, f):
    sc = gen.integers(-128, 128, (n, 16), dtype=np.int16).astype(np.int8).view(np.uint8)
    return np.concatenate([gen.integers(0, 256, (n, 192), dtype=np.uint8), sc, half(f * spread(gen, n))], axis=1)


RANDOM = {
    Q.Q2_K: lambda g, s, std: scaled(q2_k, Q.Q2_K, g, s, std),
    Q.Q3_K: lambda g, s, std: scaled(q3_k, Q.Q3_K, g, s, std),
    Q.Q4_K: lambda g, s, std: scaled(lambda a, b, c: q45_k(a, b, c, False), Q.Q4_K, g, s, std),
    Q.Q5_K: lambda g, s, std: scaled(lambda a, b, c: q45_k(a, b, c, True), Q.Q5_K, g, s, std),
    Q.Q6_K: lambda g, s, std: scaled(q6_k, Q.Q6_K, g, s, std),
}
