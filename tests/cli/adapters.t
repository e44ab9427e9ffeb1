Adapters: weights, names, and what is refused.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf; lamina import stories.gguf -q
  $ for a in oz shakespeare; do lamina import "$DATA/adapters/$a" -m stories.slm -q; done; ls *.slm
  oz.slm
  shakespeare.slm
  stories.slm

  $ write() { lamina run stories.slm --raw -p "Once upon a time" --temp 0 -n 40 -q "$@"; }
  > write > base; write -a oz.slm > oz; write -a oz.slm=0 > zero; write -a oz.slm=1.0 > one; write -a oz.slm=1e0 > exponent
  > write -a oz.slm=-0.5 > negative; write -a "$DATA/adapters/oz" > folder; write -a oz.slm -a shakespeare.slm=.5 > both; write > again
  > cmp base zero; cmp base again; cmp oz one; cmp oz exponent; cmp oz folder
  > for f in oz negative both; do cmp -s base $f && echo "$f is as the base"; done; :

A name with '=' is a name if there is such a file.

  $ cp oz.slm oz=2; lamina run stories.slm --raw -p "Once upon a time" --temp 0 -n 40 -q -a oz=2 | cmp - oz
  $ lamina run stories.slm --raw -p "Once upon a time" --temp 0 -n 40 -q -a oz=2=1 | cmp - oz
  $ lamina run stories.slm -p Hi -a oz.slm=heavy
  lamina: --adapter oz.slm=heavy: no file has this name, and "heavy" behind the '=' is not a number
  lamina run --help tells more.
  [2]
  $ lamina run stories.slm -p Hi -a oz.slm=
  lamina: --adapter oz.slm=: no file has this name, and "" behind the '=' is not a number
  lamina run --help tells more.
  [2]
  $ lamina run stories.slm -p Hi -a nothing=heavy
  lamina: nothing=heavy: open: No such file or directory (LAM_E_NOT_FOUND)
  [1]

An option is no file's name, unless there is such a file.

  $ lamina run stories.slm -a -p Hi
  lamina: --adapter needs FILE[=WEIGHT]
  lamina run --help tells more.
  [2]
  $ lamina run -m -p Hi
  lamina: --model needs FILE
  lamina run --help tells more.
  [2]
  $ cp oz.slm ./-p; lamina run stories.slm --raw -a -p -p Once -n 3 --temp 0 -q > with; lamina run stories.slm --raw -a oz.slm -p Once -n 3 --temp 0 -q | cmp - with
  $ lamina run stories.slm -p Hi -a oz.slm=1e999
  lamina: --adapter oz.slm: the weight "1e999" is not a finite number
  lamina run --help tells more.
  [2]

One in the other's place.

  $ lamina run oz.slm -p Hi
  lamina: oz.slm is an adapter, not a base (LAM_E_FORMAT)
  [1]
  $ lamina run stories.slm -a stories.slm -p Hi
  lamina: stories.slm is a base, not an adapter (LAM_E_FORMAT)
  [1]
  $ lamina run stories.slm -a stories.gguf -p Hi 2>&1 | grep -c '^lamina: stories.gguf.*LAM_E'
  1

