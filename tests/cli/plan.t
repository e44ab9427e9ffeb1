How much memory a composition takes, told before it is taken.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o s.slm -q
  $ lamina import "$DATA/adapters/oz" -m s.slm -o oz.slm -q
  $ lamina import "$DATA/adapters/shakespeare" -m s.slm -o sh.slm -q
  $ lamina plan s.slm -a oz.slm -c 512 -t 2 --policy dual
  policy dual, a context of 512, 2 threads
  composition sha256:[0-9a-f]{64} (re)
  standing unverified mixture
  base, mapped \s+ \d+\.\d\d MB  shared with the system's file cache, not counted (re)
  program and threads \s+ \d+\.\d\d MB (re)
  base, decoded \s+ \d+\.\d\d MB  norms, biases, metadata, tokenizer (re)
  adapters, staged \s+ \d+\.\d\d MB (re)
  overlay \s+ \d+\.\d\d MB (re)
  keys and values                    0.34 MB
  session \s+ \d+\.\d\d MB (re)
  scratch \s+ \d+\.\d\d MB  buffers of the forward pass (re)
  while sampling \s+ \d+\.\d\d MB (re)
  while staging \s+ \d+\.\d\d MB  given back before the first token (re)
  peak \s+ \d+\.\d\d MB (re)
  $ lamina plan s.slm -a oz.slm -c 512 --json | python3 -c "import json,sys; print([p['policy'] for p in json.load(sys.stdin)['plans']])"
  ['dual', 'materialize']

Each plan names its composition, as what composes it does, and how that stands.

  $ for p in dual materialize; do lamina compose s.slm -a oz.slm=0.5 --policy $p --json -o $p.json; done | grep composition_id > 1; lamina plan s.slm -a oz.slm=0.5 --json | grep composition_id | sed 's/^ *//' > 2; sed 's/^ *//' 1 | cmp - 2; lamina plan dual.json | grep ^composition | cut -d' ' -f2 | grep -cf - 1; lamina plan s.slm --json | grep -c '"standing": "base"'
  1
  2
  $ echo '{"perplexity":1}' > f.json; lamina receipt make dual.json --figures f.json -o receipt.json -q; lamina compose dual.json --receipt receipt.json -o claimed.json -q; lamina plan claimed.json --json | grep standing
        "standing": "claimed by a bare hash",

A switch of a session holds both compositions, and its keys and values twice; drafts and the prefix cache are counted where they are asked for.

  $ lamina plan s.slm -a oz.slm --from sh.slm -c 512 --policy dual | grep -oE "^(composition before|its keys and values +[0-9.]+ MB)"
  composition before
  its keys and values                0.34 MB
  $ lamina plan s.slm --draft base --prefix-cache 1 -c 512 --policy dual | grep -oE "^(drafts|prefix cache, full)"
  prefix cache, full
  drafts
  $ lamina plan s.slm --draft base:3 --prefix-cache 1 --json | python3 -c "import json,sys; p=json.load(sys.stdin)['plans'][0]; print(p['drafts']>0, 900000 < p['prefix_cache'] <= 1<<20)"
  True True
  $ lamina plan s.slm --draft some
  lamina: --draft is lookup or base, perhaps with :N, N from 1 to 31
  lamina plan --help tells more.
  [2]

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

Measured: sessions that are switched, both ways round, between methods and policies; a prefix cache that is full; drafts.

  $ python3 "$TESTS/cli/adapters_of.py" "$DATA/adapters/oz" dora saved
  > for a in dora saved; do lamina import $a -m s.slm -o $a.slm -q; done
  > lamina merge s.slm -a sh.slm -o tuned.gguf -q --dtype f16 && lamina diff s.slm tuned.gguf --method dense --dtype f16 -o dense.slm -q
  $ cat > switch.sh <<'END'
  > # switch.sh POLICY CONTEXT FROM,TO…: each is measured, and what was found is printed once
  > policy=$1 context=$2; shift 2
  > for pair; do
  >     from=${pair%,*} to="-a ${pair#*,}.slm"
  >     test $from = base || from=$from.slm
  >     test "$to" != "-a base.slm" || to=
  >     python3 "$TESTS/cli/peak.py" "$BUILD/tests/memory" s.slm -c $context -t 2 --policy $policy --from $from $to
  > done | sort -u
  > END
  $ sh switch.sh dual 512 base,oz oz,base oz,sh oz,oz
  (within 5 %|skipped: .*) (re)
  $ sh switch.sh dual 512 sh,dora dense,saved
  (within 5 %|skipped: .*) (re)
  $ sh switch.sh materialize 512 base,oz oz,base oz,sh oz,oz
  (within 5 %|skipped: .*) (re)
  $ sh switch.sh materialize 512 sh,dora dense,saved
  (within 5 %|skipped: .*) (re)
  $ sh switch.sh dual 2048 dora,dense && sh switch.sh materialize 256 oz,dora
  (within 5 %|skipped: .*) (re)
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" "$BUILD/tests/memory" s.slm -c 600 -t 2 --policy dual --prefix-cache 4 -a oz.slm
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -c 512 -t 2 -a oz.slm --policy dual --draft base:15
  (within 5 %|skipped: .*) (re)
  $ python3 "$TESTS/cli/peak.py" lamina run s.slm -c 512 -t 2 -a oz.slm --policy dual --draft lookup
  (within 5 %|skipped: .*) (re)

A model that is no .slm is imported first, which is said.

  $ cp "$DATA/stories260K-Q8_0.gguf" m.gguf; lamina plan m.gguf -a "$DATA/adapters/oz" -c 64 --policy dual 2>&1 >p.txt | sed "s#[^ ]*/adapters/##"
  lamina: m.gguf was imported for this, into the cache: later commands find it there (lamina cache list)
  lamina: oz was imported into the cache, too
  $ lamina plan m.gguf -c 64 -q; lamina plan m.gguf -c 64 2>&1 >p.txt

A budget is kept before anything is opened: what is too much is told, and none of it is taken.

  $ python3 "$TESTS/cli/peak.py" --refused lamina run s.slm -c 4096 -t 2 -a oz.slm -a sh.slm --policy dual --budget 4M
  (refused before|skipped: .*) (re)

  $ lamina run s.slm -p Once -n 3 -c 512 --budget 1M
  lamina: \d\.\d MB are needed for a context of 512, 0\.\d\d MB more than the budget of 1.0 MB: program .* MB, base .* \(LAM_E_BUDGET\) (re)
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
  $ lamina run small.json -p Once -n 1 --budget 100M 2>&1 | sed "s/: program.*/: …/"
  lamina: small.json allows 1.0 MB: that holds, not --budget 100M
  lamina: \d\.\d MB are needed for a context of 512, \d\.\d\d MB more than the budget of 1.0 MB: … (re)
  $ sed 's/"module_owners"/"memory_budget":100000000,&/' m.json > large.json
  > lamina run large.json -p Once -n 1 --budget 1M 2>&1 | grep -o "more than the budget of .* MB: p"
  more than the budget of 1.0 MB: p
  $ lamina plan s.slm -c 512 --budget 1M > p.txt
  lamina: .* \(LAM_E_BUDGET\) (re)
  [1]
  $ lamina plan s.slm --budget lots
  lamina: --budget lots: a number of bytes is needed, or one with k, M, G or T (LAM_E_ARGUMENT)
  [1]
