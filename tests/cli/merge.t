A base with its adapters as a new base.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o s.slm -q
  $ lamina import "$DATA/adapters/oz" -m s.slm -o oz.slm -q
  $ lamina merge s.slm -a oz.slm -o m.slm | tail -5
  m.slm: 0.4\d MB, in \d+\.\d\d s; 35 tensors changed, 12 copied (re)
  encoding   error 0\.\d+% of the weights, 0\.0\d+ of the change; -?0\.\d+% of the change is lost (re)
  digest     sha256:[0-9a-f]{64} (re)
  composition sha256:[0-9a-f]{64} (re)
  standing   unverified mixture

Each output names the composition that was merged, and how it stands.

  $ id=$(lamina compose s.slm -a oz.slm --policy materialize --json -o oz.json | grep -o 'sha256:[0-9a-f]*'); lamina merge s.slm -a oz.slm -o x.slm --json | grep -c "$id"; lamina merge s.slm -a oz.slm -o x.slm | grep -c "^composition $id"; lamina merge s.slm -a oz.slm -o x.slm --json | grep standing; rm x.slm
  1
  1
    "standing": "unverified mixture",

Without adapters nothing changes, and so the new base has the digest of the old, in whatever order its file has the tensors.

  $ for m in s.slm "$TESTS/golden/llama-gqa/llama-gqa-q4_0.gguf" "$TESTS/golden/qwen2-tied" "$TESTS/golden/gemma3-swa"; do lamina merge "$m" -o x.slm --json | python3 -c 'import json, sys; m = json.load(sys.stdin); print(m["base"] == m["base_digest"], m["standing"], len(m["tensors"]))'; done; rm x.slm
  True base 0
  True base 0
  True base 0
  True base 0

In float32 it computes what the policy materialize computes.

  $ lamina merge s.slm -a oz.slm --dtype f32 -o f.slm -q
  $ lamina logits f.slm --kv f16 --token-ids 1,5,9,30,44 -q | head -1 > merged
  $ lamina logits s.slm -a oz.slm --policy materialize --kv f16 --token-ids 1,5,9,30,44 -q | head -1 | cmp - merged

A change far below a step of a 4-bit type acts where it is laid over the base, and is lost where it is encoded again.

  $ lamina import "$TESTS/golden/llama-gqa/llama-gqa-q4_0.gguf" -o q4.slm -q
  $ lamina logits q4.slm --token-ids 1,2,3 -q | head -1 > base
  $ lamina logits q4.slm -a "$TESTS/golden/methods/llama-gqa/lora=0.001" --token-ids 1,2,3 -q | head -1 | cmp -s - base || echo visible
  visible
  $ lamina merge q4.slm -a "$TESTS/golden/methods/llama-gqa/lora=0.001" -o q4m.slm | grep ^encoding
  encoding   error 0.0361% of the weights, 1 of the change; 87.6% of the change is lost

GGUF, types, refusals.

  $ lamina merge s.slm -a oz.slm -o m.gguf -q && lamina logits m.gguf --token-ids 1,2,3 -q | head -1 > a; lamina logits m.slm --token-ids 1,2,3 -q | head -1 | cmp - a; ls m.gguf*
  m.gguf
  $ lamina merge "$TESTS/golden/llama-k/llama-k-kmix.gguf" -a "$TESTS/golden/methods/llama-k/rslora" -o k.slm | grep -m 1 -o "not Q[2-6]_K, which is only read"
  not Q\d_K, which is only read (re)
  $ lamina merge "$TESTS/golden/llama-k/llama-k-kmix.gguf" -a "$TESTS/golden/methods/llama-k/rslora" --strict -o x.slm 2>&1 | grep -o "cannot be encoded as Q._K: Q._. would be taken (LAM_E_DTYPE)"
  cannot be encoded as Q\d_K: Q\d_\d would be taken \(LAM_E_DTYPE\) (re)
  $ lamina merge "$TESTS/golden/llama-gqa" -a "$TESTS/golden/methods/llama-gqa/alora" -o x.slm 2>&1 | grep -o "is activated by its invocation.*LAM_E_MERGE_ACTIVATED"
  is activated by its invocation: rows before it are the base's, which one set of weights cannot be (LAM_E_MERGE_ACTIVATED
  $ lamina merge s.slm -a oz.slm -o s.slm 2>&1 | grep -o LAM_E_CONFLICT
  LAM_E_CONFLICT
  $ lamina merge s.slm -a oz.slm
  lamina: where to? give -o FILE, a .slm or .gguf
  lamina merge --help tells more.
  [2]
  $ echo mine > m.gguf.merging.slm; lamina merge s.slm -a oz.slm -o m.gguf; cat m.gguf.merging.slm
  lamina: m.gguf.merging.slm is in the way; remove it if it is what a killed merge left (LAM_E_CONFLICT)
  mine
  $ ls x.slm
  ls: cannot access 'x.slm': No such file or directory
  [2]
