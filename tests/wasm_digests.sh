#!/bin/sh
# The native program and the WebAssembly one on the same models and adapters: every logit and every imported byte must be equal.
#     tests/wasm_digests.sh BUILD_FOLDER          after make and make wasm
set -eu

native=$1/lamina
export LAMINA_WASM="$1/wasm/lamina.wasm"
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
        echo "tests/wasm_digests.sh: lamina $*: the outputs differ (native <, wasm >)" >&2
        diff "$scratch/native.out" "$scratch/wasm.out" >&2 || true
        exit 1
    fi
    compared=$((compared + 1))
}

# The same for what must not fail.
both_succeed()
{
    both "$@"
    if grep '^exit code' "$scratch/native.out" >&2; then
        echo "tests/wasm_digests.sh: lamina $* failed" >&2
        exit 1
    fi
}

digests() { sha256sum "$1"/*.slm | cut -d ' ' -f 1 | sort; }

for model in tests/golden/*/config.json tests/golden/*/*.gguf; do
    both_succeed logits "${model%/config.json}" --token-ids $tokens --quiet
done
# Some of these are refused, by both.
for adapter in tests/golden/adapters/*/*/adapter_config.json; do
    adapter=${adapter%/*}
    model=$(basename "${adapter%/*}")
    set -- tests/golden/"$model"/config.json tests/golden/"$model"/*.gguf
    [ -e "$1" ] || shift
    both logits "${1%/config.json}" -a "$adapter=0.7" --waive --token-ids $tokens --quiet
done

# The model that ships here, on text, alone and under its adapters; and what it writes.
model=data/stories260K-Q8_0.gguf
prompt="Once upon a time there was a little girl; she said: \"héllo, 世界\"!"
set --
for adapter in '' data/adapters/*/; do
    [ -z "$adapter" ] || set -- "$@" -a "$adapter"
    both_succeed logits $model "$@" -p "$prompt" --raw --quiet
    both_succeed run $model "$@" -p "$prompt" --raw -n 50 --seed 11 --quiet
done

# What the two made of their sources on the way lies in their caches.
[ "$(digests "$scratch/native")" = "$(digests "$scratch/wasm")" ] || {
    echo "tests/wasm_digests.sh: the imported files differ" >&2
    exit 1
}
echo "native and wasm: $compared commands and $(digests "$scratch/native" | wc -l) imported files compared, all equal"
