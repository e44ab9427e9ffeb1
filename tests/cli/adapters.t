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

All that is wrong is listed whole below the message, by import and by run: what, where, and its numbers.

  $ lamina import "$TESTS/golden/llama-gqa" -o gqa.slm -q; foreign="$TESTS/golden/adapters/qwen2-tied/all-r4"
  > lamina import "$foreign" -m gqa.slm -o foreign.slm -q 2> list; sed -n '1p;2p;16p' list; awk '{print $1}' list | sort | uniq -c
  lamina: .*made for another model: it has 3 layers or more, the base 2; .* and 12 more \(LAM_E_UNMATCHED\) (re)
    LAM_E_UNMATCHED  base_model.model.model.layers.2.mlp.down_proj.lora_A.weight   matches no module of the base
    LAM_E_SHAPE      base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight   factors A [4, 64] and B [64, 4]; blk.0.ffn_gate takes A [rank, 64] and B [108, rank]
        6 LAM_E_SHAPE
       14 LAM_E_UNMATCHED
        1 lamina:
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
