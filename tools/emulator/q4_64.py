"""Encoding to Q4_64 with outlier residuals in NumPy, written from docs/format.md ("Encoding", "Residuals") alone.

    from q4_64 import encode, encode_with_outliers, decode, Residual
"""
import numpy as np

F = np.float32
REACHES = [F(r) for r in (-8, -8.5, -7.5, -9, -7, -6.5, -6)]


def trial(x: np.ndarray, e: np.ndarray, reach: np.float32):
    """Codes [blocks, 64] of one reach, and A and B, each added up in order."""
    w = np.clip(np.rint(x * (reach / e)[:, None]), F(-8), F(7))
    a, b = np.zeros(len(x)), np.zeros(len(x))
    for i in range(64):
        xi, wi = x[:, i].astype(np.float64), w[:, i].astype(np.float64)
        a = a + xi * wi
        b = b + wi * wi
    return w.astype(np.int8), a, b


def encode(matrix: np.ndarray) -> np.ndarray:
    """Rows of float32, a multiple of 64 long → rows of blocks, uint8."""
    x = np.ascontiguousarray(matrix, dtype=F).reshape(-1, 64)
    if not np.isfinite(x).all():
        raise ValueError("not finite")
    at = np.abs(x).argmax(axis=1)
    e = x[np.arange(len(x)), at]
    zero, wide = np.abs(e) < F(2.0 ** -100), np.abs(e) >= F(2.0 ** 126)
    e = np.where(zero, F(1), e)
    w, a, b = trial(x, e, REACHES[0])
    for reach in REACHES[1:]:
        w2, a2, b2 = trial(x, e, reach)
        better = ((a2 * a2) / b2 > (a * a) / b) & ~wide
        w, a, b = np.where(better[:, None], w2, w), np.where(better, a2, a), np.where(better, b2, b)
    d = np.where(wide, e / F(-8), (a / b).astype(F))
    d, w = np.where(zero, F(0), d).astype("<f4"), np.where(zero[:, None], 0, w)
    codes = (w + 8).astype(np.uint8).reshape(-1, 2, 2, 16)
    out = np.empty((len(x), 36), dtype=np.uint8)
    out[:, :4] = d.view(np.uint8).reshape(-1, 4)
    out[:, 4:] = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 32)
    return out.reshape(matrix.shape[0], -1)


def parts(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales [rows, blocks] and codes less 8 [rows, blocks, 64]."""
    raw = np.ascontiguousarray(blocks).reshape(blocks.shape[0], -1, 36)
    d = np.ascontiguousarray(raw[..., :4]).view("<f4")[..., 0].astype(F)
    qs = raw[..., 4:].reshape(*raw.shape[:2], 2, 16)
    codes = np.concatenate([qs & 15, qs >> 4], axis=-1).astype(np.int16) - 8
    return d, codes.reshape(*raw.shape[:2], 64)


def decode(blocks: np.ndarray) -> np.ndarray:
    d, codes = parts(blocks)
    return (d[..., None] * codes.astype(F)).reshape(blocks.shape[0], -1)


class Residual:
    """starts [rows + 1], columns [n], values [n] (float16) of the largest errors of a matrix."""

    def __init__(self, errors: np.ndarray, n: int):
        rows, cols = errors.shape
        flat = errors.reshape(-1)
        index = largest(errors, n)
        self.cols = cols
        self.starts = np.searchsorted(index, np.arange(rows + 1, dtype=np.int64) * cols).astype("<u4")
        self.columns = index % cols
        self.values = np.clip(flat[index], F(-65504), F(65504)).astype("<f2")

    def tobytes(self) -> bytes:
        return self.starts.tobytes() + self.columns.astype("<u2" if self.cols <= 65536 else "<u4").tobytes() + self.values.tobytes()

    def add_rows(self, x: np.ndarray, rows) -> np.ndarray:
        """Decoded rows plus their values."""
        for i, row in enumerate(rows):
            own = slice(self.starts[row], self.starts[row + 1])
            x[i, self.columns[own]] = x[i, self.columns[own]] + self.values[own].astype(F)
        return x

    def add_product(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        for row in range(len(self.starts) - 1):
            for i in range(self.starts[row], self.starts[row + 1]):
                y[:, row] = y[:, row] + self.values[i].astype(F) * x[:, self.columns[i]]
        return y


def largest(values: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n largest magnitudes, the lower index of equals first; sorted."""
    flat = values.reshape(-1)
    return np.sort(np.lexsort((np.arange(flat.size), -np.abs(flat)))[:n])


def encode_with_outliers(matrix: np.ndarray, fraction: float) -> tuple[np.ndarray, Residual | None]:
    n = int(fraction * (float(matrix.shape[0]) * float(matrix.shape[1])))
    if n == 0:
        return encode(matrix), None
    rest = np.array(matrix, dtype=F, order="C")
    rest.reshape(-1)[largest(rest, n)] = 0
    blocks = encode(rest)
    return blocks, Residual(np.ascontiguousarray(matrix, dtype=F) - decode(blocks), n)


def parse(text: str) -> tuple[float, set[str]]:
    """"q4_64:outliers=0.005,keep=embedding" → fraction and kept matrices."""
    kind, _, options = text.partition(":")
    assert kind == "q4_64", text
    fraction, kept = 0.0, set()
    for option in options.split(",") if options else []:
        key, _, value = option.partition("=")
        if key == "outliers":
            fraction = float(value)
        else:
            assert key == "keep", option
            kept.add({"embedding": "token_embd", "output": "output"}[value])
    return fraction, kept
