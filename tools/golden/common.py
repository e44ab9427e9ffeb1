"""Shared pieces of the golden-data scripts: places, the index, seeds, tokens and logits files."""
import hashlib
import json
import os
import re
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", ROOT / "tests" / "golden"))
INDEX = GOLDEN / "index.json"

# The rules a test applies to a case, by name. Each compares with max|reference logit| of the case.
RULES = {
    "float": {"max_abs_over_max_logit": 1e-4,
              "meaning": "float weights: max|logit - reference| <= 1e-4 * max|reference|"},
    "nc1": {"max_abs_over_max_logit": 1e-5,
            "meaning": "quantised weights: reference is the NumPy emulator of nc1"},
    "report": {"meaning": "quantised weights against float32 on the decoded weights: cosine is reported, no limit"},
}


def rng(name: str) -> np.random.Generator:
    """A generator that depends on the name alone, so that one case can be made without the others."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def tokens_for(model: str, vocab: int, count: int = 48, bos: int | None = None) -> list[int]:
    ids = rng("tokens:" + model).integers(3, vocab, count).tolist()
    if bos is not None:
        ids[0] = bos
    return ids


def matched(pattern: dict | None, module: str, default):
    """As PEFT reads rank_pattern and alpha_pattern: the first key that matches."""
    return next((v for k, v in (pattern or {}).items() if re.match(rf"(.*\.)?({k})$", module)), default)


def load_index() -> dict:
    if INDEX.exists():
        return json.loads(INDEX.read_text())
    return {"version": 1, "rules": RULES, "models": {}, "cases": [], "refusals": []}


def save_index(index: dict) -> None:
    index["rules"] = RULES
    index["cases"].sort(key=lambda c: c["id"])
    index["refusals"].sort(key=lambda c: c["id"])
    INDEX.parent.mkdir(parents=True, exist_ok=True)
    lines = ['{"version": %d,' % index["version"], ' "rules": ' + json.dumps(index["rules"]) + ",", ' "models": {']
    lines.append(",\n".join(f'  {json.dumps(k)}: {json.dumps(v)}' for k, v in sorted(index["models"].items())))
    for name in ("cases", "refusals"):
        lines.append((" }," if name == "cases" else " ],") + f'\n "{name}": [')
        lines.append(",\n".join("  " + json.dumps(c) for c in index[name]))
    lines.append(" ]}\n")
    text = "\n".join(lines)
    json.loads(text)
    INDEX.write_text(text)


def put(index: dict, where: str, entry: dict) -> None:
    index[where] = [c for c in index[where] if c["id"] != entry["id"]] + [entry]


class Packed:
    """Logits of many cases in one file: each has `at`, the place of its first row."""

    def __init__(self, rel: str):
        self.rel, self.rows = rel, []

    def add(self, logits: np.ndarray) -> dict:
        data = np.ascontiguousarray(logits, dtype="<f4")
        assert np.isfinite(data).all()
        at = sum(map(len, self.rows))
        self.rows.append(data)
        return {"logits": self.rel, "at": at, "rows": data.shape[0], "vocab": data.shape[1], "max_abs": float(np.abs(data).max())}

    def save(self) -> None:
        (GOLDEN / self.rel).write_bytes(b"".join(r.tobytes() for r in self.rows))


def read_logits(case: dict) -> np.ndarray:
    rows = np.fromfile(GOLDEN / case["logits"], "<f4").reshape(-1, case["vocab"])
    at = case.get("at", 0)
    return rows[at:at + case["rows"]]


def save_logits(rel: str, logits: np.ndarray) -> dict:
    """Write rows of float32 logits, little-endian, no header; returns the fields that describe them."""
    data = np.ascontiguousarray(logits, dtype="<f4")
    assert np.isfinite(data).all()
    path = GOLDEN / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.tobytes())
    return {"logits": rel, "rows": data.shape[0], "vocab": data.shape[1], "max_abs": float(np.abs(data).max()),
            "sha256": hashlib.sha256(data.tobytes()).hexdigest()}
