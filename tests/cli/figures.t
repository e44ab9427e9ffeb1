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
  lamina: nowhere/rows: No such file or directory (LAM_E_IO)
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

  $ lamina bench stories.slm --prefill 16 -n 4 | grep -oE '^(prefill +1 +16|decode +[148] +[0-9]+) '
  prefill            1       16 
  decode             1        4 
  decode             4       16 
  decode             8       32 
  $ lamina bench stories.slm --prefill 16 -n 0 --json | grep -E '"(prefill|decode)_tokens"'
    "prefill_tokens": 16,
    "decode_tokens": 0,
  $ lamina bench stories.slm --prefill 0
  lamina: --prefill 0: 1 to 1000000 are possible
  lamina bench --help tells more.
  [2]

The session in examples/: base, one adapter, two, the base again, and twice the one in different ways.

  $ "$TESTS/../examples/session.sh" lamina 2>/dev/null > out; echo $?
  0
  $ "$TESTS/../examples/session.sh" lamina 2>&1 | awk '/^composition/ { sub(/,/, "", $2); if (!($2 in n)) n[$2] = ++k; printf "%d ", n[$2] } END { print "" }'
  1 2 3 1 2 2 
