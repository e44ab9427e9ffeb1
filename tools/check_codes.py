#!/usr/bin/env python3
"""Fails if an error code of include/lamina/error.h is dead or incomplete.

    python3 tools/check_codes.py [ROOT]

Each code has a number of its own, rising; a comment that tells its meaning (docs/c-api.md is made of it, see tools/check_docs.py); its
name in lam_code_name; a place in src/ or cli/ that raises it (comparing with it is none); and a test that names it. Comments don't count.
"""
import re
import sys
from pathlib import Path

HEADER, NAMES = "include/lamina/error.h", "src/base/error.c"
CODE = re.compile(r"\bLAM_E_[A-Z0-9_]+\b")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def codes_in(root, folders, endings, strip):
    found = set()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in endings and path.relative_to(root).as_posix() != NAMES:
                found.update(CODE.findall(strip(path.read_text(encoding="utf-8"))))
    return found


def raised(text):
    return re.sub(r"[=!]=\s*LAM_E_\w+|\bcase\s+LAM_E_\w+", "", without_comments(text))


def faults(root):
    header = (root / HEADER).read_text(encoding="utf-8")
    declared = re.findall(r"^\s*(LAM_E_[A-Z0-9_]+) = (\d+),?[ \t]*(/\*.*?\*/)?", header, re.M)
    named = set(re.findall(r"NAME\((LAM_E_\w+)\)", (root / NAMES).read_text(encoding="utf-8")))
    sources = codes_in(root, ["src", "cli"], {".c"}, raised)
    tests = codes_in(root, ["tests"], {".c", ".h"}, without_comments) | codes_in(root, ["tests/cli", "tests/net"], {".t", ".py"}, str)
    before = 0
    for name, number, comment in declared:
        if int(number) <= before:
            yield f"{name}: {number} does not rise"
        before = int(number)
        if not comment:
            yield f"{name}: no comment tells what it means"
        if name not in named:
            yield f"{name}: not in lam_code_name"
        if name not in sources:
            yield f"{name}: nothing raises it"
        if name not in tests:
            yield f"{name}: no test names it"
    for name in sorted((sources | tests | named) - {name for name, _, _ in declared}):
        yield f"{name}: not in {HEADER}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1])
    found = list(faults(root))
    print("\n".join(found) if found else "every error code is told, named, raised and tested")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
