#!/usr/bin/env python3
"""Switching adapters while a generation runs: Lamina beside llama-server's /lora-adapters, on one machine in turn.

    make && make build/bench/switch
    bench/versus_llama_server.py MODEL.gguf A.gguf B.gguf COLD.gguf --llama-server PROGRAM [--json OUT.json]

A and B are LoRA GGUFs between which is switched, COLD one that Lamina activates from its file (bench/make_lora.py makes all three).
llama-server can be built as bench/versus_llamacpp.py says for llama.cpp (where AMX crashes: GGML_NATIVE=OFF, and GGML_AVX2, GGML_AVX512,
GGML_AVX512_VNNI and the like by name). Only the Python standard library is needed here.

Lamina is called in its own process (bench/switch.c), llama-server over HTTP on one kept connection: what an empty request takes
there (GET /health) stands beside. A generation of it goes on in slot 0, requests go to slot 1; adapters are loaded at its start.
"prompt kept": the request's 256 tokens were computed before. In Lamina that was under the composition that is switched to. llama-server
has one history a slot and computes none of it again: its keys and values are the other adapter's. "prompt computed": all 256 tokens.

Each run does all of it once, first Lamina, then llama-server. What is told is the median over the runs of each run's figure, the
least and the most.
"""
import argparse
import contextlib
import http.client
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

from versus_llamacpp import output, processor, spread

HISTORY, PROMPT, UNDISTURBED, PAUSE = 128, 256, 200, 0.005  # as in bench/switch.c
BLOCKED = 3          # requests beside a generation of the other composition
BLOCKED_TOKENS = 64  # of that generation
START_SECONDS = 60


def figures(seconds):
    """As bench/switch.c tells them."""
    values = sorted(seconds)

    def quantile(share):
        return values[max(1, math.ceil(share * len(values))) - 1]

    return {"n": len(values), "median": quantile(0.5), "p99": quantile(0.99), "most": values[-1]}