Another base: refused, unless waived where the shapes fit; then the composition says so.

  $ cp stories.gguf other.gguf; printf '\125' | dd of=other.gguf bs=1 seek=300000 conv=notrunc status=none; lamina import other.gguf -q
  $ lamina run other.slm -a oz.slm -p Hi 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_WRONG_BASE
  $ lamina run other.slm -a oz.slm --waive --raw -p Hi -n 3 --json > waived && grep -c composition_id waived
  1
  $ grep -A1 '"waived"' waived | tr -d ' \n'; echo
  "waived":["oz"
  $ lamina run "$TESTS/golden/llama-gqa" -a oz.slm --waive -p Hi 2>&1 | head -n 1 | grep -oE 'LAM_E_(SHAPE|UNMATCHED)' | wc -l
  1

An adapter that is bound to no base is refused with what helps, and can be bound: it then computes what it does where that is waived.

  $ lamina import "$TESTS/golden/llama-gqa" -o gqa.slm -q; cp "$TESTS/golden/methods/llama-gqa/sparse.slm" free.slm
  > lamina run gqa.slm -a free.slm --raw -p Hi
  lamina: free.slm is bound to no base: import it for this base, or waive that; `lamina import ADAPTER -m BASE -o FILE.slm` binds it, --waive takes it as it is (LAM_E_UNBOUND)
  [1]
  $ lamina import free.slm -o bound.slm; lamina import free.slm -m gqa.slm; lamina import free.slm -m gqa.slm -o free.slm
  lamina: free.slm is a .slm already; -m BASE binds an adapter that is bound to no base
  lamina import --help tells more.
  lamina: where to? give -o FILE.slm
  lamina import --help tells more.
  lamina: free.slm is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina import free.slm -m gqa.slm -o bound.slm | grep -oE '^(bound.slm: an adapter|applied.*tensors)'; lamina verify bound.slm -q | head -n 1
  bound.slm: an adapter
  applied    [0-9]+ of [0-9]+ tensors (re)
  bound.slm: every piece matches
  $ for a in "free.slm --waive" bound.slm; do lamina logits gqa.slm -a $a --token-ids 1,5,9,12 | grep -v '^composition\|waive' ; done | sort | uniq -c | grep -vc '^ *2 '
  0
  [1]
  $ lamina inspect bound.slm --json > told; python3 - <<'EOF'
  > import json, subprocess
  > told, free = json.load(open("told")), json.loads(subprocess.run(["lamina", "inspect", "free.slm", "--json", "--tensors"], capture_output=True).stdout)
  > base = json.loads(subprocess.run(["lamina", "inspect", "gqa.slm", "--json"], capture_output=True).stdout)
  > print(told["bases"] == [base["base_digest"]], free["bases"], told["weights_root"] == free["weights_root"], told["modules"] == free["modules"])
  > EOF
  True [] True True
  $ lamina import bound.slm -m gqa.slm -o again.slm; lamina import bound.slm -m stories.slm -o again.slm 2>&1 | grep -oE 'LAM_E_(SHAPE|UNMATCHED|WRONG_BASE)' | wc -l
  lamina: bound.slm is bound to this base already (LAM_E_ARGUMENT)
  1
  $ lamina import free.slm -m stories.slm -o again.slm 2>&1 | grep -oE 'LAM_E_(SHAPE|UNMATCHED)' | wc -l; ls again.slm 2> /dev/null
  1
  [2]

An activated adapter without its invocation: logits and perplexity say what helps, and bench gives the invocation itself.

  $ tied="$TESTS/golden/qwen2-tied/qwen2-tied-f16.gguf" act="$TESTS/golden/methods/qwen2-tied/alora"; printf 'abcdefgh%.0s' 1 2 3 4 5 6 7 8 > text
  > for c in "logits $tied --token-ids 1,2,3" "perplexity $tied text -c 8" "run $tied --token-ids 1,2,3 -n 1"; do lamina $c -a $act -q 2>&1 | grep -o -- '--allow-base lets.*'; done
  --allow-base lets the base answer in its place (LAM_E_INVOCATION)
  --allow-base lets the base answer in its place (LAM_E_INVOCATION)
  --allow-base lets the base answer in its place (LAM_E_INVOCATION)
  $ tied="$TESTS/golden/qwen2-tied/qwen2-tied-f16.gguf" act="$TESTS/golden/methods/qwen2-tied/alora"; for c in "logits $tied --token-ids 1,2,3 -q" "perplexity $tied text -c 8 -q"
  > do lamina $c | grep -v '^comp' > bare; lamina $c -a $act --allow-base | grep -v '^comp\|^standing' | cmp - bare && echo as the base; done
  as the base
  as the base
  $ tied="$TESTS/golden/qwen2-tied/qwen2-tied-f16.gguf" act="$TESTS/golden/methods/qwen2-tied/alora"; lamina bench $tied -a $act -q --runs 1 --only decode,prefill,switch,load,context,batch -n 4 --prefill 2 -c 140 --sessions 2 | grep -c '^decode'
  1

All that is wrong is listed whole below the message, by import and by run: what, where, and its numbers.

  $ foreign="$TESTS/golden/adapters/qwen2-tied/all-r4"
  > lamina import "$foreign" -m gqa.slm -o foreign.slm -q 2> list; sed -n '1p;2p;16p' list; awk '{print $1}' list | sort | uniq -c
  lamina: .*made for another model: it has 3 layers or more, the base 2; .* and 12 more \(LAM_E_UNMATCHED\) (re)
    LAM_E_UNMATCHED  base_model.model.model.layers.2.mlp.down_proj.lora_A.weight   matches no module of the base
    LAM_E_SHAPE      base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight   factors A [4, 64] and B [64, 4]; blk.0.ffn_gate takes A [rank, 64] and B [108, rank]
        6 LAM_E_SHAPE
       14 LAM_E_UNMATCHED
        1 lamina:
  $ for c in run check; do lamina $c gqa.slm -a "$TESTS/golden/adapters/qwen2-tied/all-r4" 2>&1 < /dev/null | sed -n 1p; done
  lamina: .*made for another model: it has 3 layers or more, the base 2; .* and 12 more \(LAM_E_UNMATCHED\) (re)
  lamina: .*made for another model: it has 3 layers or more, the base 2; .* and 12 more \(LAM_E_UNMATCHED\) (re)
  $ ls foreign.slm 2>/dev/null; foreign="$TESTS/golden/adapters/qwen2-tied/all-r4"
  > tail -n +2 list | awk '{print $1 " " $2}' > table; lamina run gqa.slm -a "$foreign" -p Hi -q 2>&1 | tail -n +2 | sed "s,$foreign: ,," | awk '{print $1 " " $2}' | cmp - table
  > lamina import "$foreign" -m gqa.slm -o foreign.slm --json > import.json
  > python3 -c 'import json; print("\n".join(f["name"] + " " + f["subject"] for f in json.load(open("import.json"))["error"]["faults"]))' | cmp - table
  $ lamina run stories.slm -a nothing -p Hi --json | grep -c faults
  0
  [1]

Many of them.

  $ lamina run stories.slm -p Hi $(for i in $(seq 65); do echo -a oz.slm; done)
  lamina: --adapter oz.slm: 64 adapters at most
  lamina run --help tells more.
  [2]

An activated adapter without its invocation is an error that shows what was sought; the base answers if asked for.

  $ lamina run "$TESTS/golden/llama-gqa" -a "$TESTS/golden/methods/llama-gqa/alora" --token-ids 1,5,6 -n 8 --temp 0 -q
  lamina: adapter alora: its invocation "???" (tokens 20, 21, 22) is not in the history; --allow-base lets the base answer in its place (LAM_E_INVOCATION)
  [1]
  $ write() { lamina run "$TESTS/golden/llama-gqa" --token-ids 1,5,6 -n 8 --temp 0 -q "$@"; }
  > write >base.txt; write -a "$TESTS/golden/methods/llama-gqa/alora" --allow-base | cmp - base.txt
