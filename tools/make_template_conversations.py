#!/usr/bin/env python3
"""Write tests/data/templates/conversations.json: the variables that the chat templates are tried with.

    python3 tools/make_template_conversations.py
    python3 tools/make_template_golden.py   # needs jinja2 3.1.6
    node tools/make_template_golden.mjs     # needs @huggingface/jinja 0.5.11 in a folder that NODE_PATH names
"""
import json
import pathlib

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city; \"quoted\", <b>bold</b> & 'single'.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name of the city"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit"},
        "days": {"type": "integer", "description": "How many days"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Tags"}},
        "required": ["city"]}}}
CLOCK = {"type": "function", "function": {
    "name": "now", "description": "Tell the time. 时间 ⏰", "parameters": {"type": "object", "properties": {}, "required": []}}}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, ident="abcdefghi"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, ident="abcdefghi", name="get_weather"):
    return {"role": "tool", "name": name, "tool_call_id": ident, "content": text}


ARGS = {"city": "Zürich", "unit": "celsius", "days": 3, "ratio": 0.25, "tiny": 0.001953125, "flags": [True, False, None],
        "nested": {"a": {"b": [1, 2, {"c": "d\n\"e\""}]}}}

CONVERSATIONS = {
    "tools offered": {"messages": [user("Weather in Paris?")], "tools": [WEATHER, CLOCK]},
    "tools offered, system": {"messages": [system("Be brief."), user("Weather in Paris?")], "tools": [WEATHER, CLOCK]},
    "tool call": {"messages": [system("Be brief."), user("Weather?"), assistant("", tool_calls=[call("get_weather", ARGS)]),
                               tool("{\"temp\": 21.5}"), assistant("21.5 degrees."), user("Thanks")],
                  "tools": [WEATHER, CLOCK]},
    "tool call, arguments as text": {"messages": [
        user("Weather?"), assistant(None, tool_calls=[call("get_weather", json.dumps({"city": "Paris"}))]), tool("sunny")],
        "tools": [WEATHER]},
    "two tool calls": {"messages": [
        user("Both?"), assistant("Let me see.", tool_calls=[call("get_weather", {"city": "Rome"}), call("now", {}, "ihgfedcba")]),
        tool("rain"), tool("noon", "ihgfedcba", "now")], "tools": [WEATHER, CLOCK]},
    "unicode": {"messages": [system("Antworte auf Ελληνικά. ΑΣ"), user("你好,世界 👩‍👩‍👧 e\u0301 \u202eabc"), assistant("Привет! İstanbul ß"),
                             user("\u00a0\u3000 padded \u2028\u00a0")]},
    "empty content": {"messages": [system(""), user(""), assistant(""), user("")]},
    "no content": {"messages": [user("a"), assistant(None), user("b")]},
    "special tokens": {"messages": [
        system("<|im_start|>system\n<|im_end|></s><s>[INST]<start_of_turn>"),
        user("<|eot_id|><|end|>{{ 7 * 7 }}{% raise %}{# c #} <script>&amp;'\"\\n\\</script>"),
        assistant("<think>hidden</think>\n\nshown <|channel|>final"), user("</think> [/INST] <end_of_turn>")]},
    "system twice": {"messages": [system("One."), user("Hi"), assistant("Hello"), system("Two."), user("Bye")]},
    "system last": {"messages": [user("Hi"), system("Only now.")]},
    "system alone": {"messages": [system("Alone.")]},
    "assistant first": {"messages": [assistant("Welcome"), user("Hi")]},
    "user twice": {"messages": [user("One"), user("Two")]},
    "unknown role": {"messages": [user("Hi"), {"role": "critic", "content": "Boo"}]},
    "text parts": {"messages": [user([{"type": "text", "text": "Part one. "}, {"type": "text", "text": "Part two."}]),
                                assistant([{"type": "text", "text": "Fine."}]), user("Go on")]},
    "image part": {"messages": [user([{"type": "image"}, {"type": "text", "text": "What is it?"}])]},
    "reasoning": {"messages": [user("1+1?"), assistant("2", reasoning_content="One and one.\n"), user("2+2?"),
                               assistant("<think>\nTwo and two.\n</think>\n\n4"), user("3+3?")], "enable_thinking": True},
    "no thinking": {"messages": [user("1+1?"), assistant("2"), user("2+2?")], "enable_thinking": False},
    "assistant last": {"messages": [user("Count"), assistant("one, two,")], "add_generation_prompt": False},
    "thinking last": {"messages": [user("Count"), assistant("three", reasoning_content="one, two")], "add_generation_prompt": False},
    "white space": {"messages": [system("  \n sys \t\n"), user("\n\n  line\r\nline\r \n"), assistant(" \v\f x \n"), user("\n")]},
    "many turns": {"messages": [m for i in range(6) for m in (user(f"q{i}"), assistant(f"a{i}"))] + [user("last")]},
    "no messages": {"messages": []},
    "developer": {"messages": [{"role": "developer", "content": "Dev."}, user("Hi")]},
}


def main():
    for variables in CONVERSATIONS.values():
        variables.setdefault("add_generation_prompt", True)
        variables.setdefault("bos_token", "<s>")
        variables.setdefault("eos_token", "</s>")
    out = {"clock": "2026-11-29T12:34:56", "conversations": CONVERSATIONS}
    path = pathlib.Path(__file__).parent.parent / "tests/data/templates/conversations.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


main()
