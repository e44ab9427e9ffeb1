"""The composition_id that a manifest must have, from what stands in it and docs/format.md alone:  manifest_id.py MANIFEST…

Prints a line for each: "as computed", or both ids. Adapters are taken to act always."""
import hashlib
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from make_identity_golden import composition, digest


def template_digest(path, manifest):
    """Of the template's own bytes, where the manifest carries one."""
    template = manifest["template"]
    if template and "text" in template:
        return "sha256:" + hashlib.sha256(template["text"].encode()).hexdigest()
    if template and "file" in template:
        with open(os.path.join(os.path.dirname(path), template["file"]), "rb") as f:
            return "sha256:" + hashlib.sha256(f.read()).hexdigest()
    return template and template["digest"]


def expected(path):
    with open(path, encoding="utf-8") as f:
        m = json.load(f)
    places = {a["digest"]: i for i, a in enumerate(m["adapters"])}
    case = {"base_digest": m["base"]["digest"], "tokenizer_digest": m["tokenizer"]["digest"], "template_digest": template_digest(path, m),
            "kv_format": m["kv_format"], "policy": m["policy"], "policies": m["module_policies"], "owners": {k: places[v] for k, v in m["module_owners"].items()},
            "adapters": [{"digest": a["digest"], "weight": a["weight"], "rule": a["rule"], "waived": "waiver" in a} for a in m["adapters"]]}
    return m["id"], digest(composition(case))


for name in sys.argv[1:]:
    stated, computed = expected(name)
    print("as computed" if stated == computed else f"{name}: {stated}, computed {computed}")
