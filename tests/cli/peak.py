"""Runs a command and compares the most anonymous memory that it had (RssAnon, looked at every 0.2 ms; the best of three runs) with the plan:
  peak.py lamina run MODEL … -c CONTEXT [-a ADAPTER] [--policy POLICY] [--draft DRAFT]
  peak.py BUILD/tests/memory MODEL.slm … -c CONTEXT    what no command does (tests/memory.c), with the options of lamina plan. The plan is of
                                                       lamina: what this program takes less for the same session is added
  peak.py --refused lamina run MODEL … --budget BYTES  must fail, without having taken what the plan counts for adapters and session
Prints "within 5 %" or "refused before", else the figures; "skipped: …" where the system does not tell.
"""
import json
import os
import subprocess
import sys
import time

NOT_FOR_PLAN = {"--token-ids": 2, "-n": 2, "-q": 1, "--raw": 1, "--temp": 2, "--budget": 2}
RUNS = 3
SPARE = 60  # positions that are generated, so that drafts are made


def run(command):
    """Its exit status, what it said, and the most RssAnon in bytes."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most, path = 0, "/proc/%d/status" % process.pid
    while process.poll() is None:
        try:
            with open(path) as f:
                for line in f:
                    if line.startswith("RssAnon:"):
                        most = max(most, int(line.split()[1]) * 1024)
        except OSError:
            pass
        time.sleep(0.0002)
    return process.returncode, process.stderr.read().decode(), most


def peak(command):
    runs = [run(command) for _ in range(RUNS)]
    for status, said, _ in runs:
        if status:
            sys.exit(said)
    return max(most for _, _, most in runs)


def plan(command):
    kept, i = [], 2 if command[0] == "lamina" else 1
    while i < len(command):
        skip = NOT_FOR_PLAN.get(command[i], 0)
        if not skip:
            kept.append(command[i])
        i += max(skip, 1)
    out = subprocess.run(["lamina", "plan", *kept, "--json"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out)["plans"][0]


def with_prompt(command):
    context = int(command[command.index("-c") + 1])
    ids = ",".join(str(3 + i * 7 % 200) for i in range(context - SPARE))
    return command + ["--raw", "-q", "--temp", "0", "-n", str(SPARE - 4), "--token-ids", ids]


def host_difference(command):
    """What lamina takes more than tests/memory for one session of the bare base."""
    plain = command[1:2] + [word for name in ("-c", "-t") for word in (name, command[command.index(name) + 1])]
    return peak(with_prompt(["lamina", "run", *plain])) - peak([command[0], *plain])


def compare(command):
    if command[0] == "lamina":
        command = with_prompt(command)
        planned, measured = plan(command)["peak"], peak(command)
    else:
        planned, measured = plan(command)["peak"], peak(command) + host_difference(command)
    apart = planned / measured - 1
    if abs(apart) <= 0.05 and "PEAK_FIGURES" not in os.environ:
        return "within 5 %"
    return "planned %d, measured %d: %+.1f %%" % (planned, measured, 100 * apart)


def refused(command):
    parts = plan(command)
    before = parts["process"] + parts["base"] + parts["staging"]
    status, said, measured = run(command + ["-q", "-p", "Once"])
    if status == 1 and "LAM_E_BUDGET" in said and measured <= before < parts["peak"] - parts["adapters"]:
        return "refused before"
    return "status %d, measured %d of %d: %s" % (status, measured, before, said)


def main():
    command = sys.argv[1:]
    if not os.path.exists("/proc/self/status") or "RssAnon" not in open("/proc/self/status").read():
        print("skipped: no RssAnon")
    elif command[0] == "--refused":
        print(refused(command[1:]))
    else:
        print(compare(command))


main()
