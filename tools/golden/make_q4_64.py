#!/usr/bin/env python3
"""Golden data for tests/test_encode.c: what tools/emulator/q4_64.py, written from docs/format.md, makes of rows of floats.

    pip install numpy gguf==0.19.0
    python tools/golden/make_q4_64.py

tests/data/q4_64/rows.f32       48 rows of 128 floats: Gaussian, heavy tails, ties, zeros, tiny, huge and subnormal ones
tests/data/q4_64/rows.blocks    their blocks
tests/data/q4_64/golden.json    digests: of the decoded rows; of residuals; of the blocks and residuals of a real model's matrices
"""
import hashlib
import json
import sys
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "emulator"))
import q4_64  # noqa: E402

OUT = ROOT / "tests" / "data" / "q4_64"
F = np.float32


def rows() -> np.ndarray:
    rng = np.random.default_rng(20261130)
    x = rng.standard_normal((48, 128)).astype(F)
    x[8:16] = rng.standard_t(2, (8, 128)).astype(F) * F(0.02)
    x[16] = F(0)
    x[17] = F(-0.0)
    x[18] = F(1)
    x[19] = np.where(np.arange(128) % 2 == 0, F(1), F(-1))       # the extreme is there with both signs
    x[20] = np.where(np.arange(128) % 2 == 0, F(-1), F(1))
    x[21] = (rng.integers(-16, 17, 128) * 0.5).astype(F)         # ties of rounding at reach -8
    x[22] = (rng.integers(-8, 8, 128)).astype(F)                 # codes that fit exactly
    x[23] = x[23] * F(2.0 ** -101)                               # around the limit below which a block is zero
    x[24] = x[24] * F(2.0 ** -99)
    x[25] = x[25] * F(2.0 ** -140)                               # subnormal
    x[26] = np.clip(x[26], F(-3), F(3)) * F(2.0 ** 125)          # around 2^126
    x[27] = np.clip(x[27], F(-3), F(3)) * F(2.0 ** 126)
    x[28] = F(np.finfo(F).max)
    x[29] = -F(np.finfo(F).max)
    x[30, :] = 0
    x[30, 70] = F(3.25)                                          # one value alone
    x[31] = np.where(np.arange(128) == 5, F(100), x[31])         # an outlier
    x[32:40] = rng.choice(np.array([-2, -1, 1, 2], dtype=F), (8, 128))  # many errors alike
    return x


def sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def wide_errors(n_rows: int, cols: int) -> np.ndarray:
    i = np.arange(n_rows * cols, dtype=np.uint64)
    return (((i * 2654435761 % 2**32) >> 8).astype(np.float64) / 2**24 - 0.5).astype(F).reshape(n_rows, cols)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with np.errstate(over="ignore"):
        x = rows()
        assert np.isfinite(x).all()
        blocks = q4_64.encode(x)
        golden = {"rows": len(x), "cols": x.shape[1], "decoded": sha(q4_64.decode(blocks).tobytes())}
        golden["outliers"] = {str(n): sha(q4_64.Residual(x, n).tobytes()) for n in (1, 61, 307, 6144)}
        golden["wide"] = {"rows": 3, "cols": 70016, "n": 500, "residual": sha(q4_64.Residual(wide_errors(3, 70016), 500).tobytes())}
    x.astype("<f4").tofile(OUT / "rows.f32")
    blocks.tofile(OUT / "rows.blocks")
    golden["model"] = {"file": "data/stories260K-Q8_0.gguf", "fraction": 0.01, "matrices": {}}
    for t in gguf.GGUFReader(ROOT / "data" / "stories260K-Q8_0.gguf").tensors:
        if len(t.shape) == 2 and t.shape[0] % 64 == 0:
            w = gguf.quants.dequantize(t.data, t.tensor_type).astype(F)
            b, residual = q4_64.encode_with_outliers(w, 0.01)
            golden["model"]["matrices"][t.name] = {"blocks": sha(b.tobytes()), "residual": sha(residual.tobytes())}
    (OUT / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
