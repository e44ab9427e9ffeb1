What the program tells about itself, and what it says to wrong use.

  $ lamina --version
  lamina 0.1.0
  $ lamina
  lamina: which command? lamina help lists them
  lamina --help tells more.
  [2]
  $ lamina --help | head -n 3
  lamina 0.1.0: quantised models with adapters laid over them, exactly and reversibly
  
  Usage: lamina COMMAND [OPTIONS]
  $ lamina --help > one; lamina help > two; lamina -h > three; cmp one two && cmp one three

Every command has help with examples, by either way.

  $ for c in run import inspect verify export logits tokenize detokenize perplexity bench cache pull push seed; do
  >     lamina $c --help > one && lamina help $c > two && cmp one two && grep -q "^Usage: lamina $c" one && grep -q "^  lamina $c" one ||
  >     grep -q "| lamina $c" one || echo "$c"
  > done
  $ lamina help verify
  Usage: lamina verify FILE [OPTIONS]
  
  Hash every byte of a .slm against its tree.
  
  Options:
        --json                     print JSON for programs, errors too
    -q, --quiet                    no progress, no summary
    -h, --help                     this help
  
  Examples:
    lamina verify model.slm
    lamina verify model.slm --json

No message is lost for a byte that JSON cannot hold.

  $ lamina inspect "$(printf 'a\377b')" --json | grep message
      "message": "a?b: open: No such file or directory"

Mistyped commands and options.

  $ lamina imprt x
  lamina: no command "imprt"; did you mean import?
  lamina --help tells more.
  [2]
  $ lamina help tokenise
  lamina: no command "tokenise"; did you mean tokenize?
  lamina --help tells more.
  [2]
  $ lamina frobnicate
  lamina: no command "frobnicate"
  lamina --help tells more.
  [2]
  $ lamina run --promt Hi
  lamina: unknown option --promt; did you mean --prompt?
  lamina run --help tells more.
  [2]
  $ lamina run --xyzzy=7
  lamina: unknown option --xyzzy=7
  lamina run --help tells more.
  [2]
  $ lamina run -z
  lamina: unknown option -z
  lamina run --help tells more.
  [2]
  $ for o in temperature temprature; do lamina run --$o 0.5; done
  lamina: unknown option --temperature; did you mean --temp?
  lamina run --help tells more.
  lamina: unknown option --temprature; did you mean --temp?
  lamina run --help tells more.
  [2]

A model or a chat without a command.

  $ lamina model.gguf -p Hi
  lamina: no command "model.gguf"; lamina run model.gguf runs a model
  lamina --help tells more.
  [2]
  $ lamina chat
  lamina: no command "chat"; lamina run MODEL chats, on a terminal
  lamina --help tells more.
  [2]

