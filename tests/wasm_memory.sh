#!/bin/sh
# The WebAssembly program's memory, measured, is within 5 % of what it plans: the base alone, with adapters, both policies, two contexts.
#     tests/wasm_memory.sh BUILD_FOLDER
set -eu

build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
native=$build/lamina
base=$work/s.slm
"$native" import data/stories260K-Q8_0.gguf -o "$base" -q
for name in oz shakespeare; do "$native" import "data/adapters/$name" -m "$base" -o "$work/$name.slm" -q; done

# wasm ARGUMENTS…: bytes of memory on the last line of standard error
wasm() { node tests/wasm_memory.mjs "$build/wasm/lamina.wasm" "$@"; }

# compare CONTEXT POLICY [-a ADAPTER]…
compare()
{
    context=$1 policy=$2
    shift 2
    ids=$(python3 -c "print(','.join(str(3 + i * 7 % 200) for i in range($context - 4)))")
    planned=$(wasm plan "$base" "$@" --policy "$policy" -c "$context" --json 2>"$work/why" |
              python3 -c "import json, sys; print(json.load(sys.stdin)['plans'][0]['peak'])")
    wasm run "$base" "$@" --policy "$policy" -c "$context" --raw -q -n 3 --token-ids "$ids" >"$work/out" 2>"$work/memory"
    measured=$(tail -n 1 "$work/memory")
    python3 - "$planned" "$measured" "$context $policy $*" <<'PYTHON'
import sys
planned, measured = int(sys.argv[1]), int(sys.argv[2])
apart = planned / measured - 1
print("[%s] memory %s: planned %d, measured %d, %+.1f %%" % ("       OK " if abs(apart) <= 0.05 else "  FAILED  ", sys.argv[3].replace("/", " "), planned,
                                                          measured, 100 * apart))
sys.exit(abs(apart) > 0.05)
PYTHON
}

for context in 512 4096; do
    compare $context dual
    for policy in dual materialize; do compare $context $policy -a "$work/oz.slm" -a "$work/shakespeare.slm"; done
done
