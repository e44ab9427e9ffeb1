Logits, perplexity, bench.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o stories.slm -q

The digest of a position is the SHA-256 of its row in the file.

  $ lamina logits stories.slm -p "Once upon a time" -o rows -q | sed 's/[0-9a-f]\{64\}/DIGEST/'
  all 5 positions sha256:DIGEST
  composition sha256:DIGEST
  $ lamina logits stories.slm -p "Once upon a time" --json | python3 -c '
  > import hashlib, json, sys
  > told, rows = json.load(sys.stdin), open("rows", "rb").read()
  > size = 4 * told["vocabulary"]
  > print(len(rows) // size, [p["token"] for p in told["logits"]])
  > print(all(p["digest"] == "sha256:" + hashlib.sha256(rows[size * i:][:size]).hexdigest() for i, p in enumerate(told["logits"])))'
  5 [1, 403, 407, 261, 378]
  True
  $ for c in 1 3 64; do lamina logits stories.slm -p "Once upon a time" --chunk $c -t $c; done | sort | uniq -c | sed 's/^ *\(.\).*/\1/' | uniq
  3
  $ lamina logits stories.slm --token-ids 1,403,407,261,378 | cmp - - && printf 'Once upon a time\n' | lamina logits stories.slm -o again -q >/dev/null && cmp rows again
  $ lamina logits stories.slm -p Once -o /dev/full
  lamina: /dev/full: No space left on device (LAM_E_NO_SPACE)
  [1]
  $ lamina logits stories.slm -p Once -o nowhere/rows
  lamina: nowhere/rows: create: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ ln stories.slm twin; lamina logits stories.slm -p Once -o twin
  lamina: twin is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina verify twin -q | head -n 1
  twin: every piece matches

Perplexity.

  $ lamina perplexity stories.slm "$DATA/README.md" -c 64 -q | sed 's/[0-9a-f]\{64\}/DIGEST/'
  perplexity \d+\.\d{4} \+/- \d+\.\d{4} over \d+ tokens in windows of 64 (re)
  composition sha256:DIGEST
  $ echo Once upon a time | lamina perplexity -m stories.slm -
  lamina: - has 6 tokens, and a window 512 (-c sets it) (LAM_E_ARGUMENT)
  [1]
  $ lamina perplexity -m stories.slm
  lamina: perplexity needs a FILE
  lamina perplexity --help tells more.
  [2]
  $ lamina perplexity stories.slm nothing.txt
  lamina: nothing.txt: No such file or directory (LAM_E_NOT_FOUND)
  [1]

  $ lamina bench stories.slm --prefill 16 -n 8 --runs 2 --sessions 2,64 -c 200 > table
  $ grep -oE '^(prefill|decode|batch|context) +[0-9]+ +[0-9]+ +[0-9]+ ' table
  prefill                     1      16       0 
  decode                      1       8     128 
  batch                       2       2     128 
  batch                      64       2     128 
  context                     1       2     198 
  $ grep -oE '^(bandwidth|switch|load|verification|memory)' table
  bandwidth
  switch
  load
  verification
  memory

A figure is the median of its runs; the share is the bytes of the tensors over what the bandwidth gives in that time.

  $ lamina import "$DATA/adapters/oz" -m stories.slm -o oz.slm -q
  $ lamina bench stories.slm -a oz.slm --only adapters,decode,memory -n 8 --runs 3 --json > told.json; python3 -c '
  > import json, statistics
  > told = json.load(open("told.json"))
  > decode, base = told["rates"]
  > speed = decode["tokens_per_second"]
  > print(sorted(told))
  > print([(r["part"], r["adapters"], r["position"]) for r in told["rates"]], len(speed["runs"]))
  > print(speed["median"] == statistics.median(speed["runs"]), speed["least"] == min(speed["runs"]), speed["most"] == max(speed["runs"]))
  > print(decode["weight_bytes"] - base["weight_bytes"] == told["adapter_bytes"] > 0)
  > ratios = [a / b for a, b in zip(speed["runs"], base["tokens_per_second"]["runs"])]
  > print(all(abs(r / s - 1) < 1e-6 for r, s in zip(ratios, decode["ratio_to_base"]["runs"])))
  > share = base["weight_bytes"] * base["tokens_per_second"]["median"] / told["bandwidth_bytes_per_second"]["median"]
  > print(abs(share / base["share_of_bandwidth"] - 1) < 1e-6)'
  ['adapter_bytes', 'adapters', 'bandwidth_bytes_per_second', 'bytes', 'composition_id', 'isa', 'kv_bytes_per_token', 'kv_format', 'machine', 'memory', 'model', 'rates', 'runs', 'standing', 'threads', 'weight_bytes']
  [('decode', True, 128), ('decode', False, 128)] 3
  True True True
  True
  True
  True
  $ lamina bench stories.slm --prefill 16 -n 0 --only prefill,decode,batch | grep -cE '^(decode|batch)'
  0
  [1]
  $ lamina bench stories.slm --only decode,all
  lamina: --only all: bandwidth, prefill, decode, batch, context, adapters, switch, load, memory and policies are possible
  lamina bench --help tells more.
  [2]
  $ lamina bench stories.slm --sessions 1,65
  lamina: --sessions 1,65: up to 8 numbers from 1 to 64 are possible
  lamina bench --help tells more.
  [2]
  $ lamina bench stories.slm --prefill 0
  lamina: --prefill 0: 1 to 1000000 are possible
  lamina bench --help tells more.
  [2]

The session in examples/: base, one adapter, two, the base again, and twice the one in different ways.

  $ "$TESTS/../examples/session.sh" lamina 2>/dev/null > out; echo $?
  0
  $ "$TESTS/../examples/session.sh" lamina 2>&1 | awk '/^composition/ { sub(/,/, "", $2); if (!($2 in n)) n[$2] = ++k; printf "%d ", n[$2] } END { print "" }'
  1 2 3 1 2 2 

How keys and values are kept is chosen with the composition, and its id tells it.

  $ for k in f16 f32 int8; do lamina logits stories.slm -p "Once upon a time" --kv $k | tail -n 1; done
  keys and values  f16, 640 bytes a position
  keys and values  f32, 1280 bytes a position
  keys and values  i8, 480 bytes a position
  $ for k in "" "--kv f16" "--kv f32" "--kv int8"; do lamina logits stories.slm -p "Once upon a time" $k -q | grep -o 'composition.*'; done | uniq | wc -l
  3
  $ lamina perplexity stories.slm "$DATA/README.md" -c 64 --kv int8 --json -q | grep kv_format
    "kv_format": "i8",
  $ lamina run stories.slm --raw -p "Once upon a time" -n 1 --kv int8 --json -q | grep kv_format
    "kv_format": "i8",
  $ lamina bench stories.slm --only decode -n 2 --runs 1 --kv int8 --json -q | grep kv_
    "kv_format": "i8",
    "kv_bytes_per_token": 480,
        "kv_bytes": \d+, (re)
  $ lamina logits stories.slm -p Once --kv q4
  lamina: --kv: "q4" is none of f16, f32 and int8
  lamina logits --help tells more.
  [2]