The help of -m tells whether it may be left out.

  $ lamina import --help | grep -A 1 -e --model
    -m, --model FILE               the base of an adapter, which needs one: .slm, GGUF, or a Hugging
                                   Face folder
  $ lamina export --help | grep -A 1 -e --model
    -m, --model FILE               the base: .slm, GGUF, Hugging Face folder, or a name in the store
                                   (default: $LAMINA_MODEL, else the store's active composition, else the
  $ lamina run --help | grep -c rlwrap
  1

A command takes the options that it uses, and no others.

  $ lamina verify --temp 0.5 x
  lamina: verify does not take --temp
  lamina verify --help tells more.
  [2]
  $ lamina tokenize -a x.slm
  lamina: tokenize does not take --adapter
  lamina tokenize --help tells more.
  [2]

Values that are missing, malformed, or out of range; no model is needed to say so.

  $ lamina run -n
  lamina: --tokens needs N
  lamina run --help tells more.
  [2]
  $ lamina run -m ''
  lamina: --model needs FILE
  lamina run --help tells more.
  [2]
  $ lamina run --json=yes
  lamina: --json takes no value: --json=yes
  lamina run --help tells more.
  [2]
  $ lamina run -n ten
  lamina: --tokens: "ten" is not a whole number
  lamina run --help tells more.
  [2]
  $ lamina run --seed -1
  lamina: --seed: "-1" is not a whole number
  lamina run --help tells more.
  [2]
  $ lamina run -t 0
  lamina: --threads 0: 1 to 1024 are possible
  lamina run --help tells more.
  [2]
  $ lamina run --top-p 7
  lamina: --top-p 7: 0 to 1 are possible
  lamina run --help tells more.
  [2]
  $ lamina run --temp nan
  lamina: --temp: "nan" is not a number
  lamina run --help tells more.
  [2]
  $ lamina run --temp inf
  lamina: --temp inf: 0 to 100 are possible
  lamina run --help tells more.
  [2]
  $ lamina run --verify maybe
  lamina: --verify: "maybe" is none of lazy, full and off
  lamina run --help tells more.
  [2]
  $ lamina run -p Hi --token-ids 1
  lamina: --prompt and --token-ids exclude each other
  lamina run --help tells more.
  [2]
  $ lamina run --raw --system Hi -p Ho
  lamina: --system and --raw exclude each other: a system message needs the chat template
  lamina run --help tells more.
  [2]
  $ lamina run -a x.slm=inf -p Hi
  lamina: --adapter x.slm: the weight "inf" is not a finite number
  lamina run --help tells more.
  [2]
  $ lamina run -a =0.5 -p Hi
  lamina: --adapter "=0.5" names no adapter
  lamina run --help tells more.
  [2]

Words near to one that is known: of rules, policies, formats, types, kinds and parts. What is near to none has no suggestion.

  $ : > x.slm; lamina run -a x.slm=0.5,repalce -p Hi
  lamina: --adapter x.slm=0.5,repalce: no file has this name, and "repalce" behind the ',' is none of add and replace; did you mean replace?
  lamina run --help tells more.
  [2]
  $ lamina run -a x.slm,twice -p Hi
  lamina: --adapter x.slm,twice: no file has this name, and "twice" behind the ',' is none of add and replace
  lamina run --help tells more.
  [2]
  $ lamina run -a x.slm=0,5 -p Hi
  lamina: --adapter x.slm=0,5: no file has this name, and "0,5" behind the '=' is not a number
  lamina run --help tells more.
  [2]
  $ (lamina run --kv f61; lamina run --kv q8; lamina run --verify ful; lamina run -m x.slm -p Hi --draft lokup:3; lamina bench x.slm --only load,prefil
  >  lamina diff a b -o x.slm --method spares; lamina diff a b -o x.slm --method lara:8; lamina diff a b -o x.slm --method dense --dtype fp16) 2>&1 | grep -o ' is none of.*\|did you.*'
   is none of f16, f32 and int8; did you mean f16?
   is none of f16, f32 and int8
   is none of lazy, full and off; did you mean full?
  did you mean lookup?
  did you mean prefill?
  did you mean sparse?
  did you mean lora?
  did you mean f16?
  $ lamina run "$DATA/stories260K-Q8_0.gguf" --policy blk.0.attn_q=materialise -p Hi
  lamina: --policy blk.0.attn_q=materialise: "materialise" is none of dual and materialize; did you mean materialize? (LAM_E_ARGUMENT)
  [1]
  $ lamina import "$TESTS/golden/llama-gqa" -o q.slm --quantise q4_64:outlier=0.01 2>&1 | grep -o 'did you.*'; rm x.slm
  did you mean outliers? (LAM_E_ARGUMENT)

Numbers are decimals and nothing else.

  $ for t in 0x1 ' 1' 1e0x; do lamina run --temp "$t" -p Hi; done 2>&1 | grep -c 'is not a number'
  3
  $ for p in 0x1p-1 ' 0.5' 0.5x; do lamina diff a b -o x.slm --method sparse --density "$p"; done 2>&1 | grep -c 'are possible'
  3

For programs the same is an object.

  $ lamina run --json -n ten
  {
    "error": {
      "code": 1,
      "name": "LAM_E_ARGUMENT",
      "message": "--tokens: \"ten\" is not a whole number"
    }
  }
  [2]
