How much memory a composition takes, told before it is taken.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o s.slm -q
  $ lamina import "$DATA/adapters/oz" -m s.slm -o oz.slm -q
  $ lamina import "$DATA/adapters/shakespeare" -m s.slm -o sh.slm -q
  $ lamina plan s.slm -a oz.slm -c 512 -t 2 --policy dual
  policy dual, a context of 512, 2 threads
  base, mapped \s+ \d+\.\d\d MB  shared with the system's file cache, not counted (re)
  program and threads \s+ \d+\.\d\d MB (re)
  base, decoded \s+ \d+\.\d\d MB  norms, biases, metadata, tokenizer (re)
  adapters, staged \s+ \d+\.\d\d MB (re)
  overlay \s+ \d+\.\d\d MB (re)
  keys and values                    0.34 MB
  session \s+ \d+\.\d\d MB (re)
  scratch \s+ \d+\.\d\d MB  buffers of the forward pass (re)
  while staging \s+ \d+\.\d\d MB  given back before the first token (re)
  peak \s+ \d+\.\d\d MB (re)
  $ lamina plan s.slm -a oz.slm -c 512 --json | python3 -c "import json,sys; print([p['policy'] for p in json.load(sys.stdin)['plans']])"
  ['dual', 'materialize']

A switch holds both compositions.

  $ lamina plan s.slm -a oz.slm --from sh.slm -c 512 --policy dual | grep -o "^composition before"
  composition before

Measured: the base alone, with adapters, under both policies, short and long.

  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -c 512 -t 2
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -c 4096 -t 2
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -a oz.slm -c 512 -t 2 --policy dual
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -a oz.slm -a sh.slm -c 512 -t 2 --policy materialize
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -a oz.slm -a sh.slm -c 4096 -t 2 --policy dual
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -c 512 -t 2 --kv int8
  (within 5 %|skipped: .*) (re)

A budget is kept before anything is opened.

  $ lamina run s.slm -p Once -n 3 -c 512 --budget 1M
  lamina: \d\.\d MB are needed for a context of 512, the budget is 1.0 MB: program .* MB, base .* \(LAM_E_BUDGET\) (re)
  [1]
  $ lamina run s.slm -p Once -n 3 -c 512 --budget 100M -q --temp 0
   upon a time
  $ lamina perplexity s.slm "$TESTS/golden/README.md" -c 64 --budget 1M 2>&1 | grep -o LAM_E_BUDGET
  LAM_E_BUDGET
  $ lamina bench s.slm --only decode --budget 1M 2>&1 | grep -o LAM_E_BUDGET
  LAM_E_BUDGET
  $ lamina compose s.slm -a oz.slm -o m.json -q; sed 's/"module_owners"/"memory_budget":1000000,&/' m.json > small.json
  > for c in "run small.json -p Once -n 1" "logits small.json -p Once" "check small.json"; do lamina $c 2>&1 | grep -o LAM_E_BUDGET; done
  LAM_E_BUDGET
  LAM_E_BUDGET
  LAM_E_BUDGET
  $ lamina plan s.slm -c 512 --budget 1M > p.txt
  lamina: .* \(LAM_E_BUDGET\) (re)
  [1]
  $ lamina plan s.slm --budget lots
  lamina: --budget lots: a number of bytes is needed, or one with k, M, G or T (LAM_E_ARGUMENT)
  [1]
