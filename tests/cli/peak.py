"""Runs a command and compares the most anonymous memory that it had (RssAnon, looked at every 0.2 ms; the best of three runs) with the
plan:  peak.py lamina run MODEL … -c CONTEXT [-a ADAPTER] [--policy POLICY]
Prints "within 5 %", or both figures; "skipped: …" where the system does not tell.
"""
import json
import os
import subprocess
import sys
import time

NOT_FOR_PLAN = {"--token-ids": 2, "-n": 2, "-q": 1, "--raw": 1}


def peak(command):
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
    if process.returncode:
        sys.exit(process.stderr.read().decode())
    return most


def plan(command):
    kept, i = [], 2
    while i < len(command):
        skip = NOT_FOR_PLAN.get(command[i], 0)
        if not skip:
            kept.append(command[i])
        i += max(skip, 1)
    out = subprocess.run([command[0], "plan", *kept, "--json"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out)["plans"][0]["peak"]


def main():
    command = sys.argv[1:]
    if not os.path.exists("/proc/self/status") or "RssAnon" not in open("/proc/self/status").read():
        print("skipped: no RssAnon")
        return
    context = int(command[command.index("-c") + 1])
    command += ["--raw", "-q", "-n", "3", "--token-ids", ",".join(str(3 + i * 7 % 200) for i in range(context - 4))]
    planned, measured = plan(command), max(peak(command) for _ in range(3))
    apart = planned / measured - 1
    print("within 5 %" if abs(apart) <= 0.05 else "planned %d, measured %d: %+.1f %%" % (planned, measured, 100 * apart))


main()
