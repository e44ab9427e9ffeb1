#!/usr/bin/env python3
"""Checks what the documentation says against the tree and the program.

    tools/check_docs.py BUILD_FOLDER      after make; exit status 1 with a line for each thing that is not so
    tools/check_docs.py --write           puts the table of error codes into docs/c-api.md anew

In README.md, CONTRIBUTING.md and docs/**/*.md:
  - every path, and every link to a file, exists; <name>, X and * stand for anything;
  - every test named as `tests/test_X.c:NAME`, `tests/cli/X.t:HEADING` or `tests/net/X.py:NAME` exists;
  - every `make TARGET` has a rule;
  - every `lamina COMMAND` and every option beside it stands in the program's help;
  - every environment variable LAMINA_X, and every identifier lam_x and LAM_X, stands in the sources;
  - the table of error codes in docs/c-api.md is include/lamina/error.h's;
  - docs/c-api.md names every header of include/lamina/, CONTRIBUTING.md every header of tests/, and README.md every page of docs/ itself;
  - a C block under "<!-- file: PATH -->" is that file; every C block with a main compiles;
  - every command of a block under "<!-- runs -->" succeeds, or fails if "# fails" ends its line.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCE_ENDINGS = "c h md py sh mk mjs ts".split()
OUTPUTS = ("build/",)  # made by make, not in the tree
CODES_BEGIN, CODES_END = "<!-- error codes: tools/check_docs.py --write -->\n", "<!-- end of error codes -->\n"

problems = []


def report(page, text):
    problems.append(f"{page.relative_to(ROOT)}: {text}")


def read(path):
    return path.read_text(encoding="utf-8")


def code_of(text):
    """(what stands in backticks, the blocks as lists of a tag line, a language and lines)."""
    blocks, spans, rest = [], [], []
    lines = text.split("\n")
    i = 0
    while i < len(lines):
        fence = re.match(r"```(\w*)$", lines[i])
        if fence:
            end = lines.index("```", i + 1)
            tag = next((line for line in reversed(lines[:i]) if line.strip()), "")
            blocks.append((tag if tag.startswith("<!--") else "", fence[1], lines[i + 1:end]))
            i = end
        else:
            rest.append(lines[i])
        i += 1
    spans += re.findall(r"`([^`]+)`", "\n".join(rest))
    return spans, blocks, "\n".join(rest)


# ---- paths ----

def all_files():
    skipped = {".git", "build", "__pycache__", "node_modules"}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in skipped]
        for name in files:
            yield pathlib.Path(folder, name).relative_to(ROOT).as_posix()


FILES = set(all_files())
FOLDERS = {p.as_posix() for f in FILES for p in pathlib.PurePosixPath(f).parents}


def matches(pattern, names):
    wild = re.sub(r"<\w+>|\*|\bX(?=[_.])|(?<=_)X\b", "\0", pattern)
    expression = re.escape(wild).replace("\0", "[^/]*").replace("\\\0", "[^/]*")
    return any(re.fullmatch(expression, name) for name in names)


def path_exists(path, page):
    here = page.parent.relative_to(ROOT)
    for base in ("", "src/", "include/", f"{here.as_posix()}/"):
        whole = os.path.normpath(base + path) if path else "."
        if whole in FILES or whole in FOLDERS or matches(whole, FILES | FOLDERS):
            return True
    return False


def check_path(word, page):
    word = word.rstrip(".,:;)")
    if word.startswith(("/", "~", "-", "$", "./", "..")) or "://" in word or any(word.startswith(o) or o in word for o in OUTPUTS):
        return
    ending = word.rpartition(".")[2] if "." in word else ""
    if "/" in word and re.fullmatch(r"[\w.<>*/+-]+", word):
        first = word.split("/")[0]
        known = first in FOLDERS or f"src/{first}" in FOLDERS or f"include/{first}" in FOLDERS
        if (known or ending in SOURCE_ENDINGS) and not path_exists(word, page):
            report(page, f"no such path: {word}")
    elif ending in SOURCE_ENDINGS and re.fullmatch(r"[\w.<>*-]+", word):
        if not matches(word, {f.rpartition("/")[2] for f in FILES}):
            report(page, f"no such file: {word}")


def has_test(file, name):
    """A function that the program runs, or the label of a row of one of its tables; the beginning of a line of a case file."""
    text, escaped = read(ROOT / file), re.escape(name)
    if file.endswith(".py"):
        return re.search(rf"^def {escaped}\(lamina, shared\):", text, re.M) and re.search(rf"run_tests\(\[[^\]]*\b{escaped}\b", text)
    if file.endswith(".t"):
        return any(line.startswith(name) for line in text.split("\n"))
    runs = re.search(rf"^static void {escaped}\(void \*\*state\)", text, re.M) and re.search(rf"\b(cmocka_unit_test|TEST)\({escaped}\)", text)
    return bool(runs) or f'{{"{name}",' in text


def check_test(span, page):
    file, colon, name = span.partition(":")
    if colon and re.fullmatch(r"tests/(test_\w+\.c|cli/\w+\.t|net/\w+\.py)", file) and not (file in FILES and has_test(file, name)):
        report(page, f"no such test: {span}")


def check_links(text, page):
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target and not (page.parent / target).exists():
            report(page, f"a link to nothing: {target}")


# ---- make, the program, the sources ----

def make_rules():
    rules = set()
    for makefile in [ROOT / "Makefile", *ROOT.glob("*/*.mk")]:
        for line in read(makefile).split("\n"):
            rule = re.match(r"([a-z][a-z0-9 -]*):(?!=)", line)
            if rule:
                rules.update(rule[1].split())
    return rules


def check_make(line, page, rules):
    for words in re.findall(r"(?<!receipt )\bmake((?:\s+[A-Za-z_]+=\S+)*(?:\s+[a-z][a-z-]*)+)", line):
        for target in words.split():
            if "=" not in target and target not in rules:
                report(page, f"no rule for make {target}")


class Program:
    def __init__(self, path):
        self.path = path
        overview = self.help("--help")
        names = re.findall(r"^  ([a-z]+) ", overview, re.M)
        self.commands = {name: set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", self.help(name, "--help"))) for name in names}
        self.options = set().union(*self.commands.values()) | {"--help", "--version"}

    def help(self, *arguments):
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, check=True).stdout

    def check_line(self, line, page):
        """A command line: every part of a pipe that begins with the program."""
        for part in re.split(r"\||&&|;|\n", line.split("  #")[0]):
            found = re.search(r"(?:^|[\s/(])lamina(?:\.mjs)?\s+(.*)", part)
            if not found:
                continue
            words = re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", found[1]).split()
            if not words or not re.fullmatch(r"[a-z]+|--[a-z]+", words[0]):
                continue
            command, rest = words[0], words[1:]
            if command not in self.commands and command not in self.options:
                report(page, f"no such command: lamina {command}")
                continue
            for word in rest:
                option = re.match(r"--?[a-z][a-z0-9-]*", word)
                if option and option[0] not in self.commands.get(command, self.options):
                    report(page, f"lamina {command} has no option {option[0]}")


def check_spans(spans, blocks, page, program, rules, sources):
    lines = [line for _, language, block in blocks if language in ("", "sh") for line in block]
    for line in spans + lines:
        check_make(line, page, rules)
        program.check_line(line, page)
        for word in line.split():
            check_path(word.split("#")[0], page)
        for name in re.findall(r"\bLAMINA_[A-Z_]+\b|\blam_[a-z0-9_]+\b|\bLAM_[A-Z][A-Z0-9_]*[A-Z0-9]\b", line):
            if not re.search(rf"\b{name}\b", sources):
                report(page, f"not in the sources: {name}")
    for span in spans:
        check_test(span, page)
        if re.fullmatch(r"--[a-z][a-z-]*", span) and span not in program.options:
            report(page, f"no command has an option {span}")


# ---- the C interface ----

def error_codes():
    """(number, name, comment) of every code."""
    text = read(ROOT / "include/lamina/error.h")
    return [(int(number), name, (comment or "").strip())
            for name, number, comment in re.findall(r"(LAM_OK|LAM_E_\w+) = (\d+),?[ \t]*(?:/\*(.*?)\*/)?", text)]


def codes_table():
    rows = "".join(f"| {number} | `{name}` | {comment} |\n" for number, name, comment in error_codes())
    return CODES_BEGIN + "| number | name | meaning |\n| --- | --- | --- |\n" + rows + CODES_END


def write_codes():
    page = ROOT / "docs/c-api.md"
    text = read(page)
    start, end = text.index(CODES_BEGIN), text.index(CODES_END) + len(CODES_END)
    page.write_text(text[:start] + codes_table() + text[end:], encoding="utf-8")


def check_lists():
    for page, folder, ending in (("docs/c-api.md", "include/lamina", ".h"), ("CONTRIBUTING.md", "tests", ".h"), ("README.md", "docs", ".md")):
        for file in sorted((ROOT / folder).glob("*" + ending)):
            name = file.relative_to(ROOT).as_posix()
            if name not in read(ROOT / page):
                report(ROOT / page, f"does not name {name}")


def check_c(blocks, page, scratch):
    for i, (tag, language, block) in enumerate(blocks):
        if language != "c":
            continue
        named = re.match(r"<!-- file: (\S+) -->", tag)
        text = "\n".join(block) + "\n"
        if named and read(ROOT / named[1]) != text:
            report(page, f"its copy of {named[1]} is not that file")
        if "int main(" in text:
            source = pathlib.Path(scratch, f"block{i}.c")
            source.write_text(text, encoding="utf-8")
            compiled = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                                       f"-I{ROOT}/include", source], capture_output=True, text=True)
            if compiled.returncode:
                report(page, f"a C block does not compile:\n{compiled.stderr}")


def check_runs(blocks, page, build, scratch):
    environment = {**os.environ, "LAMINA_CACHE": f"{scratch}/cache", "OUT": scratch}
    for tag, _, block in blocks:
        if tag != "<!-- runs -->":
            continue
        for line in block:
            command, _, remark = line.partition("  #")
            command = re.sub(r"\bbuild/", f"{build}/", command)
            if not command.strip():
                continue
            done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
            if (done.returncode != 0) != remark.strip().startswith("fails"):
                report(page, f"exit status {done.returncode}: {command}\n{done.stdout[-500:]}{done.stderr[-500:]}")


def main():
    if sys.argv[1:] == ["--write"]:
        return write_codes()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    program, rules = Program(build / "lamina"), make_rules()
    sources = "\n".join(read(ROOT / f) for f in FILES
                        if f.endswith((".c", ".h", ".mjs", ".mk")) and f.split("/")[0] in ("src", "include", "cli", "wasm", "fuzz", "tests"))
    sources += read(ROOT / "Makefile") + "\n".join(read(p) for p in (ROOT / "tools").rglob("*.py"))
    if codes_table() not in read(ROOT / "docs/c-api.md"):
        report(ROOT / "docs/c-api.md", "its table of error codes is not error.h's: tools/check_docs.py --write")
    check_lists()
    with tempfile.TemporaryDirectory() as scratch:
        for page in PAGES:
            spans, blocks, rest = code_of(read(page))
            check_links(rest, page)
            check_spans(spans, blocks, page, program, rules, sources)
            check_c(blocks, page, scratch)
            check_runs(blocks, page, build, scratch)
    print("\n".join(problems) if problems else f"{len(PAGES)} pages agree with the tree")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
