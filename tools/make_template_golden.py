#!/usr/bin/env python3
"""Write tests/data/templates/golden-jinja2.json: what Jinja2, set up as transformers does it, makes of every template
with every conversation (make_template_conversations.py); and golden-snippets.json: what it makes of the snippets in
snippets.txt, one a line, with \\n for a line end, over the variables below; and expected-jinja2.json: what it makes of the
cases in expected-hf-jinja.json where @huggingface/jinja fails."""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """Renders the body of the generation tag."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def environment(clock):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromisoformat(clock).strftime(form)
    return env


def render(env, source, variables):
    try:
        return {"text": env.from_string(source).render(**variables)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


VARIABLES = {
    "s": "Hello, World", "u": "ÀÉ straße ΑΣ ǆ İ 中文 👍", "w": " \t x y \n", "e": "", "n": None, "t": True, "f": False, "i": 7,
    "neg": -7, "x": 2.5, "tiny": 1.5e-07, "big": 1e22, "l": [3, 1, 2], "ls": ["b", "A", "a", "C"], "d": {"b": 1, "a": [1, {"c": None}], "items": "key"},
    "m": [{"role": "user", "content": "Hi", "n": 2}, {"role": "assistant", "content": None, "n": 1}, {"role": "user", "content": "Yo", "n": 3}],
    "html": "<a href='x'>&\"", "q": "it's", "qq": "it's \"x\"", "ctl": "a\u0007\u00a0\u200b\n\t\\", "lines": "a\nb\n\nc\r\nd\u2028e\n"}


FORMATS = "%Y-%m-%d %H:%M:%S %y %j %a %A %b %B %I %p"
DATES = [-30610224000, -30610223999, -11676096000, -2208988800, -86401, -1, 0, 68169599, 68169600, 951782399, 951868799, 951868800,
         1078012800, 1709164800, 1709251199, 1735603200, 1735689599, 1767225599, 4107542400, 13574563199, 253402300799]


def expected_failures(folder, env):
    cases = json.loads((folder / "expected-hf-jinja.json").read_text())
    return [{"template": c["template"], "conversation": c["conversation"], "add_generation_prompt": c["add_generation_prompt"],
             **render(env, (folder / c["template"]).read_text(),
                      {"messages": cases["conversations"][c["conversation"]], "add_generation_prompt": c["add_generation_prompt"],
                       "bos_token": c["bos_token"], "eos_token": c["eos_token"]})}
            for c in cases["cases"] if "error" in c]


def main():
    folder = pathlib.Path(__file__).parent.parent / "tests/data/templates"
    data = json.loads((folder / "conversations.json").read_text())
    env = environment(data["clock"])
    results = {}
    for path in sorted(folder.glob("*.jinja")):
        results[path.name] = {name: render(env, path.read_text(), variables)
                              for name, variables in data["conversations"].items()}
    snippets = [{"source": line.replace("\\n", "\n"), **render(env, line.replace("\\n", "\n"), VARIABLES)}
                for line in (folder / "snippets.txt").read_text().splitlines() if line]
    (folder / "golden-snippets.json").write_text(
        json.dumps({"variables": VARIABLES, "snippets": snippets, "format": FORMATS, "dates": [
            {"seconds": d, "text": (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=d)).strftime(FORMATS)}
            for d in DATES]}, ensure_ascii=False, indent=1) + "\n")
    (folder / "expected-jinja2.json").write_text(
        json.dumps(expected_failures(folder, env), ensure_ascii=False, indent=1) + "\n")
    (folder / "golden-jinja2.json").write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
