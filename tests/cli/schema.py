"""Compares docs/manifest.schema.json with what the reader takes:  schema.py MANIFEST…

Every manifest given is one that lamina wrote, and the last one's base and adapters are there: the schema takes all of them, and of the
last one's variants the schema and `lamina check` take the same. A line for each difference, then how many were looked at."""
import copy
import json
import os
import subprocess
import sys

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
D = "sha256:" + "ab" * 32
LINE_BREAKERS = ["\n", "\t", "\u007f", "\u009b", "\u2028", "\u202e", "\u2066", "\u0000"]


def put(*path):
    """A function that puts its last member in the place that the others name."""
    def change(m):
        for step in path[:-2]:
            m = m[step]
        m[path[-2]] = path[-1]
    return change


def drop(*path):
    def change(m):
        for step in path[:-1]:
            m = m[step]
        del m[path[-1]]
    return change


DIGESTS = [("id",), ("base", "digest"), ("tokenizer", "digest"), ("template", "digest"), ("adapters", 0, "digest"), ("base", "parts", "layout"),
           ("adapters", 0, "parts", "factors")]
OBJECTS = [(), ("base",), ("base", "parts"), ("tokenizer",), ("template",), ("adapters", 0), ("adapters", 0, "parts"), ("sampling",)]
TEXTS = [("base", "name"), ("base", "file"), ("adapters", 0, "name"), ("adapters", 0, "file"), ("adapters", 0, "parts", "method")]
BOUNDS = {"temperature": (0, 100), "top_k": (0, 10**9), "top_p": (0, 1), "min_p": (0, 1), "repeat_penalty": (0.01, 100), "seed": (0, 2**53 - 1)}

# Both refuse these.
WRONG = (
    [put(*p, v) for p in DIGESTS for v in (D.upper(), D[:-1], D + "0", D + "\n", D[7:], "", 7, None)]
    + [put(*p, "unknown", 1) for p in OBJECTS]
    + [put(*p, v) for p in OBJECTS if p for v in ([], "x", 7)]
    + [put(*p, v) for p in TEXTS for v in ["", 7, None, *(f"a{c}b" for c in LINE_BREAKERS), "a\n"]]
    + [put(*p, "/absolute") for p in TEXTS if p[-1] == "file"]
    + [drop("type"), drop("base"), drop("base", "digest"), drop("tokenizer", "digest"), drop("template", "digest"), drop("adapters", 0, "digest")]
    + [put("type", v) for v in ("lamina.manifest.v1", "lamina", 7, None)]
    + [put("base", None), put("adapters", None), put("adapters", {}), put("adapters", [7]), put("tokenizer", None), put("receipts", None),
       put("receipts", {}), put("receipts", [7]), put("adapters", [{"digest": "sha256:%064x" % i} for i in range(65)])]
    + [put("adapters", 0, "weight", v) for v in ("1", None, True)]
    + [put("adapters", 0, "rule", v) for v in ("mul", 7, None)]
    + [put("adapters", 0, "accept_tokenizer", v) for v in (1, "true", None)]
    + [put("adapters", 0, "waiver", v) for v in (None, {}, {"adapter_digest": D}, {"base_digest": D}, 7)]
    + [put("policy", v) for v in ("both", 7, None)]
    + [put("module_policies", v) for v in ([], {"blk.0.attn_q": "both"}, {"blk.0.attn_q": None}, None)]
    + [put("module_owners", v) for v in ([], {"blk.0.attn_q": 0}, {"blk.0.attn_q": "oz"}, None)]
    + [put("numeric_contract", v) for v in ("nc2", 1, None)] + [put("kv_format", v) for v in ("int8", 8, None)]
    + [put("window_policy", v) for v in ("all", 7, None)]
    + [put("memory_budget", v) for v in (0, -1, 1.5, 2**53, "1G", None)]
    + [put("template", "file", "t.jinja"), put("template", "text", 7), put("template", "text", "a\0b"), put("prompt", 7), put("prompt", None),
       put("prompt", "a\0b"), put("sampling", None)]
    + [put("sampling", k, v) for k, (least, most) in BOUNDS.items() for v in (least - 0.5, least - 1, most + 1, most * 2, "1", None, True)]
    + [put("sampling", k, 1.5) for k in ("top_k", "seed")]
)
# Both take these.
RIGHT = (
    [lambda m: None, lambda m: (drop("id")(m), drop("template")(m))]
    + [drop(k) for k in ("id", "tokenizer", "module_owners", "policy", "module_policies", "numeric_contract", "kv_format", "window_policy",
                         "prompt", "sampling", "receipts")]
    + [put("memory_budget", v) for v in (10**12, 1e12, 2**53 - 1)]
    + [put("base", "name", v) for v in ("ü", "\U0001f600", "a\u2027b", "a\u00a0b")]
    + [put("prompt", v) for v in ("", "a\n\tb\u2028")]
    + [put("sampling", k, v) for k, bounds in BOUNDS.items() for v in bounds] + [put("sampling", {})]
)
# Only the reader knows: one part says something against another, or a name has no meaning here.
BEYOND = [put("template", "text", "another"), put("module_owners", {"blk.0.attn_q": D}), put("id", D),
          lambda m: m["adapters"].append(m["adapters"][0]),
          put("adapters", 0, "waiver", {"adapter_digest": D, "base_digest": D})]


def reader_takes(manifest):
    with open("variant.json", "w", encoding="utf-8") as f:
        json.dump(manifest, f)
    return subprocess.run(["lamina", "check", "variant.json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def main():
    with open(os.path.join(HERE, "../../docs/manifest.schema.json"), encoding="utf-8") as f:
        schema = json.load(f)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as f:
            manifest = json.load(f)
        for error in validator.iter_errors(manifest):
            print(f"{name}: {error.json_path}: {error.message}")
    for kind, changes, by_schema, by_reader in ("wrong", WRONG, False, False), ("right", RIGHT, True, True), ("beyond", BEYOND, True, False):
        for i, change in enumerate(changes):
            variant = copy.deepcopy(manifest)
            change(variant)
            if validator.is_valid(variant) != by_schema:
                print(f"{kind} {i}: the schema {'refuses' if by_schema else 'takes'} {json.dumps(variant)}")
            if reader_takes(variant) != by_reader:
                print(f"{kind} {i}: the reader {'refuses' if by_reader else 'takes'} {json.dumps(variant)}")
    print(f"{len(sys.argv) - 1} written manifests, {len(WRONG)} wrong variants, {len(RIGHT)} right ones, {len(BEYOND)} beyond the schema")


main()
