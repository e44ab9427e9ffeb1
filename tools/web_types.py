#!/usr/bin/env python3
"""Makes web/package/src/generated.ts, what the browser's package knows of the C headers: error codes, enumerations, and where the fields
of structs lie on wasm32, as clang lays them out.

    tools/web_types.py              fails if the file is not what the headers give
    tools/web_types.py --write      writes it
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "web/package/src/generated.ts"
HEADERS = ["error", "lamina", "reuse", "plan"]
SCALARS = {"unsigned int": "u32", "uint32_t": "u32", "size_t": "u32", "uint64_t": "u64", "int": "i32", "float": "f32", "double": "f64",
           "_Bool": "bool", "bool": "bool", "lam_text_fn": "u32", "lam_progress_fn": "u32"}
HEAD = """// Made of include/lamina/*.h by tools/web_types.py: do not edit.

"""


def enumerations():
    """(name, [(member, value, comment)]) of every enumeration, in order."""
    for header in HEADERS:
        text = (ROOT / f"include/lamina/{header}.h").read_text()
        for body, name in re.findall(r"typedef enum \w*\s*\{(.*?)\}\s*(\w+);", text, re.S):
            members, following = [], 0
            for member, value, comment in re.findall(r"(LAM_\w+)(?:\s*=\s*(\d+))?\s*,?\s*(?:/\*(.*?)\*/)?", re.sub(r"\n\s*/\* [a-z][^\n]*\*/\n", "\n", body), re.S):
                following = int(value) if value else following
                members.append((member, following, " ".join(re.sub(r"\n\s*\*", " ", comment).split())))
                following += 1
            yield name, members


def scalar(kind, enums):
    text = re.fullmatch(r"char\[(\d+)\]", kind)
    if text:
        return f"text{text[1]}"
    if kind.endswith("*") or "*const" in kind or kind.endswith("*const"):
        return "u32"
    if kind in enums:
        return "i32"
    return SCALARS[kind]


def layouts(enums):
    """(struct, size, [(field, offset, type)]) as clang gives them; a struct within another gives its fields as outer_inner."""
    known = {}
    source = "".join(f'#include "lamina/{header}.h"\n' for header in HEADERS)
    dump = subprocess.run(["clang-19", "--target=wasm32", "-std=c11", "-ffreestanding", "-nostdlibinc", "-fsyntax-only", "-Iinclude", "-xc", "-",
                           "-Xclang", "-fdump-record-layouts-complete"], cwd=ROOT, input=source, check=True, capture_output=True, text=True).stdout
    for record in dump.split("*** Dumping AST Record Layout\n")[1:]:
        name = re.match(r"\s*0 \| struct (\w+)", record)
        if not name or not name[1].startswith("lam_"):
            continue
        size = int(re.search(r"\[sizeof=(\d+)", record)[1])
        fields = re.findall(r"^\s*(\d+) \|   (\S.*?) (\w+)$", record, re.M)
        flat = known[name[1]] = []
        for offset, kind, field in fields:
            within = known.get(kind.removeprefix("struct "))
            flat += [(f"{field}_{inner}", int(offset) + at, what) for inner, at, what in within] if within else [(field, int(offset), scalar(kind, enums))]
        yield name[1], size, flat


def generate():
    lists = dict(enumerations())
    codes = lists.pop("lam_code")
    out = [HEAD, "/** Every code of include/lamina/error.h by name. */\nexport const codes = {\n"]
    for member, value, comment in codes:
        out.append(f"    /** {comment} */\n    {member}: {value},\n")
    out.append("} as const;\n\nexport type Code = keyof typeof codes;\n\n")
    for name, members in lists.items():
        out.append(f"export const {name} = {{\n")
        out += [f"    {member}: {value},\n" for member, value, _ in members]
        out.append("} as const;\n\n")
    out.append("/** Structs on wasm32: their size, and each field's offset and type. */\nexport const layouts = {\n")
    for name, size, fields in layouts(set(lists) | {"lam_code"}):
        out.append(f"    {name}: {{\n        size: {size},\n        fields: {{\n")
        out += [f"            {field}: [{offset}, '{kind}'],\n" for field, offset, kind in fields]
        out.append("        },\n    },\n")
    out.append("} as const;\n")
    return "".join(out)


def main():
    text = generate()
    if sys.argv[1:] == ["--write"]:
        OUT.write_text(text)
    elif sys.argv[1:]:
        sys.exit(__doc__)
    elif not OUT.exists() or OUT.read_text() != text:
        sys.exit(f"{OUT.relative_to(ROOT)} is not what the headers give: tools/web_types.py --write")


main()
