Text from a prompt.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf; lamina import stories.gguf -q

The most likely tokens: llama.cpp writes the same from this file.

  $ lamina run stories.slm --token-ids 1 --temp 0 -n 60 -q
   Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. She wanted to play with it, but it was too high

From a prompt, from standard input less its line end, with the prompt in front; a GGUF is the same model.

  $ lamina run stories.slm --raw -p "Once upon a time" --temp 0 -n 10 -q
  , there was a little girl named Lily
  $ echo "Once upon a time" | lamina run -m stories.slm --raw --temp 0 -n 10 -q
  , there was a little girl named Lily
  $ lamina run --model=stories.gguf --raw --echo -p "Once upon a time" --temp=0 -n10 -q
  Once upon a time, there was a little girl named Lily
  $ lamina run stories.slm --token-ids 1,403,407,261,378 --echo --temp 0 -n 10 -q
  Once upon a time, there was a little girl named Lily
  $ LAMINA_MODEL=stories.slm lamina run --raw -p "Once upon a time" --temp 0 -n 10 -q
  , there was a little girl named Lily

No tokens means none; that is not the same as no -n.

  $ lamina run stories.slm --raw --echo -p Once -n 0 -q
  Once
  $ lamina run stories.slm --raw -p Once --json | grep '"tokens": 256'
    "tokens": 256,
  $ lamina run stories.slm --raw -p Once --json -n 0 | grep -E '"(text|stop|tokens)"'
    "text": "",
    "stop": "tokens",
    "tokens": 0,

A seed gives a text, with any number of threads; the summary stays out of it.

  $ for t in 1 2 5; do lamina run stories.slm --raw -p Once -n 100 --seed 7 -t $t -q | sha256sum; done | uniq | wc -l
  1
  $ for s in 1 2 3; do lamina run stories.slm --raw -p Once -n 100 --seed $s -q | sha256sum; done | sort -u | wc -l
  3
  $ lamina run stories.slm --raw -p "Once upon a time" --temp 0 -n 3 2>/dev/null
  , there was
  $ lamina run stories.slm --raw -p "Once upon a time" --temp 0 -n 3 2>&1 >/dev/null
  
  composition sha256:[0-9a-f]{64}, bytes verified (re)
  5 prompt tokens at .*/s, 3 tokens at .*/s: as many as -n allows; \w+, \d+ threads (re)
  $ for v in lazy full; do lamina run stories.slm --raw -p Once -n 3 --verify $v 2>&1 >/dev/null | grep -o 'bytes verified'; done
  bytes verified
  bytes verified

Without verification every output says so.

  $ lamina run stories.slm --raw -p Once -n 3 --verify off 2>&1 >/dev/null | grep -o 'bytes unverified'
  bytes unverified
  $ lamina logits stories.slm -p Once --verify off | grep bytes
  bytes unverified
  $ for i in 1 2 3 4 5 6 7 8 9 10; do echo "Once upon a time there was a girl"; done > story.txt
  $ lamina perplexity stories.slm story.txt -c 16 -q --verify off | grep bytes
  bytes unverified
  $ for c in "run stories.slm -p Once -n 1" "logits stories.slm -p Once" "perplexity stories.slm story.txt -c 16"; do lamina $c -q --json --verify off | grep bytes; done
    "bytes": "unverified",
    "bytes": "unverified",
      "bytes": "unverified",
  $ for c in "run stories.slm -p Once -n 1" "logits stories.slm -p Once" "perplexity stories.slm story.txt -c 16"; do lamina $c -q --json | grep bytes; done
    "bytes": "verified",
    "bytes": "verified",
      "bytes": "verified",

A byte of the weights that is not what it was: nothing is written.

  $ cp stories.slm bad.slm; printf '\125' | dd of=bad.slm bs=1 seek=400000 conv=notrunc status=none
  $ for v in lazy full; do lamina run bad.slm --raw --echo -p Once -n 3 --verify $v 2>&1 | sed 's/sha256:[0-9a-f]*/HASH/g'; done
  lamina: bad.slm: piece 0 of 1 \(data bytes 0 to \d+\) has the hash HASH, the file says HASH \(LAM_E_DIGEST\) (re)
  lamina: bad.slm: piece 0 of 1 \(data bytes 0 to \d+\) has the hash HASH, the file says HASH \(LAM_E_DIGEST\) (re)
  $ lamina run bad.slm --raw -p Once -n 1 --verify off -q >/dev/null

A model without a template says that it continues the text.

  $ lamina run stories.slm -p "Once upon a time" --temp 0 -n 3 2>&1 | head -n 1
  lamina: stories260K has no chat template: the prompt is the text to continue (as with --raw)
  $ lamina run stories.slm -p Hi --system Ho
  lamina: stories260K has no chat template, so there is no place for --system (LAM_E_TEMPLATE)
  [1]

Limits.

  $ lamina run stories.slm --raw -p "Once upon a time" -c 4
  lamina: the prompt has 5 tokens, the context room for 4 (-c sets it) (LAM_E_CONTEXT)
  [1]
  $ lamina run stories.slm --raw -p "Once upon a time" --temp 0 -c 8 --json | grep -E '"(stop|tokens)"'
    "stop": "context",
    "tokens": 3,
  $ lamina run stories.slm --raw
  lamina: the prompt is empty: standard input held no text (LAM_E_ARGUMENT)
  [1]
  $ lamina run stories.slm --token-ids 1,512
  lamina: .*token 512 .*\(LAM_E_TOKEN\) (re)
  [1]

