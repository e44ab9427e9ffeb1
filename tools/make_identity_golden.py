#!/usr/bin/env python3
"""Expected values for tests/test_json.c and tests/test_identity.c, written from RFC 8785 and docs/format.md alone (standard library only).

    python tools/make_identity_golden.py tests/data/identity

numbers.txt       bits of a double, and the number as ECMAScript prints it
canonical.json    [ [a JSON text, its canonical form] ... ]
compositions.json [ {ingredients of a composition, its canonical JSON, its id} ... ]
"""
import hashlib
import json
import random
import struct
import sys
from pathlib import Path


def number(value):
    """ECMA-262 Number::toString from the digits of repr, which are the shortest and the nearest."""
    if value == 0:
        return "0"
    sign, text = ("-", repr(-value)) if value < 0 else ("", repr(value))
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0") if fraction != "0" or exponent else whole
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    k = len(digits)
    if k <= point <= 21:
        return sign + digits + "0" * (point - k)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    e = point - 1
    return f"{sign}{digits[0]}{'.' if k > 1 else ''}{digits[1:]}e{'+' if e >= 0 else '-'}{abs(e)}"


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def string(text):
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def canonical(value):
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    keys = sorted(value, key=lambda k: k.encode("utf-16-be"))
    return "{" + ",".join(string(k) + ":" + canonical(value[k]) for k in keys) + "}"


def digest(value):
    return "sha256:" + hashlib.sha256(canonical(value).encode()).hexdigest()


def numbers(rng):
    values = [2.0**e for e in range(-1074, 1024)][::3] + [float(10**e) for e in range(0, 30)] + [10.0**-e for e in range(1, 30)]
    values += [rng.uniform(-4, 4) for _ in range(400)] + [round(rng.uniform(-4, 4), rng.randrange(6)) for _ in range(200)]
    while len(values) < 2400:
        value = struct.unpack("<d", rng.randbytes(8))[0]
        if value - value == 0:
            values.append(value)
    return values


def random_key(rng):
    pools = ["abcz019_-", "\u0080\u00f6\u07ff", "\u20ac\ud7ff\ue000\ufb33\uffff", "\U00010000\U0001f600\U0010ffff", "\t\n\r\"\\\x01\x7f"]
    return "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(5)))


def random_value(rng, depth):
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.randrange(-(2**53) + 1, 2**53)
    if kind == 2:
        return rng.choice([0.5, 1e21, 1e-7, 1.0, -0.0, 123456789.125, rng.uniform(-9, 9)])
    if kind <= 4:
        return random_key(rng)
    if kind == 5:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(5))]
    return {random_key(rng): random_value(rng, depth - 1) for _ in range(rng.randrange(7))}


def composition(case):
    """docs/format.md "Identities"."""
    adapters = [
        {"semantic_digest": digest({"type": "lamina.semantic.v0", "base_digest": case["base_digest"],
                                    "adapter_digest": a["digest"],
                                    "activation": {"from_last": a["invocation"]} if "invocation" in a else "always"}),
         "weight": float(a["weight"]), "rule": a.get("rule", "add")} for a in case["adapters"]]
    waivers = [{"adapter_digest": a["digest"], "base_digest": case["base_digest"]} for a in case["adapters"] if a["waived"]]
    policy, differing = case.get("policy", "dual"), case.get("policies", {})
    return {"type": "lamina.composition.v0", "base_digest": case["base_digest"], "tokenizer_digest": case["tokenizer_digest"],
            "template_digest": case["template_digest"], "adapters": adapters, "module_owners": case.get("owners", {}), "waivers": waivers,
            "numeric_contract": "nc1", "policy": {"default": policy, "modules": differing} if differing else policy, "kv_format": case["kv_format"], "window_policy": "model"}


def compositions():
    def sha(name):
        return "sha256:" + hashlib.sha256(name.encode()).hexdigest()

    a, b, c = ({"digest": sha(n), "weight": w, "waived": False} for n, w in (("a", 1.0), ("b", 0.5), ("c", -1.7)))
    plain = {"base_digest": sha("base"), "tokenizer_digest": sha("tokenizer"), "template_digest": sha("template"), "kv_format": "f16",
             "adapters": [a, b]}
    changes = [{}, {"adapters": []}, {"adapters": [a]}, {"adapters": [b]}, {"adapters": [b, a]}, {"adapters": [a, b, c]},
               {"adapters": [a, b | {"weight": 0.25}]}, {"adapters": [a | {"weight": 0.5}, b | {"weight": 1.0}]},
               {"adapters": [a, b | {"weight": 0.0}]}, {"adapters": [a, b | {"weight": 0.1 + 0.2}]}, {"adapters": [a, b | {"weight": 1e-7}]},
               {"adapters": [a, b | {"waived": True}]}, {"adapters": [a | {"waived": True}, b | {"waived": True}]},
               {"adapters": [a, b | {"digest": sha("b'")}]}, {"base_digest": sha("base'")}, {"tokenizer_digest": sha("tokenizer'")},
               {"template_digest": sha("template'")}, {"template_digest": None}, {"kv_format": "f32"}, {"kv_format": "i8"},
               {"adapters": [a, b | {"rule": "replace"}]}, {"adapters": [a | {"rule": "replace"}, b]},
               {"adapters": [a, b | {"invocation": [7]}]}, {"adapters": [a, b | {"invocation": [7, 8]}]},
               {"adapters": [a, b | {"invocation": [8, 7]}]}, {"owners": {"blk.0.attn_q": 0}}, {"owners": {"blk.0.attn_q": 1}},
               {"owners": {"blk.0.attn_k": 0, "blk.0.attn_q": 1}}, {"policy": "materialize"}, {"policies": {"blk.0.ffn_up": "materialize"}},
               {"policy": "materialize", "policies": {"blk.0.ffn_up": "dual"}}]
    out = []
    for change in changes:
        case = plain | change
        whole = composition(case)
        out.append(case | {"canonical": canonical(whole), "id": digest(whole)})
    assert len({c["id"] for c in out}) == len(out)
    return out


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(8785)
    lines = [f"{struct.unpack('<Q', struct.pack('<d', v))[0]:016x} {number(v)}\n" for v in numbers(rng)]
    (folder / "numbers.txt").write_text("".join(lines))
    values = [random_value(rng, 3) for _ in range(150)]
    pairs = [[json.dumps(v, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5), canonical(v)] for v in values]
    (folder / "canonical.json").write_text(json.dumps(pairs, indent=0) + "\n")
    (folder / "compositions.json").write_text(json.dumps(compositions(), indent=1) + "\n")


if __name__ == "__main__":
    main()
