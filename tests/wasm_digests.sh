#!/bin/sh
# The WebAssembly program prints the native one's digests with each of its kernel variants: logits at every position and composition
# ids, base and composed; and the files that both import are the same bytes.
#     tests/wasm_digests.sh BUILD_FOLDER
set -eu

build=$1
native=$build/lamina
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/n" "$work/w"
text="Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
count=0

variants="scalar simd128"
if relaxed=$(wasm/node24.sh "$build/wasm/node24" 2>"$work/why"); then
    variants="$variants relaxed-simd"
else
    echo "[  SKIPPED ] relaxed-simd: $(cat "$work/why")"
fi

# wasm VARIANT ARGUMENTS…
wasm()
{
    variant=$1
    shift
    case $variant in
    relaxed-simd) LAMINA_ISA=$variant LAMINA_WASM=$build/wasm/lamina-relaxed.wasm "$relaxed" wasm/lamina.mjs "$@" ;;
    *) LAMINA_ISA=$variant LAMINA_WASM=$build/wasm/lamina.wasm node wasm/lamina.mjs "$@" ;;
    esac
}

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
    wasm simd128 import "$source" ${1:+-m "$work/w/$2"} -o "$work/w/$file" -q >/dev/null
    cmp "$work/n/$file" "$work/w/$file"
}

# logits TITLE BASE TOKENS [ADAPTER=WEIGHT…]; the whole native table must hold a line a position. $policy: an option more
policy=
logits()
{
    title=$1 base=$2 tokens=$3
    shift 3
    set -- $(for a; do echo "-a DIR/$a"; done) ${policy:+--policy $policy}
    positions=$(echo "$tokens" | tr ',' '\n' | wc -l)
    "$native" logits "$work/n/$base" --token-ids "$tokens" $(echo "$*" | sed "s#DIR#$work/n#g") >"$work/n.txt"
    [ "$(grep -c ' sha256:' "$work/n.txt")" -ge "$positions" ] || { echo "$title: too few digests" >&2; exit 1; }
    for variant in $variants; do
        wasm $variant logits "$work/w/$base" --token-ids "$tokens" $(echo "$*" | sed "s#DIR#$work/w#g") >"$work/w.txt"
        same "$title, $variant"
    done
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
wasm simd128 tokenize "$work/w/stories.slm" -p "$text" >"$work/w.txt"
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
# Every other method, activated and materialised, too.
import $golden/methods/llama-k/dora dora.slm -m llama-k-kmix.slm
import $golden/methods/llama-k/ia3 ia3.slm -m llama-k-kmix.slm
logits "llama-k-kmix, dora + 0.5 ia3" llama-k-kmix.slm "$(tokens 40 200)" dora.slm=1 ia3.slm=0.5
policy=materialize logits "llama-k-kmix, materialised" llama-k-kmix.slm "$(tokens 40 200)" dora.slm=1 ia3.slm=0.5
import $golden/llama-gqa llama-gqa.slm
for method in alora lora-bias norms saved-embed head; do import $golden/methods/llama-gqa/$method $method.slm -m llama-gqa.slm; done
logits "llama-gqa, activated from the 13th token" llama-gqa.slm "$(tokens 12 200),20,21,22,$(tokens 9 200)" alora.slm=1
logits "llama-gqa, four more methods" llama-gqa.slm "$(tokens 30 200)" lora-bias.slm=1 norms.slm=1 saved-embed.slm=0.5 head.slm=-1
"$native" diff $golden/llama-gqa $golden/methods/llama-gqa/tuned-dense --method sparse --density 0.2 -o "$work/n/sparse.slm" -q >/dev/null
wasm simd128 diff $golden/llama-gqa $golden/methods/llama-gqa/tuned-dense --method sparse --density 0.2 -o "$work/w/sparse.slm" -q >/dev/null
cmp "$work/n/sparse.slm" "$work/w/sparse.slm"
"$native" diff $golden/llama-gqa $golden/methods/llama-gqa/tuned-dense --method dense -o "$work/n/dense.slm" -q >/dev/null
cp "$work/n/dense.slm" "$work/w/dense.slm"
logits "llama-gqa, sparse" llama-gqa.slm "$(tokens 30 200)" sparse.slm=1
policy=materialize logits "llama-gqa, dense, materialised" llama-gqa.slm "$(tokens 30 200)" dense.slm=1

# The table of tests/test_invariance.c, made by both: chunks, and seven other sessions in the plan. Each fails by itself if its cells
# differ; here the digests themselves must be the same ones. "methods": every method under either policy.
table() { grep -aE 'positions$|\|' | sed -E 's/^ *[a-z0-9-]+ +[0-9]+ threads//' | sort -u; }
for subject in "llama K mix" "gemma3 K mix" "llama f32" "methods"; do
    SUBJECT=$subject "$build/tests/test_invariance" >"$work/n.log" 2>&1
    if [ -n "$relaxed" ]; then
        SUBJECT=$subject LAMINA_WASM=$build/wasm/tests/test_invariance-relaxed.wasm "$relaxed" wasm/lamina.mjs >"$work/w.log" 2>&1
    else
        SUBJECT=$subject LAMINA_WASM=$build/wasm/tests/test_invariance.wasm node wasm/lamina.mjs >"$work/w.log" 2>&1
    fi
    for variant in $variants; do
        grep -aqE "^ *$variant +1 threads" "$work/w.log" || { echo "$subject: no line of $variant" >&2; exit 1; }
    done
    table <"$work/n.log" >"$work/n.txt"
    table <"$work/w.log" >"$work/w.txt"
    [ "$(wc -l <"$work/n.txt")" -ge 4 ] || { echo "$subject: no table" >&2; exit 1; }
    same "table of $subject"
done

# A variant that a module cannot run is refused. Node 20 takes relaxed instructions with a flag and computes them wrongly: the
# launcher's question and the module's own must both notice.
refused() # COMMAND…
{
    if LAMINA_ISA=relaxed-simd "$@" >"$work/w.txt" 2>&1; then
        echo "relaxed-simd ran: $*" >&2
        exit 1
    fi
    grep -q 'relaxed-simd: this CPU lacks it' "$work/w.txt" || { cat "$work/w.txt" >&2; exit 1; }
    count=$((count + 1))
}
run_base="wasm/lamina.mjs logits $work/w/stories.slm --token-ids 1,2"
LAMINA_WASM=$build/wasm/lamina.wasm refused node $run_base
case $(node --version) in
v20.*)
    LAMINA_WASM=$build/wasm/lamina-relaxed.wasm refused node --experimental-wasm-relaxed-simd $run_base
    node --experimental-wasm-relaxed-simd -e 'import("./wasm/relaxed.mjs").then((m) => process.exit(m.relaxedSimdIsExact() ? 1 : 0))' ||
        { echo "wasm/relaxed.mjs takes Node 20's relaxed SIMD for right" >&2; exit 1; } ;;
esac

echo "$count comparisons hold"
