#!/bin/sh
# tests/test_kernels.c in WebAssembly: SIMD128 and relaxed SIMD against the scalar definition, bit for bit, under a Node that has both; else
# SIMD128 alone, under the installed one.
#     tests/wasm_kernels.sh BUILD_FOLDER
set -eu

build=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if relaxed=$(wasm/node24.sh "$build/wasm/node24" 2>"$log"); then
    module=test_kernels-relaxed variants="simd128 and relaxed-simd"
else
    echo "[  SKIPPED ] relaxed-simd: $(cat "$log")"
    relaxed=node module=test_kernels variants=simd128
fi
LAMINA_WASM=$build/wasm/tests/$module.wasm "$relaxed" wasm/lamina.mjs >"$log" 2>&1 || { cat "$log"; exit 1; }
for variant in $variants; do
    if grep -q "^$variant is not checked" "$log"; then
        echo "$module: $variant was not checked under $("$relaxed" --version)" >&2
        exit 1
    fi
done
sed -n "s/^ok \(.*\)/[       OK ] \1, $variants/p" "$log"
