"""Runs the cases of tests/cli/*.t with a build's lamina:  run_cases.py BUILD_FOLDER [CASE_FILE…]

A case file is a text in which what is indented by two spaces counts:
      $ command            run by sh in a folder that all cases of the file share
      > its next line
      output               standard output and standard error as they came
      a pattern (re)       a line that a regular expression must match as a whole
      [1]                  the exit status, if it is not 0
Commands that need a terminal (terminal.py) are skipped where the system has none to give.
"""
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIMIT = 30  # seconds of a command


def read_cases(path):
    """(line number, command, expected lines) of each."""
    cases = []
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if not line.startswith("  "):
            continue
        line = line[2:]
        if line.startswith("$ "):
            cases.append((number, [line[2:]], []))
        elif line.startswith("> ") and not cases[-1][2]:
            cases[-1][1].append(line[2:])
        elif line == ">" and not cases[-1][2]:
            cases[-1][1].append("")
        else:
            cases[-1][2].append(line)
    return [(number, "\n".join(command), expected) for number, command, expected in cases]


def run(command, folder, environment):
    try:
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT)
        text, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as expired:
        text, status = expired.stdout or b"", "no end within %d s" % LIMIT
    lines = text.decode("utf-8", "backslashreplace").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines + (["[%s]" % status] if status else [])


def same(expected, got):
    def line_same(e, g):
        return re.fullmatch(e[:-5], g) is not None if e.endswith(" (re)") else e == g
    return len(expected) == len(got) and all(map(line_same, expected, got))


def no_terminal():
    """Why there is no pseudo-terminal here, or None."""
    try:
        for fd in os.openpty():
            os.close(fd)
    except OSError as why:
        return str(why)
    return None


def run_file(path, environment, without_terminal):
    """How many cases failed, and how many were skipped."""
    failed = skipped = 0
    name = os.path.splitext(os.path.basename(path))[0]
    folder = tempfile.mkdtemp(prefix="lamina-cli-")
    environment = dict(environment, HOME=folder, LAMINA_CACHE=os.path.join(folder, "cache"), TMPDIR=folder)
    try:
        for number, command, expected in read_cases(path):
            if without_terminal and re.search(r"\bterminal lamina\b", command):
                skipped += 1
                continue
            got = run(command, folder, environment)
            if same(expected, got):
                print("[       OK ] %s line %d" % (name, number))
                continue
            failed += 1
            print("[  FAILED  ] %s line %d: %s" % (name, number, command))
            for line in difflib.unified_diff(expected, got, "expected", "got", lineterm="", n=1):
                print("    " + line)
    finally:
        shutil.rmtree(folder)
    return failed, skipped


def main():
    build = os.path.abspath(sys.argv[1])
    files = sys.argv[2:] or sorted(os.path.join(HERE, f) for f in os.listdir(HERE) if f.endswith(".t"))
    tools = tempfile.mkdtemp(prefix="lamina-cli-")
    os.symlink(os.path.join(build, "lamina"), os.path.join(tools, "lamina"))
    os.symlink(os.path.join(HERE, "terminal.py"), os.path.join(tools, "terminal"))
    environment = {"PATH": tools + os.pathsep + os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm", "DATA": os.path.join(ROOT, "data"),
                   "TESTS": os.path.join(ROOT, "tests"), "BUILD": build}
    try:
        reason = no_terminal()
        counts = [run_file(path, environment, reason) for path in files]
    finally:
        shutil.rmtree(tools)
    skipped = sum(s for _, s in counts)
    if skipped:
        print("[  SKIPPED ] the terminal: %d cases need one, and there is none to be had: %s" % (skipped, reason))
    return 1 if any(f for f, _ in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
