#!/usr/bin/env python3
"""Lamina beside llama.cpp: the same GGUF, threads and token counts, runs in turn, ratios with their spread.

    bench/versus_llamacpp.py MODEL.gguf --llama DIR_WITH_LLAMA_BENCH [--prefill 512] [--decode 128] [--threads 1,2] [--runs 5]

llama-bench can be built from the npm package node-llama-cpp (its llama/gitRelease.bundle is a git bundle of llama.cpp):
cmake -DGGML_NATIVE=ON -DLLAMA_CURL=OFF, target llama-bench. Only the Python standard library is needed here.
Load time and peak resident memory are those of the whole process, from the operating system's own accounting.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def run(command, env=None):
    """Standard output, seconds, and peak resident bytes of one process."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{command[0]} failed ({process.returncode}): {err.decode(errors='replace')[-500:]}")
    return out, time.monotonic() - start


def peak_of(command, env=None):
    """Peak resident bytes, by a child that waits for the command alone."""
    code = ("import resource,subprocess,sys;subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL,check=True);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024)")
    return int(run([sys.executable, "-c", code, *command], env)[0])


def lamina(args, threads):
    out, _ = run([args.lamina, "bench", args.slm, "--prefill", str(args.prefill), "-n", str(args.decode), "-t", str(threads), "--json"])
    result = json.loads(out)
    return {"prefill": result["prefill_tokens_per_second"], "decode": result["decode_tokens_per_second"]}


def llama(args, threads):
    env = dict(os.environ, LD_LIBRARY_PATH=args.llama)
    out, _ = run([os.path.join(args.llama, "llama-bench"), "-m", args.model, "-p", str(args.prefill), "-n", str(args.decode),
                  "-t", str(threads), "-r", "1", "-o", "json"], env)
    rows = json.loads(out)
    return {"prefill": next(r["avg_ts"] for r in rows if r["n_prompt"]), "decode": next(r["avg_ts"] for r in rows if r["n_gen"])}


def first_token(args):
    """Seconds from start to one token of a four-token prompt, load included; and peak memory of that."""
    env = dict(os.environ, LD_LIBRARY_PATH=args.llama)
    ours = [args.lamina, "run", args.slm, "--raw", "-p", "Once upon a time", "-n", "1", "-q", "--temp", "0"]
    theirs = [os.path.join(args.llama, "llama-simple"), "-m", args.model, "-n", "1", "Once upon a time"]
    pairs = [(run(ours)[1], run(theirs, env)[1]) for _ in range(args.runs)]
    return pairs, peak_of(ours), peak_of(theirs, env)


def line(name, ours, theirs, unit):
    ratios = [a / b for a, b in zip(ours, theirs)]
    print(f"{name:<22} {statistics.median(ours):10.2f} {statistics.median(theirs):10.2f} {unit:<9} "
          f"ratio {statistics.median(ratios):6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--llama", required=True)
    parser.add_argument("--lamina", default="build/lamina")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    args.llama = os.path.abspath(args.llama)
    args.slm = os.path.join(os.environ.get("TMPDIR", "/tmp"), os.path.basename(args.model) + ".slm")
    run([args.lamina, "import", args.model, "-o", args.slm, "-q"])

    with open("/proc/cpuinfo") as f:
        cpu = next(l.split(":")[1].strip() for l in f if l.startswith("model name"))
    print(f"{os.path.basename(args.model)} on {cpu}, {os.cpu_count()} CPUs; medians of {args.runs} runs in turn; spread of the pairwise ratio")
    print(f"{'':<22} {'lamina':>10} {'llama.cpp':>10}")
    for threads in (int(t) for t in args.threads.split(",")):
        ours, theirs = [], []
        for _ in range(args.runs):
            ours.append(lamina(args, threads))
            theirs.append(llama(args, threads))
        for what in ("prefill", "decode"):
            count = args.prefill if what == "prefill" else args.decode
            line(f"{what} {count}, {threads} thr", [o[what] for o in ours], [t[what] for t in theirs], "tokens/s")
    pairs, peak, peak_llama = first_token(args)
    line("start to first token", [p[0] for p in pairs], [p[1] for p in pairs], "s")
    line("peak resident", [peak / 1e6], [peak_llama / 1e6], "MB")
    os.remove(args.slm)


if __name__ == "__main__":
    main()
