#!/usr/bin/env python3
"""The model of cost of docs/performance.md: measured, fitted on some models, held against the others.

    bench/cost_model.py measure performance.json MODEL.gguf … [--threads 1,2] [--context 2048] [--runs 5]
    bench/cost_model.py report performance.json --calibrate NAME,NAME --page docs/performance.md --svg docs/performance.svg

measure runs build/bench/bench_kernels once a thread at the same time for every weight type that the models hold, and `lamina bench`
on each model: on a machine that does nothing else. report writes the tables between the page's <!-- figures --> marks, and the plot.
A token of decode costs

    seconds = Σ bytes of each matrix / rate of its type + a · layers + b · activations + g · attention

and one of prefill the same with multiply-adds for bytes, and the bytes once for every 64 tokens. The rates are the kernels' own, within the bandwidth at which the model's
weights can be read; a, b and g are the only numbers fitted, a set for each number of threads. Rates and bandwidth are medians of the
runs. Needs numpy.
"""
import argparse
import json
import math
import os
import re
import subprocess

import numpy as np

PLAN_ROWS = 64  # rows of a plan of prefill: each reads the weights once
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"


# ---- measuring ----

def output(command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def kernel_rates(program, isa, dtype, threads):
    """Bytes a second of one row from memory and multiply-adds a second of 64 rows, summed over programs that run together."""
    cores = sorted(os.sched_getaffinity(0))
    running = [subprocess.Popen([program, isa, dtype], stdout=subprocess.PIPE, text=True,
                                preexec_fn=lambda core=cores[i % len(cores)]: os.sched_setaffinity(0, {core})) for i in range(threads)]
    streamed = products = 0.0
    for process in running:
        fields = process.communicate()[0].splitlines()[-1].split()
        streamed += float(fields[3]) * 1e9
        products += float(fields[-1]) * 1e9
    return {"bytes": streamed, "products": products}


def shape(lamina, path):
    """The matrices that a token is multiplied by, and the sizes that the rest of its cost depends on."""
    told = json.loads(output([lamina, "inspect", path, "--tensors", "--json"]))
    keys = {k.split(".", 1)[1]: v for k, v in told["keys"].items() if not k.startswith(("general.", "tokenizer."))}
    matrices = [t for t in told["tensors"] if len(t["dims"]) == 2]
    head = [t for t in matrices if t["name"] == "output.weight"] or [t for t in matrices if t["name"] == "token_embd.weight"]
    heads, width = keys["attention.head_count"], keys["embedding_length"]
    head_size = keys.get("attention.key_length", width // heads)
    lengths = {"attn_q_norm": heads * head_size, "attn_k_norm": keys.get("attention.head_count_kv", heads) * head_size}
    norms = sum(lengths.get(t["name"].split(".")[2], width) for t in told["tensors"] if t["name"].startswith("blk.0.") and "norm" in t["name"])
    return {"layers": keys["block_count"],
            "activations": keys["block_count"] * (2 * width + norms + heads * head_size + 2 * keys["feed_forward_length"]),
            "queries_a_kv_head": heads / keys.get("attention.head_count_kv", heads),
            "matrices": [{"type": t["dtype"], "bytes": t["bytes"], "products": t["dims"][0] * t["dims"][1], "head": t in head}
                         for t in matrices if t in head or t["name"].startswith("blk.")]}


def measure(a):
    shapes = {os.path.basename(m): shape(a.lamina, m) for m in a.models}
    out = {"machine": processor(), "load": 0.0, "threads": a.threads, "rates": {}, "models": {}}
    for path in a.models:
        name = os.path.basename(path)
        out["models"][name] = dict(shapes[name], bench={})
        for threads in a.threads:
            parts = "bandwidth,prefill,decode" + (",context" if a.context else "")
            out["load"] = max(out["load"], os.getloadavg()[0] - threads)
            told = json.loads(output([a.lamina, "bench", path, "--only", parts, "--prefill", str(a.prefill), "-n", str(a.tokens),
                                      "-t", str(threads), "--runs", str(a.runs), "--json"] + (["-c", str(a.context)] if a.context else [])))
            out["isa"] = told["isa"]
            out["models"][name]["bench"][str(threads)] = told
            print(name, threads, [round(r["tokens_per_second"]["median"], 1) for r in told["rates"]], flush=True)
    for threads in a.threads:
        for dtype in sorted({m["type"] for s in shapes.values() for m in s["matrices"]}):
            out["rates"].setdefault(str(threads), {})[dtype] = kernel_rates(a.kernels, out["isa"], dtype, threads)
            print(dtype, threads, out["rates"][str(threads)][dtype], flush=True)
    with open(a.data, "w") as f:
        json.dump(out, f, indent=1)


def processor():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "unknown processor")


# ---- the model ----

def rows(data, calibrate):
    """One a measured rate: its seconds a token, those that the kernels account for, and what the fitted numbers multiply."""
    out = []
    for name, m in data["models"].items():
        for threads, told in m["bench"].items():
            rates, most = data["rates"][threads], told["bandwidth_bytes_per_second"]["median"]
            for r in told["rates"]:
                prefill = r["part"] == "prefill"
                if prefill:
                    kernels = sum(x["products"] / r["tokens"] / rates[x["type"]]["products"] if x["head"] else
                                  x["products"] / rates[x["type"]]["products"] + x["bytes"] / PLAN_ROWS / most for x in m["matrices"])
                else:
                    kernels = sum(x["bytes"] / min(rates[x["type"]]["bytes"], most) for x in m["matrices"])
                kv = r.get("kv_bytes", 0) * m["queries_a_kv_head"]
                out.append({"model": name.removesuffix(".gguf"), "threads": threads, "part": r["part"],
                            "calibrates": any(c in name for c in calibrate), "seconds": 1 / r["tokens_per_second"]["median"],
                            "kernels": kernels, "features": [m["activations"]] if prefill else [m["layers"], m["activations"], kv],
                            "position": r["position"] + r["tokens"] // 2})
    return out


def fit(group):
    """Least squares of the relative error, no number below 0."""
    known = [r for r in group if r["calibrates"]]
    use = list(range(len(group[0]["features"])))
    while use:
        a = np.array([[r["features"][i] / r["seconds"] for i in use] for r in known])
        y = np.array([(r["seconds"] - r["kernels"]) / r["seconds"] for r in known])
        x = np.linalg.lstsq(a, y, rcond=None)[0]
        if (x >= 0).all():
            break
        use.pop(int(np.argmin(x * np.abs(a).sum(axis=0))))
    numbers = [0.0] * len(group[0]["features"])
    for i, value in zip(use, x if use else []):
        numbers[i] = float(value)
    return numbers


def predict(all_rows):
    fitted = {}
    for threads in sorted({r["threads"] for r in all_rows}, key=int):
        for kind in ("decode", "prefill"):
            group = [r for r in all_rows if r["threads"] == threads and (r["part"] == "prefill") == (kind == "prefill")]
            if not group:
                continue
            numbers = fitted[kind, threads] = fit(group)
            for r in group:
                r["terms"] = [n * f for n, f in zip(numbers, r["features"])]
                r["predicted"] = r["kernels"] + sum(r["terms"])
    return fitted


# ---- the page ----

def tables(data, all_rows, fitted, plot):
    machine = f"{data['machine']}, {data['isa']}"
    runs = next(iter(next(iter(data["models"].values()))["bench"].values()))["runs"]
    out = [f"Measured on {machine}; medians of {runs} runs."]
    if data["load"] > 0.5:
        out.append(f"Other programs kept {data['load']:.1f} processors' worth of work waiting meanwhile: these figures are too low, and uneven.")
    out.append("")
    if plot:
        out += [f"![predicted and measured speed]({plot})", ""]
    for kind, title in (("decode", "Decode"), ("prefill", "Prefill")):
        group = [r for r in all_rows if (r["part"] == "prefill") == (kind == "prefill")]
        out += [f"**{title}**", "",
                "| model | threads | position | measured, tokens/s | predicted | predicted over measured | kernels | layers | activations | attention | |",
                "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
        for r in group:
            terms = r["terms"] if kind == "decode" else [0.0] + r["terms"] + [0.0]
            parts = " | ".join(f"{100 * t / r['predicted']:.0f} %" for t in [r["kernels"]] + terms)
            out.append(f"| {r['model']} | {r['threads']} | {r['position']} | {1 / r['seconds']:.1f} | {1 / r['predicted']:.1f} | "
                       f"{100 * (r['seconds'] / r['predicted'] - 1):+.1f} % | {parts} | {'calibrates' if r['calibrates'] else ''} |")
        held = [abs(r["seconds"] / r["predicted"] - 1) for r in group if not r["calibrates"]]
        if held:
            out += ["", f"Of {len(held)} figures that calibrated nothing, {sum(e <= 0.1 for e in held)} are within 10 %; "
                        f"the largest error is {100 * max(held):.1f} %."]
        out.append("")
    out += ["**Kernels** (all threads together)", "", "| type | threads | one row, GB/s | 64 rows, 10⁹ multiply-adds/s |", "| --- | --- | --- | --- |"]
    for threads, rates in data["rates"].items():
        out += [f"| {t} | {threads} | {v['bytes'] / 1e9:.1f} | {v['products'] / 1e9:.0f} |" for t, v in rates.items()]
    out += ["", "**Bandwidth** (reading the weights where they are mapped)", "", "| model | threads | GB/s |", "| --- | --- | --- |"]
    for name, m in data["models"].items():
        out += [f"| {name.removesuffix('.gguf')} | {threads} | {told['bandwidth_bytes_per_second']['most'] / 1e9:.1f} |"
                for threads, told in m["bench"].items()]
    out += ["", "**Fitted**", "", "| | threads | a, µs a layer | b, ns an activation | g, ns a KiB of K and V and query head |", "| --- | --- | --- | --- | --- |"]
    for (kind, threads), numbers in fitted.items():
        n = numbers if kind == "decode" else [0.0] + numbers + [0.0]
        out.append(f"| {kind} | {threads} | {n[0] * 1e6:.2f} | {n[1] * 1e9:.3f} | {n[2] * 1e9 * 1024:.1f} |")
    return "\n".join(out) + "\n"


def svg(all_rows):
    """Predicted (x) against measured (y) tokens a second, both logarithmic."""
    size, margin = 560, 56
    speeds = [1 / r[k] for r in all_rows for k in ("seconds", "predicted")]
    low, high = math.log10(min(speeds)) - 0.08, math.log10(max(speeds)) + 0.08

    def x(v):
        return margin + (math.log10(v) - low) / (high - low) * (size - 2 * margin)

    def y(v):
        return size - x(v)

    def text(px, py, words, anchor="middle", extra=""):
        return f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" {extra}>{words}</text>'

    a, b = 10 ** low, 10 ** high
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="11">',
           f'<rect width="{size}" height="{size}" fill="white"/>',
           f'<polygon points="{x(a):.1f},{y(a * 1.1):.1f} {x(b / 1.1):.1f},{y(b):.1f} {x(b):.1f},{y(b):.1f} {x(b):.1f},{y(b / 1.1):.1f} '
           f'{x(a * 1.1):.1f},{y(a):.1f} {x(a):.1f},{y(a):.1f}" fill="#e8eef7"/>',
           f'<line x1="{x(a):.1f}" y1="{y(a):.1f}" x2="{x(b):.1f}" y2="{y(b):.1f}" stroke="#7a8aa0"/>',
           f'<rect x="{margin}" y="{margin}" width="{size - 2 * margin}" height="{size - 2 * margin}" fill="none" stroke="#444"/>']
    for power in range(math.floor(low), math.ceil(high)):
        for m in (1, 2, 5):
            v = m * 10 ** power
            if low <= math.log10(v) <= high:
                out += [text(x(v), size - margin + 16, f"{v:g}"), text(margin - 6, y(v) + 4, f"{v:g}", "end")]
    colours = dict(zip(sorted({r["threads"] for r in all_rows}, key=int), ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce")))
    for r in all_rows:
        px, py, colour = x(1 / r["predicted"]), y(1 / r["seconds"]), colours[r["threads"]]
        fill = "white" if r["calibrates"] else colour
        shape_of = (f'<rect x="{px - 4:.1f}" y="{py - 4:.1f}" width="8" height="8"' if r["part"] == "prefill"
                    else f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4.5"')
        out.append(f'{shape_of} fill="{fill}" stroke="{colour}"><title>{r["model"]}, {r["part"]} at {r["position"]}, {r["threads"]} threads: '
                   f'{1 / r["seconds"]:.1f}, predicted {1 / r["predicted"]:.1f}</title></{shape_of[1:].split()[0]}>')
    out += [text(size / 2, size - 14, "predicted, tokens/s"),
            text(16, size / 2, "measured, tokens/s", extra=f'transform="rotate(-90 16 {size / 2})"'),
            text(size / 2, 24, "Predicted and measured speed; the band is ±10 %", extra='font-size="13"'),
            text(size / 2, 42, "round: decode, square: prefill; hollow: calibrates; " +
                 ", ".join(f'<tspan fill="{c}">{t} thread{"s" if t != "1" else ""}</tspan>' for t, c in colours.items())), "</svg>"]
    return "\n".join(out) + "\n"


def report(a):
    with open(a.data) as f:
        data = json.load(f)
    all_rows = rows(data, a.calibrate.split(","))
    fitted = predict(all_rows)
    text = tables(data, all_rows, fitted, a.svg and a.page and os.path.relpath(a.svg, os.path.dirname(a.page) or "."))
    if a.svg:
        with open(a.svg, "w") as f:
            f.write(svg(all_rows))
    if not a.page:
        print(text)
        return
    with open(a.page) as f:
        page = f.read()
    with open(a.page, "w") as f:
        f.write(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}{END}", page, flags=re.S))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    m = commands.add_parser("measure")
    m.add_argument("data")
    m.add_argument("models", nargs="+")
    m.add_argument("--lamina", default="build/lamina")
    m.add_argument("--kernels", default="build/bench/bench_kernels")
    m.add_argument("--threads", type=lambda s: [int(t) for t in s.split(",")], default=[1, os.cpu_count()])
    m.add_argument("--context", type=int, default=2048, help="position of a second decode figure; 0: none")
    m.add_argument("--prefill", type=int, default=512)
    m.add_argument("--tokens", type=int, default=128)
    m.add_argument("--runs", type=int, default=5)
    r = commands.add_parser("report")
    r.add_argument("data")
    r.add_argument("--calibrate", required=True, help="parts of the names of the models that are fitted on")
    r.add_argument("--page")
    r.add_argument("--svg")
    a = p.parse_args()
    measure(a) if a.command == "measure" else report(a)


if __name__ == "__main__":
    main()