What is no model.

  $ lamina run nothing.slm -p Hi
  lamina: nothing.slm: open: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina run / -p Hi
  lamina: /: a folder with neither config.json nor adapter_config.json (LAM_E_MAGIC)
  [1]
  $ lamina run nothing.slm -p Hi --json
  {
    "error": {
      "code": 4,
      "name": "LAM_E_NOT_FOUND",
      "message": "nothing.slm: open: No such file or directory"
    }
  }
  [1]
  $ lamina run stories.slm Once
  lamina: unexpected argument "Once"; a prompt is given with -p
  lamina run --help tells more.
  [2]
  $ lamina run "Why is the sky blue?"
  lamina: Why is the sky blue?: open: No such file or directory; the first word is the MODEL, -p gives the prompt (LAM_E_NOT_FOUND)
  [1]
  $ lamina run -m nothing.slm
  lamina: nothing.slm: open: No such file or directory (LAM_E_NOT_FOUND)
  [1]

Without a model there is the one that ships, beside an installed program; or none.

  $ mkdir -p prefix/bin prefix/share/lamina; cp "$BUILD/lamina" prefix/bin; cp stories.gguf prefix/share/lamina/stories260K-Q8_0.gguf
  > prefix/bin/lamina run --raw -p "Once upon a time" --temp 0 -n 3 2>&1 | sed -n '1s|/.*/prefix|PREFIX|p; 2p'
  lamina: no model given: this is the small one that ships with Lamina, PREFIX/share/lamina/stories260K-Q8_0.gguf
  , there was
  $ mkdir -p tree/build tree/data; cp "$BUILD/lamina" tree/build; cp stories.gguf tree/data/stories260K-Q8_0.gguf
  > tree/build/lamina run --raw -p "Once upon a time" --temp 0 -n 3 -q
  , there was
  $ rm -r prefix/share; prefix/bin/lamina run -p Hi
  lamina: no model: give -m FILE, or set LAMINA_MODEL
  lamina run --help tells more.
  [2]

So it is for the program in WebAssembly (where it is built), which cannot find it by itself.

  $ module="$BUILD/wasm/lamina.wasm"; if [ -e "$module" ]; then
  > LAMINA_WASM=$module node "$TESTS/../wasm/lamina.mjs" run --raw -p "Once upon a time" --temp 0 -n 3 -q; else echo ", there was"; fi
  , there was

A forced instruction set changes no bit; one that is unknown is refused.

  $ for isa in scalar avx2 avx2-vnni avx512; do LAMINA_ISA=$isa lamina logits stories.slm -p Once -q 2>/dev/null; done | sort -u | wc -l
  2
  $ LAMINA_ISA=mmx lamina run stories.slm -p Hi
  lamina: instruction set mmx: unknown; .* \(LAM_E_ISA\) (re)
  [1]

Ctrl-C ends it with what there is.

  $ NO_COLOR=1 terminal lamina run stories.slm --raw -p Once -n 100000000 -c 1000000 <<'STEPS'
  > see  upon
  > press C
  > see composition sha256:
  > see : interrupted;
  > end 130
  > STEPS

A reader that leaves is no error of ours; a file that is full is.

  $ lamina run stories.slm --raw -p Once -n 100000000 -c 1000000 -q | head -c 5; echo
   upon
  $ lamina run stories.slm --raw -p Once -n 100000000 -c 1000000 -q > /dev/full
  lamina: standard output: No space left on device (LAM_E_NO_SPACE)
  [1]
  $ lamina run stories.slm --raw -p Once -n 3 --json > /dev/full
  lamina: standard output: No space left on device (LAM_E_NO_SPACE)
  [1]
  $ lamina --help > /dev/full
  lamina: standard output: No space left on device (LAM_E_NO_SPACE)
  [1]
  $ lamina run stories.slm --raw -p Once -n 3 -q >&-
  lamina: standard output: Bad file descriptor (LAM_E_IO)
  [1]
  $ lamina import stories.gguf -o closed.slm >&-; cmp closed.slm stories.slm
  lamina: standard output: Bad file descriptor (LAM_E_IO)
  $ lamina run stories.slm --raw -q <&-
  lamina: standard input: Bad file descriptor (LAM_E_IO)
  [1]
  $ lamina run stories.slm --raw -p Once --temp 0 -n 3 2>/dev/null | grep -c "$(printf '\033')"
  0
  [1]

A model with a template gets its conversation; --raw gets the text; what a template cannot take is refused.

  $ ids() { lamina logits "$TESTS/golden/qwen2-tied" --json "$@" | python3 -c 'import json, sys
  > print(*[p["token"] for p in json.load(sys.stdin)["logits"]])'; }
  > ids -p Hi | lamina detokenize "$TESTS/golden/qwen2-tied"
  > ids -p Hi --raw | lamina detokenize "$TESTS/golden/qwen2-tied"
  <|im_start|>user
  Hi<|im_end|>
  <|im_start|>assistant
  
  Hi
  $ lamina run "$TESTS/golden/qwen2-tied" -p Hi --system Ho --json -n 0 | grep prompt_tokens
    "prompt_tokens": 32,
  $ lamina run "$TESTS/golden/qwen2-tied" -p Hi -n 0 --echo -q
  Hi
  
  $ printf 'a\000b' | lamina run "$TESTS/golden/qwen2-tied" -n 1 -q
  lamina: the prompt holds a zero byte (byte 1 of 3); --raw takes it (LAM_E_ARGUMENT)
  [1]
  $ printf 'a\377b' | lamina run "$TESTS/golden/qwen2-tied" -n 1 -q
  lamina: the prompt is not UTF-8, which a chat template needs; --raw puts U+FFFD for what is none (LAM_E_UTF8)
  [1]
