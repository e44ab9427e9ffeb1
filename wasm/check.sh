#!/bin/sh
# The native program and the WebAssembly one on the same models and adapters: every logit and every imported byte must be equal.
#     wasm/check.sh build/lamina          after make and make wasm
set -eu

native=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tokens=1,5,9,2,77,31,8,100,64,3,12,12,200,45,6,7,90,11,150,33
compared=0

# both ARGUMENTS…: run the two, each with a cache of its own; their standard outputs and exit codes must be equal.
both()
{
    LAMINA_CACHE=$scratch/native "$native" "$@" >"$scratch/native.out" 2>/dev/null || echo "exit code $?" >>"$scratch/native.out"
    LAMINA_CACHE=$scratch/wasm node wasm/lamina.mjs "$@" >"$scratch/wasm.out" 2>/dev/null || echo "exit code $?" >>"$scratch/wasm.out"
    if ! cmp -s "$scratch/native.out" "$scratch/wasm.out"; then
        echo "wasm/check.sh: lamina $*: the outputs differ (native <, wasm >)" >&2
        diff "$scratch/native.out" "$scratch/wasm.out" >&2 || true
        exit 1
    fi
    compared=$((compared + 1))
}

digests() { sha256sum "$1"/*.slm | cut -d ' ' -f 1 | sort; }

for model in tests/golden/*/config.json tests/golden/*/*.gguf; do
    both logits "${model%/config.json}" --token-ids $tokens --quiet
done
for adapter in tests/golden/adapters/*/*/adapter_config.json; do
    adapter=${adapter%/*}
    model=$(basename "${adapter%/*}")
    set -- tests/golden/"$model"/config.json tests/golden/"$model"/*.gguf
    [ -e "$1" ] || shift
    both logits "${1%/config.json}" -a "$adapter=0.7" --waive --token-ids $tokens --quiet
done

# What the two made of their sources on the way lies in their caches.
[ "$(digests "$scratch/native")" = "$(digests "$scratch/wasm")" ] || {
    echo "wasm/check.sh: the imported files differ" >&2
    exit 1
}
echo "native and wasm: $compared commands and $(digests "$scratch/native" | wc -l) imported files compared, all equal"
