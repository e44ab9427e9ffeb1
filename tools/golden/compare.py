"""Runs a built `lamina` over the cases of tests/golden/index.json and prints how far it is from each reference; those with a rule or a
policy, which `-a` can't say, are left to tests/test_golden.c.

    python tools/golden/compare.py [build/lamina] [CASE-SUBSTRING]

Needs NumPy only. Exits 1 when a case with a rule breaks it, or an adapter that must be refused is taken.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

from common import GOLDEN, ROOT, RULES, load_index, read_logits


def run(program, arguments, out, env):
    return subprocess.run([program, "logits", *arguments, "-t", "1", "-q", "-o", out], capture_output=True, text=True, env=env)


def main() -> None:
    program = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "lamina")
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    index, failed = load_index(), []
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_CACHE_HOME": folder}
        out = os.path.join(folder, "logits.f32")
        for case in (c for c in index["cases"] if wanted in c["id"] and "policy" not in c):
            if any("rule" in a or a["path"].endswith(".slm") for a in case["adapters"]):
                continue
            arguments = ["-m", str(GOLDEN / case["path"]), "--token-ids", ",".join(map(str, case["tokens"]))]
            for a in case["adapters"]:
                arguments += ["-a", f"{GOLDEN / a['path']}={a['weight']:g}"]
            done = run(program, arguments, out, env)
            if done.returncode:
                print(f"FAILED  {case['id']}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
                failed.append(case["id"])
                continue
            got = np.fromfile(out, "<f4").reshape(-1, case["vocab"])[case["first_row"]:case["first_row"] + case["rows"]].astype(np.float64)
            want = read_logits(case).astype(np.float64)
            worst = np.abs(got - want).max() / np.abs(want).max()
            cosine = (got * want).sum() / np.linalg.norm(got) / np.linalg.norm(want)
            limit = RULES[case["rule"]].get("max_abs_over_max_logit", np.inf)
            verdict = "ok     " if worst <= limit else "TOO FAR"
            failed += [] if worst <= limit else [case["id"]]
            print(f"{verdict} {case['id']}: {worst:.2e} ({case['rule']}), cosine {cosine:.7f}")
        for refusal in (r for r in index["refusals"] if wanted in r["id"]):
            done = run(program, ["-m", str(GOLDEN / refusal["base"]), "--token-ids", "1,5,9", "-a",
                                 str(GOLDEN / refusal["adapter"])], out, env)
            told = (done.stderr.strip().splitlines() or ["no message"])[-1]
            named = refusal["names"].split()[0].lower() in done.stderr.lower().replace("³", "3")
            ok = done.returncode > 0 and named
            print(f"{'ok     ' if ok else 'NOT REFUSED BY NAME'} {refusal['id']}: {told}")
            failed += [] if ok else [refusal["id"]]
    print(f"{len(failed)} failed", *failed)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
