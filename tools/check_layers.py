#!/usr/bin/env python3
"""Fails if a source file includes a header of a layer above its own.

    python3 tools/check_layers.py [ROOT]

A file of src/LAYER may include headers of its own and of lower layers, and the public ones of include/lamina that belong to no layer;
a file of cli/ any of them. Includes of system headers are not looked at.
"""
import re
import sys
from pathlib import Path

LAYERS = ["base", "tensor", "kernels", "format", "text", "adapter", "cache", "model", "import", "compose", "run", "store", "cli"]
RANK = {name: i for i, name in enumerate(LAYERS)}
# Public headers: which layer declares what they hold. error.h is everyone's.
PUBLIC = {"lamina/error.h": "base", "lamina/lamina.h": "import", "lamina/cache.h": "import", "lamina/manifest.h": "compose", "lamina/receipt.h": "compose", "lamina/reuse.h": "import", "lamina/diff.h": "import", "lamina/plan.h": "run", "lamina/merge.h": "run", "lamina/runtime.h": "run", "lamina/store.h": "store", "lamina/pull.h": "store"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def layer_of(header, file):
    """The layer of an included header, or None if it is the file's own neighbour."""
    if header in PUBLIC:
        return PUBLIC[header]
    first = header.split("/")[0]
    if "/" in header:
        return first if first in RANK else "?"
    return None if (file.parent / header).exists() else "?"


def breaches(root):
    files = sorted(list(root.glob("src/*/*.[ch]")) + list(root.glob("cli/*.[ch]")))
    if not files:
        sys.exit(f"{root}: no sources")
    for file in files:
        own = file.parent.name
        if own not in RANK:
            yield f"{file.relative_to(root)}: {own} is no layer"
            continue
        for header in INCLUDE.findall(file.read_text()):
            layer = layer_of(header, file)
            if layer == "?":
                yield f"{file.relative_to(root)}: \"{header}\" belongs to no layer"
            elif layer and RANK[layer] > RANK[own]:
                yield f"{file.relative_to(root)} ({own}) includes \"{header}\" ({layer})"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = list(breaches(root))
    print("\n".join(found) if found else "layers: every include looks down")
    sys.exit(1 if found else 0)


main()
