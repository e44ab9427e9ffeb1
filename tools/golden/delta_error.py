"""How near an adapter's effect comes to what PEFT makes of it on a quantised base, and what other forms of the factors would give.

    python tools/golden/delta_error.py          # prints the table of tests/golden/README.md

The effect is a difference of logits, composed minus base. Reference: PEFT and transformers in float32 on the decoded weights. An error is
||effect - reference|| / ||reference|| over all logits of a prompt. "nc1" is the whole contract (the emulator's bits, which are Lamina's); in
"factors alone" everything else stays float32, so that only what is done to A, B and their inputs tells.
"""
import warnings

import numpy as np
import torch

import make_methods as mm
import tiny_models as tm
import twin
from common import GOLDEN, load_index
from real_gemma import emulator

nc1 = emulator()
STACKS = [("lora", [("lora", 1.0)]), ("lora, weight 0.1", [("lora", 0.1)]), ("rslora", [("rslora", 1.0)]), ("dora", [("dora", 1.0)]),
          ("rslora + dora", [("rslora", 1.0), ("dora", 1.0)])]


class Decoded:
    """A quantised matrix with a float32 product; its factors are staged as if it were not."""

    is_float = False

    def __init__(self, matrix):
        self.w = matrix.rows_f32()

    def rows_f32(self, rows=slice(None)):
        return self.w[rows]

    def __call__(self, x):
        return nc1.float_product(self.w, x)


class DecodedModel(nc1.Model):
    def matrix_of(self, name):
        matrix = super().matrix_of(name)
        return matrix if isinstance(matrix, Decoded) or matrix.is_float else self.cache.setdefault("decoded " + name, Decoded(matrix))


def error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm((got - want).astype(np.float64)) / np.linalg.norm(want.astype(np.float64)))


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    by_id = {c["id"]: c for c in load_index()["cases"]}
    print("| base | stack | effect / logits | nc1 | factors alone: 14 bits (nc1's) | float16 | int8 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for base, case in [*((b, by_id[i]) for b, i in nc1.METHOD_TWINS.items()), ("llama-k", by_id["llama-k/kmix"])]:
        config, path = tm.MODELS[base][0], GOLDEN / case["path"]
        state = twin.read_state(path, config, list(tm.state_for(base)))
        tokens = mm.prompts(base)["once"]
        plain = tm.logits(tm.build(config, state), tokens)
        for label, stack in STACKS:
            if not all((GOLDEN / "methods" / base / a).is_dir() for a, _ in stack):
                continue
            want = mm.by_peft(base, config, state, stack, tokens) - plain
            files = [(GOLDEN / "methods" / base / a, w) for a, w in stack]
            model, decoded = nc1.Model(str(path)), DecodedModel(str(path))
            found = [error(model.forward(tokens, model.stack(files)) - model.forward(tokens), want)]
            unmoved = decoded.forward(tokens, kv="f32")
            found += [error(decoded.forward(tokens, decoded.stack(files, form=f), kv="f32") - unmoved, want) for f in ("q14", "f16", "int8")]
            size = np.linalg.norm(want) / np.linalg.norm(plain)
            print(f"| {case['id']} | {label} | {size:.2f} | " + " | ".join(f"{e:.1e}" for e in found) + " |", flush=True)


if __name__ == "__main__":
    main()