class Server:
    """llama-server with both adapters loaded and none applied."""

    def __init__(self, args, threads):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        command = [args.llama_server, "-m", args.model, "--lora", f"{args.a},{args.b}", "--lora-init-without-apply", "-t", str(threads),
                   "-np", "2", "-c", "8192", "--cache-ram", "0", "--host", "127.0.0.1", "--port", str(self.port)]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.next = 0
        try:
            self.wait()
            self.connection = self.connect()
            self.n_vocab = self.ask("GET", "/v1/models")["data"][0]["meta"]["n_vocab"]
        except BaseException:
            self.stop()
            raise

    def wait(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                c = self.connect()
                c.request("GET", "/health")
                if c.getresponse().status == 200:
                    return
            time.sleep(0.1)
        self.log.seek(0)
        sys.exit(f"versus_llama_server: llama-server did not start: {self.log.read().decode(errors='replace')[-1000:]}")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def reconnect(self):
        """After a while without requests the server has closed the connection."""
        self.connection.close()
        self.connection.connect()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self.connection.getresponse()
        text = response.read()
        if self.connection.sock is None:  # the server closes it after so many requests: the next one is not to pay for that
            self.connection.connect()
        if response.status != 200:
            sys.exit(f"versus_llama_server: {method} {path}: {response.status} {text[:300]!r}")
        return json.loads(text)

    def tokens(self, n):
        return [(i * 7919 + 17) % self.n_vocab for i in range(n)]

    def to_next(self):
        self.ask("POST", "/lora-adapters", [{"id": i, "scale": float(i == self.next)} for i in (0, 1)])
        self.next ^= 1

    def first_token(self, keep):
        """The number of tokens that were computed for it."""
        answer = self.ask("POST", "/completion", {"prompt": self.tokens(PROMPT), "n_predict": 1, "temperature": 0, "id_slot": 1,
                                                  "cache_prompt": keep, "ignore_eos": True})
        return answer["timings"]["prompt_n"]


class Generation:
    """A stream in slot 0, read by a thread of its own; arrivals has the time of each piece."""

    def __init__(self, server, tokens=-1):
        self.arrivals, self.left = [], False
        self.connection = server.connect()
        self.connection.request("POST", "/completion",
                                json.dumps({"prompt": server.tokens(HISTORY), "n_predict": tokens, "temperature": 0, "id_slot": 0,
                                            "cache_prompt": False, "ignore_eos": True, "stream": True}),
                                {"Content-Type": "application/json"})
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        self.wait_for(2)

    def read(self):
        response = self.connection.getresponse()
        while not self.left:
            line = response.readline()
            if not line:
                break
            if line.startswith(b"data: ") and b'"stop":false' in line:
                self.arrivals.append(time.perf_counter())

    def wait_for(self, n):
        while len(self.arrivals) < n and self.thread.is_alive():
            time.sleep(PAUSE)

    def end(self):
        """Its gaps."""
        ended_before = not self.thread.is_alive()
        self.left = True
        self.thread.join()
        self.connection.close()
        if ended_before:
            sys.exit("versus_llama_server: the generation ended before what was to happen beside it")
        return figures(b - a for a, b in zip(self.arrivals, self.arrivals[1:]))


def timed(act):
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def repeat(act, n):
    times = []
    for _ in range(n):
        times.append(timed(act))
        time.sleep(PAUSE)
    return figures(times)


def publishes(server, n):
    server.reconnect()
    return {"publish": repeat(server.to_next, n), "http": repeat(lambda: server.ask("GET", "/health"), n)}


def requests(server, n, keep):
    """A switch, then the first token; nothing beside."""
    server.first_token(False)
    whole, computed = [], PROMPT
    for _ in range(n):
        start = time.perf_counter()
        server.to_next()
        computed = server.first_token(keep)
        whole.append(time.perf_counter() - start)
    return {"first_token": figures(whole), "computed_tokens": computed}


def blocked(server):
    """A switch and a request beside a generation of the composition before: the first token, and when the generation ended."""
    whole, rest = [], []
    for _ in range(BLOCKED):
        generation = Generation(server, BLOCKED_TOKENS)
        server.reconnect()
        start = time.perf_counter()
        server.to_next()
        server.first_token(True)
        whole.append(time.perf_counter() - start)
        generation.thread.join()
        generation.connection.close()
        rest.append(generation.arrivals[-1] - start)
    return {"first_token": figures(whole), "generation_left": figures(rest)}


def llama(args, threads):
    server = Server(args, threads)
    try:
        server.to_next()
        generation = Generation(server)
        generation.wait_for(UNDISTURBED)
        out = {"undisturbed": {"gaps": generation.end()}}
        generation = Generation(server)
        beside = {"publish": publishes(server, args.switches)}
        beside["publish"]["gaps"] = generation.end()
        beside["blocked"] = blocked(server)
        out["beside"] = beside
        out["alone"] = {"publish": publishes(server, args.switches), "kept": requests(server, args.requests, True),
                        "prefill": requests(server, args.requests, False)}
        return out
    finally:
        server.stop()


class Lamina:
    def __init__(self, args, folder):
        self.args = args
        self.files = [os.path.join(folder, name) for name in ("model.slm", "a.slm", "b.slm", "cold.slm")]
        output([args.lamina, "import", args.model, "-o", self.files[0], "-q"])
        for path, out in zip((args.a, args.b, args.cold), self.files[1:]):
            output([args.lamina, "import", path, "-m", self.files[0], "-o", out, "-q"])

    def run(self, threads):
        return output([self.args.switch, *self.files, str(threads), str(self.args.switches), str(self.args.requests)])


def rows():
    """(what is told, path in Lamina's figures, path in llama-server's); one may be None."""
    for state, name in (("beside", "beside a generation"), ("alone", "nothing beside")):
        for q in ("median", "p99", "most"):
            yield f"publish, {name}: {q}", f"{state}.publish.publish.{q}", f"{state}.publish.publish.{q}"
        for q in ("median", "p99"):
            yield f"an empty request, {name}: {q}", None, f"{state}.publish.http.{q}"
    for state, name in (("alone", "nothing beside"), ("beside", "beside a generation")):
        theirs = "alone.{}.first_token.median" if state == "alone" else None
        for part, how in (("kept", "prompt kept"), ("prefill", "prompt computed")):
            yield f"switch and first token, {how}, {name}", f"{state}.{part}.first_token.median", theirs and theirs.format(part)
        yield f"… of which the prompt, {name}", f"{state}.prefill.prefill.median", None
    yield f"switch and first token, beside {BLOCKED_TOKENS} tokens of the other adapter", None, "beside.blocked.first_token.median"
    yield "… of which until those had ended", None, "beside.blocked.generation_left.median"
    for q in ("median", "p99", "most"):
        yield f"gap of the generation, undisturbed: {q}", f"undisturbed.gaps.{q}", f"undisturbed.gaps.{q}"
        yield f"gap, beside switches: {q}", f"beside.publish.gaps.{q}", f"beside.publish.gaps.{q}"
    for part, name in (("kept", "requests with prompts kept"), ("prefill", "requests with prompts computed")):
        yield f"gap, beside {name}: most", f"beside.{part}.gaps.most", None
    for part, name in (("cold", "cache dropped"), ("cached", "in the cache")):
        for state, other in (("alone", "nothing beside"), ("beside", "beside a generation")):
            for what in ("load", "compose", "publish", "activated", "first_token"):
                yield f"from the file, {name}, {other}: {what}", f"{state}.{part}.{what}.median", None


def at(run, path):
    for word in path.split("."):
        run = run[word]
    return run * 1e3


def print_table(runs):
    print("\n| ms | Lamina | llama-server |\n| --- | --- | --- |")
    for name, ours, theirs in rows():
        cells = [spread([at(r[side], path) for r in runs], 3) if path else "" for side, path in (("lamina", ours), ("llama", theirs))]
        print(f"| {name} | {cells[0]} | {cells[1]} |")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "a", "b", "cold"):
        p.add_argument(name)
    p.add_argument("--llama-server", required=True)
    p.add_argument("--lamina", default="build/lamina")
    p.add_argument("--switch", default="build/bench/switch")
    p.add_argument("--switches", type=int, default=500)
    p.add_argument("--requests", type=int, default=20)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--json", help="write every figure of every run here")
    return p.parse_args()


def main():
    a = arguments()
    print(f"{os.path.basename(a.model)} on {processor()}, {a.threads} threads; {a.runs} runs in turn, {a.switches} switches and "
          f"{a.requests} requests a run: median (least to most)", flush=True)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        lamina = Lamina(a, folder)
        for i in range(a.runs):
            runs.append({"lamina": lamina.run(a.threads), "llama": llama(a, a.threads)})
            print(f"run {i + 1} of {a.runs}", file=sys.stderr, flush=True)
            if a.json:
                with open(a.json, "w") as f:
                    json.dump({"model": os.path.basename(a.model), "machine": processor(), "threads": a.threads, "runs": runs}, f, indent=1)
    print_table(runs)


if __name__ == "__main__":
    main()
