#!/usr/bin/env python3
"""Lamina beside llama.cpp: the same GGUF, threads and token counts, in turn, ratios with their spread.

    bench/versus_llamacpp.py MODEL.gguf --llama BIN --llama-source SRC [--lora16 R16.gguf --lora64 R64.gguf] [--json OUT.json]

BIN holds llama.cpp's libraries, SRC its sources, of which only the headers are read: bench/llama_figures.c is compiled against
them and measures there what `lamina bench` measures here. llama.cpp can be built from the npm package node-llama-cpp (its
llama/gitRelease.bundle is a git bundle of it): cmake -DGGML_NATIVE=ON -DLLAMA_CURL=OFF. bench/make_synthetic.py makes models,
bench/make_lora.py adapters. Only the Python standard library and a C compiler are needed here.

Each run does every part once, first Lamina, then llama.cpp. A ratio is taken within a run, over 1 where Lamina is better; what
is told is its median, least and most. Decoding is at positions from 128 on. The bandwidth is that of reading the model's own
weights with as many threads in the same run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ["rates", "batch", "adapters", "switch", "load", "busy"]
BUSY_TOKENS = 32
BUSY = "while True: pass"


def fail(message):
    sys.exit(f"versus_llamacpp: {message}")


def output(command, env=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    if done.returncode != 0:
        fail(f"{command[0]} failed ({done.returncode}): {done.stderr.decode(errors='replace')[-500:]}")
    return json.loads(done.stdout) if done.stdout else None


class Lamina:
    def __init__(self, args, folder):
        self.args = args
        self.slm = os.path.join(folder, "model.slm")
        output([args.lamina, "import", args.model, "-o", self.slm, "-q"])
        self.loras = []
        for path in args.loras:
            self.loras.append(os.path.join(folder, f"lora{len(self.loras)}.slm"))
            output([args.lamina, "import", path, "-m", self.slm, "-o", self.loras[-1], "-q"])

    def bench(self, only, threads, loras=(), decode=None):
        command = [self.args.lamina, "bench", self.slm, "--only", only, "--runs", "1", "--prefill", str(self.args.prefill), "-n",
                   str(self.args.decode if decode is None else decode), "--sessions", self.args.sessions, "-t", str(threads),
                   "--verify", "off", "--json"]
        for lora in loras:
            command += ["-a", lora]
        return output(command)

    @staticmethod
    def rate(result, part, sessions=1, adapters=False):
        return next(r for r in result["rates"] if r["part"] == part and r["sessions"] == sessions and r["adapters"] == adapters)


class Llama:
    def __init__(self, args, folder):
        self.args = args
        self.program = os.path.join(folder, "llama_figures")
        source = args.llama_source
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", f"-I{source}/include", f"-I{source}/ggml/include",
                        os.path.join(HERE, "llama_figures.c"), "-o", self.program, f"-L{args.llama}", "-lllama", "-lggml",
                        "-lggml-base", f"-Wl,-rpath-link,{args.llama}"], check=True)

    def figures(self, part, threads, decode=None, prefill=None, loras=()):
        env = dict(os.environ, LD_LIBRARY_PATH=self.args.llama)
        return output([self.program, self.args.model, str(threads), str(self.args.prefill if prefill is None else prefill),
                       str(self.args.decode if decode is None else decode), self.args.sessions, part, *loras], env)


class Table:
    """Figures by name, a value a run for each side."""

    def __init__(self):
        self.rows = {}

    def add(self, name, threads, unit, ours, theirs=None, lower_is_better=False):
        row = self.rows.setdefault((name, threads, unit), {"figure": name, "threads": threads, "unit": unit,
                                                         "lower_is_better": lower_is_better, "lamina": [], "llama": []})
        row["lamina"].append(ours)
        if theirs is not None:
            row["llama"].append(theirs)

    def finish(self):
        for row in self.rows.values():
            pairs = list(zip(row["lamina"], row["llama"]))
            if row["unit"] in ("tokens/s", "ms", "MB") and pairs and not row["figure"].startswith("switch"): # a difference has no ratio
                row["ratio"] = [b / a if row["lower_is_better"] else a / b for a, b in pairs]
        return list(self.rows.values())


def spread(values, digits):
    if not values:
        return ""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_table(rows):
    digits = {"tokens/s": 1, "ms": 2, "MB": 1, "GB/s": 2, "of own base": 3, "of undisturbed": 3, "of bandwidth": 3, "of one session": 2}
    print(f"\n| figure | threads | unit | Lamina | llama.cpp | ratio |\n| --- | --- | --- | --- | --- | --- |")
    for r in rows:
        d = digits[r["unit"]]
        print(f"| {r['figure']} | {r['threads']} | {r['unit']} | {spread(r['lamina'], d)} | {spread(r['llama'], d)} | "
              f"{spread(r.get('ratio', []), 2)} |")


def rates(lamina, llama, table, threads):
    ours = lamina.bench("bandwidth,prefill,decode", threads)
    theirs = {r["part"]: r["tokens_per_second"] for r in llama.figures("rates", threads)["rates"]}
    decode = lamina.rate(ours, "decode")
    bandwidth = ours["bandwidth_bytes_per_second"]["median"]
    speed = decode["tokens_per_second"]["median"]
    table.add(f"prefill {lamina.args.prefill}", threads, "tokens/s", lamina.rate(ours, "prefill")["tokens_per_second"]["median"],
              theirs["prefill"])
    table.add("decode", threads, "tokens/s", speed, theirs["decode"])
    table.add("read bandwidth", threads, "GB/s", bandwidth / 1e9)
    table.add("decode: weights read", threads, "GB/s", decode["weight_bytes"] * speed / 1e9,
              decode["weight_bytes"] * theirs["decode"] / 1e9)
    table.add("decode: weights read", threads, "of bandwidth", decode["weight_bytes"] * speed / bandwidth,
              decode["weight_bytes"] * theirs["decode"] / bandwidth)


def batch(lamina, llama, table, threads):
    ours = lamina.bench("decode,batch", threads)
    theirs = llama.figures("batch", threads)["rates"]
    one = lamina.rate(ours, "decode")["tokens_per_second"]["median"]
    for r in theirs:
        speed = lamina.rate(ours, "batch", r["sessions"])["tokens_per_second"]["median"]
        table.add(f"decode, {r['sessions']} sessions, total", threads, "tokens/s", speed, r["tokens_per_second"])
        table.add(f"decode, {r['sessions']} sessions", threads, "of one session", speed / one)


def adapters(lamina, llama, table, threads):
    names = [f"rank {r}" for r in lamina.args.ranks]
    sets = [(names[i], [lora]) for i, lora in enumerate(lamina.loras)]
    if len(sets) > 1:
        sets.append((" and ".join(names), lamina.loras))
    theirs = [{r["part"]: r["tokens_per_second"] for r in s} for s in llama.figures("adapters", threads, loras=lamina.args.loras)["sets"]]
    for (name, loras), their in zip(sets, theirs[1:]):
        ours = lamina.bench("adapters,prefill,decode", threads, loras)
        for part in ("decode", "prefill"):
            table.add(f"{part} with {name}", threads, "of own base", lamina.rate(ours, part, adapters=True)["ratio_to_base"]["median"],
                      their[part] / theirs[0][part])


def switch(lamina, llama, table, threads):
    ours = lamina.bench("switch", threads, lamina.loras[:1])["switch"]["difference_seconds"]["median"]
    theirs = llama.figures("switch", threads, loras=lamina.args.loras[:1])["difference_seconds"]
    table.add("switch: first decode over a steady one", threads, "ms", ours * 1e3, theirs * 1e3)


def load(lamina, llama, table, threads):
    ours, theirs = lamina.bench("load,memory", threads), llama.figures("load", threads)
    table.add("ready after load", threads, "ms", ours["load"]["ready_seconds"]["median"] * 1e3, theirs["ready_seconds"] * 1e3, True)
    table.add("first token after that", threads, "ms", ours["load"]["first_token_seconds"]["median"] * 1e3,
              theirs["first_token_seconds"] * 1e3, True)
    table.add("verification of all bytes", threads, "ms", ours["load"]["verify_seconds"]["median"] * 1e3)
    table.add("verification", threads, "GB/s", ours["load"]["verify_bytes_per_second"]["median"] / 1e9)
    table.add("anonymous memory after load", threads, "MB", ours["memory"]["anonymous_bytes"] / 1e6, theirs["anonymous_bytes"] / 1e6, True)


def busy(lamina, llama, table, threads):
    """A loop on one core of those that this process may use, or wherever the system puts it."""
    def both():
        ours = lamina.rate(lamina.bench("decode", threads, decode=BUSY_TOKENS), "decode")["tokens_per_second"]["median"]
        return ours, llama.figures("rates", threads, decode=BUSY_TOKENS, prefill=0)["rates"][0]["tokens_per_second"]

    ours, theirs = both()
    core = min(os.sched_getaffinity(0))
    for name, pin in (("one core", lambda: os.sched_setaffinity(0, {core})), ("any core", None)):
        other = subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=pin)
        try:
            disturbed, their_disturbed = both()
        finally:
            other.kill()
            other.wait()
        table.add(f"decode beside a loop on {name}", threads, "of undisturbed", disturbed / ours, their_disturbed / theirs)


def processor():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "unknown processor")
    return f"{model}, {os.cpu_count()} cores"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--llama", required=True, help="folder of llama.cpp's libraries")
    p.add_argument("--llama-source", required=True, help="folder of llama.cpp's sources")
    p.add_argument("--lamina", default="build/lamina")
    p.add_argument("--lora16", help="adapter of rank 16 on all projections (bench/make_lora.py)")
    p.add_argument("--lora64", help="the same of rank 64")
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--decode", type=int, default=128, help="positions 128 to 128 + DECODE")
    p.add_argument("--sessions", default="8,16")
    p.add_argument("--threads", default=f"1,{os.cpu_count()}" if os.cpu_count() > 1 else "1")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--only", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    p.add_argument("--json", help="write every value of every run here")
    a = p.parse_args()
    a.llama, a.llama_source = os.path.abspath(a.llama), os.path.abspath(a.llama_source)
    a.threads = [int(t) for t in a.threads.split(",")]
    both = [(16, a.lora16), (64, a.lora64)]
    a.ranks, a.loras = [r for r, path in both if path], [path for _, path in both if path]
    a.only = a.only.split(",")
    if set(a.only) - set(PARTS):
        fail(f"--only: {', '.join(PARTS)} are possible")
    if not a.loras:
        a.only = [part for part in a.only if part not in ("adapters", "switch")]
    return a


def main():
    a = arguments()
    do = {"rates": rates, "batch": batch, "adapters": adapters, "switch": switch, "load": load, "busy": busy}
    table = Table()
    heading = (f"{os.path.basename(a.model)} on {processor()}; {a.runs} runs in turn: median (least to most), ratios within a run, "
               f"over 1 where Lamina is better")
    print(heading, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        lamina, llama = Lamina(a, folder), Llama(a, folder)
        for i in range(a.runs):
            for threads in a.threads:
                for part in a.only:
                    if part in ("load", "busy", "switch") and threads != max(a.threads):
                        continue
                    do[part](lamina, llama, table, threads)
            print(f"run {i + 1} of {a.runs}", file=sys.stderr, flush=True)
    rows = table.finish()
    print_table(rows)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"model": os.path.basename(a.model), "machine": processor(), "runs": a.runs, "prefill": a.prefill,
                       "decode": a.decode, "figures": rows}, f, indent=1)


if __name__ == "__main__":
    main()
