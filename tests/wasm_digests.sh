#!/bin/sh
# The WebAssembly program prints the native one's digests: logits at every position and composition ids, base and composed, and the
# files that both import are the same bytes.
#     tests/wasm_digests.sh BUILD_FOLDER
set -eu

build=$1
native=$build/lamina
export LAMINA_WASM="${LAMINA_WASM:-$build/wasm/lamina.wasm}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/n" "$work/w"
text="Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
count=0

wasm() { node wasm/lamina.mjs "$@"; }

same() # NAME: $work/n.txt and $work/w.txt
{
    count=$((count + 1))
    if ! cmp -s "$work/n.txt" "$work/w.txt"; then
        echo "$1: native and wasm differ:" >&2
        diff "$work/n.txt" "$work/w.txt" | head -6 >&2
        exit 1
    fi
    printf '%-44s %s\n' "$1" "$(tail -2 "$work/n.txt" | head -1)"
}

import() # SOURCE FILE [-m BASE]
{
    source=$1 file=$2
    shift 2
    "$native" import "$source" ${1:+-m "$work/n/$2"} -o "$work/n/$file" -q >/dev/null
    wasm import "$source" ${1:+-m "$work/w/$2"} -o "$work/w/$file" -q >/dev/null
    cmp "$work/n/$file" "$work/w/$file"
}

# logits TITLE BASE TOKENS [ADAPTER=WEIGHT…]; the whole native table must hold a line a position
logits()
{
    title=$1 base=$2 tokens=$3
    shift 3
    set -- $(for a; do echo "-a DIR/$a"; done)
    positions=$(echo "$tokens" | tr ',' '\n' | wc -l)
    "$native" logits "$work/n/$base" --token-ids "$tokens" $(echo "$*" | sed "s#DIR#$work/n#g") >"$work/n.txt"
    wasm logits "$work/w/$base" --token-ids "$tokens" $(echo "$*" | sed "s#DIR#$work/w#g") >"$work/w.txt"
    [ "$(grep -c ' sha256:' "$work/n.txt")" -ge "$positions" ] || { echo "$title: too few digests" >&2; exit 1; }
    same "$title"
}

# tokens N VOCAB: a fixed sequence
tokens() { awk -v n="$1" -v v="$2" 'BEGIN { x = 7; for (i = 0; i < n; i++) { x = (x * 75 + 74) % 65537; printf "%s%d", i ? "," : "", x % v } }'; }

import data/stories260K-Q8_0.gguf stories.slm
import data/adapters/oz oz.slm -m stories.slm
import data/adapters/shakespeare shakespeare.slm -m stories.slm
long=$(tokens 300 512) # beyond a cut of attention
logits "stories260K, base" stories.slm "$long"
logits "stories260K, oz + 0.5 shakespeare" stories.slm "$long" oz.slm=1 shakespeare.slm=0.5
"$native" tokenize "$work/n/stories.slm" -p "$text" >"$work/n.txt"
wasm tokenize "$work/w/stories.slm" -p "$text" >"$work/w.txt"
same "stories260K, tokens of a text"

golden=tests/golden
for model in llama-k/llama-k-kmix gemma3-k/gemma3-k-kmix qwen3-k/qwen3-k-kmix qwen2-tied/qwen2-tied-f16 llama-yarn/llama-yarn-f16; do
    name=${model#*/}
    import $golden/$model.gguf $name.slm
    logits "$name, base" $name.slm "$(tokens 40 200)"
done
import $golden/adapters/llama-k/all-r4 all-r4.slm -m llama-k-kmix.slm
logits "llama-k-kmix, -0.5 all-r4" llama-k-kmix.slm "$(tokens 40 200)" all-r4.slm=-0.5
import $golden/gemma3-swa gemma3-swa.slm
import $golden/adapters/gemma3-swa/all-r2 all-r2.slm -m gemma3-swa.slm
import $golden/adapters/gemma3-swa/embed embed.slm -m gemma3-swa.slm
logits "gemma3-swa bf16, all-r2 + 1.7 embed" gemma3-swa.slm "$(tokens 80 200)" all-r2.slm=1 embed.slm=1.7
# The table of tests/test_invariance.c, made by both: chunks, and seven other sessions in the plan. Each fails by itself if its cells
# differ; here the digests themselves must be the same ones.
table() { grep -aE 'positions$|\|' | sed -E 's/^ *(scalar|avx2|avx512|neon) +[0-9]+ threads//' | sort -u; }
for subject in "llama K mix" "gemma3 K mix" "llama f32"; do
    SUBJECT=$subject "$build/tests/test_invariance" >"$work/n.log" 2>&1
    SUBJECT=$subject LAMINA_WASM=$build/wasm/tests/test_invariance.wasm node wasm/lamina.mjs >"$work/w.log" 2>&1
    table <"$work/n.log" >"$work/n.txt"
    table <"$work/w.log" >"$work/w.txt"
    [ "$(wc -l <"$work/n.txt")" -ge 4 ] || { echo "$subject: no table" >&2; exit 1; }
    same "table of $subject"
done

echo "$count tables equal"
