Import, inspect, verify, export, cache.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf
  $ lamina import stories.gguf
  stories.slm: a base from stories.gguf, 0.46 MB, in \d+\.\d\d s (re)
  weights    47 tensors: 31 Q8_0, 11 F32, 5 F16
  digest     sha256:[0-9a-f]{64} (re)
  file_root  sha256:[0-9a-f]{64} (re)

A name of its own choosing is never taken from another file; -o is an order.

  $ lamina import stories.gguf
  lamina: stories.slm is there already: -o stories.slm replaces it (LAM_E_CONFLICT)
  [1]
  $ cp stories.slm before; lamina import stories.gguf -o stories.slm -q && cmp stories.slm before

Nothing is written over its own source, under any name, nor over what is no file.

  $ lamina import stories.gguf -o ./stories.gguf
  lamina: ./stories.gguf is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ ln -s stories.gguf link; lamina import stories.gguf -o link
  lamina: link is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ cp -r "$DATA/adapters/oz" oz; lamina import oz -m stories.slm -o oz/adapter_config.json
  lamina: oz/adapter_config.json is a file of oz, which is read from (LAM_E_CONFLICT)
  [1]
  $ lamina import oz -m stories.slm -o stories.slm
  lamina: stories.slm is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina export stories.slm -o stories.slm
  lamina: stories.slm is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina import stories.gguf -o /dev/null
  lamina: /dev/null is a device or pipe, not a file to replace (LAM_E_ARGUMENT)
  [1]
  $ mkdir folder; lamina import stories.gguf -o folder
  lamina: folder is a folder, not a file to replace (LAM_E_ARGUMENT)
  [1]
  $ cmp stories.gguf "$DATA/stories260K-Q8_0.gguf" && cmp stories.slm before && ls oz
  README.md
  adapter_config.json
  adapter_model.safetensors

Wrong sources.

  $ lamina import
  lamina: import takes one SOURCE
  lamina import --help tells more.
  [2]
  $ lamina import nothing.gguf
  lamina: nothing.gguf: open: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina import stories.slm -o x.slm
  lamina: stories.slm is a .slm already
  lamina import --help tells more.
  [2]
  $ lamina import folder -o x.slm
  lamina: folder: a folder with neither config.json nor adapter_config.json (LAM_E_MAGIC)
  [1]
  $ echo 'not a model' > note.txt; lamina import note.txt -o x.slm
  lamina: note.txt: begins with the bytes 6e 6f 74 20, which is neither .slm nor GGUF (LAM_E_MAGIC)
  [1]
  $ head -c 1000 stories.gguf > short.gguf; lamina import short.gguf -o x.slm 2>&1 | grep -o 'LAM_E_TRUNCATED'
  LAM_E_TRUNCATED
  $ lamina import stories.gguf -o nowhere/x.slm
  lamina: nowhere/x.slm: create: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina import oz -o x.slm
  lamina: oz is an adapter, which is bound to its base: give -m BASE
  lamina import --help tells more.
  [2]
  $ ls *.part x.slm 2>/dev/null
  [2]

An adapter, and what programs get.

  $ lamina import oz/ -m stories.gguf
  oz.slm: an adapter from oz/, 0.36 MB, in \d+\.\d\d s (re)
  weights    70 tensors: 70 F32
  applied    70 of 70 tensors, to 35 modules, all with effect
  digest     sha256:[0-9a-f]{64} (re)
  file_root  sha256:[0-9a-f]{64} (re)
  $ lamina import oz -m stories.slm -o oz.slm --json | grep -E '"(kind|applied|total|modules)"'
    "kind": "adapter",
    "applied": 70,
    "total": 70,
    "modules": 35,

What is inside.

  $ lamina inspect stories.slm | head -n 2
  stories.slm: slm base, 0.46 MB
  weights             47 tensors: 31 Q8_0, 11 F32, 5 F16, 0.33 MB
  $ lamina inspect oz.slm | tail -n 2
  modules             35
    rank 8, alpha 8, alpha/sqrt(r): blk.0.attn_k … blk.4.ffn_up (35)
  $ lamina inspect stories.gguf --tensors | grep -E '^(tensor|blk.4.ffn_down)' 
  tensor                                       type          bytes  dims
  blk.4.ffn_down.weight                        F16           22016  [172,64]
  $ lamina inspect stories.slm --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tensor_types"])'
  {'Q8_0': 31, 'F32': 11, 'F16': 5}
  $ lamina inspect oz | grep -E '^oz|^weights|target_modules|  r  '
  oz: peft adapter, 0.19 MB
  weights             70 tensors: 70 F32, 0.18 MB
    r                       8
    target_modules          ["down_proj","gate_proj","k_proj","o_proj","q_proj","up_proj","v_proj"]
  $ lamina inspect "$TESTS/golden/llama-gqa" --json | grep -E '"(kind|model_type|F32)"'
    "kind": "hugging face model",
      "model_type": "llama",
      "F32": 21
  $ lamina inspect note.txt
  lamina: note.txt: begins with the bytes 6e 6f 74 20, which is neither .slm nor GGUF (LAM_E_MAGIC)
  [1]

Every byte counts.

  $ lamina verify stories.slm -q
  stories.slm: every piece matches
  file_root  sha256:[0-9a-f]{64} (re)
  $ head -c 300000 stories.slm > short.slm; lamina verify short.slm
  lamina: short.slm: .*300000 of 459008 bytes are there \(LAM_E_TRUNCATED\) (re)
  [1]
  $ cp stories.slm bad.slm; printf '\125' | dd of=bad.slm bs=1 seek=400000 conv=notrunc status=none; lamina verify bad.slm
  lamina: bad.slm: .*piece 0 of 1 .*\(LAM_E_DIGEST\) (re)
  [1]
  $ lamina verify stories.gguf
  lamina: stories.gguf: a GGUF file, not an .slm file; import it first .*\(LAM_E_MAGIC\) (re)
  [1]
  $ lamina verify stories.gguf --json | python3 -c 'import json, sys; e = json.load(sys.stdin)["error"]; print(e["code"], e["name"])'
  20 LAM_E_MAGIC
  $ lamina verify "$TESTS/golden/qwen2-tied" 2>&1 | grep -o 'not a regular file.*'
  not a regular file; import it first (LAM_E_IO)
  $ : > empty; lamina verify empty 2>&1 | grep -c '^lamina: empty: '
  1

Back to GGUF: the tensors' bytes are the original's.

  $ lamina export stories.slm -o back.gguf
  back.gguf: GGUF, 0.34 MB, from stories.slm, in \d+\.\d\d s (re)
  $ lamina import back.gguf -o again.slm -q; for f in stories again; do lamina inspect $f.slm --json | grep base_digest; done | uniq | wc -l
  1
  $ lamina export stories.slm
  lamina: where to? give -o FILE
  lamina export --help tells more.
  [2]
  $ lamina export oz.slm -o x.gguf 2>&1 | grep -o 'LAM_E_[A-Z]*'; ls x.gguf 2>&1 | grep -o 'No such'
  LAM_E_FORMAT
  No such

The cache: what was run or bound to without an import.

  $ lamina cache list
  [0-9a-f]{12}       0\.46 MB  \d{4}-\d\d-\d\d \d\d:\d\d  base     .*/stories\.gguf (re)
  1 entry, 0\.46 MB, in .*/cache (re)
  $ lamina cache list --json | python3 -c 'import json, sys; l = json.load(sys.stdin); print(l["bytes"], [(e["kind"], e["bytes"]) for e in l["entries"]])'
  459008 [('base', 459008)]
  $ lamina cache clear elsewhere.gguf
  lamina: cache: no entry is elsewhere.gguf (LAM_E_NOT_FOUND)
  [1]
  $ lamina cache clear stories.gguf
  1 entry removed, 0.46 MB freed
  $ lamina cache list | sed 's/,.*//'
  0 entries
  $ lamina cache lst
  lamina: cache takes list or clear [ENTRY]; did you mean list?
  lamina cache --help tells more.
  [2]
  $ env -u HOME -u LAMINA_CACHE lamina run stories.gguf -p Hi
  lamina: stories.gguf: cache: none of LAMINA_CACHE, XDG_CACHE_HOME and HOME is set (LAM_E_ARGUMENT)
  [1]
  $ LAMINA_CACHE_MAX=100k lamina run stories.gguf -p Hi 2>&1 | grep -o '459008 bytes .*'
  459008 bytes are needed, the limit is 100000; raise LAMINA_CACHE_MAX, or run `lamina import SOURCE -o FILE.slm` and use FILE.slm (LAM_E_LIMIT)

Several processes import the same thing once.

  $ for i in 1 2 3 4; do lamina run stories.gguf --raw -p Once -n 3 -q > out$i & done; wait; cat out1 out2 out3 out4 | uniq -c | sed 's/^ *//'; ls cache | wc -l
  4  upon a time
  2

While another one imports, one waits and says so; Ctrl-C ends the wait.

  $ key=$(ls cache/*.slm); lamina cache clear > /dev/null; (exec flock -F "${key%.slm}.lock" sleep 20) > /dev/null 2>&1 & holder=$!; sleep 0.2
  > NO_COLOR=1 terminal lamina run stories.gguf -p Hi <<'STEPS'; kill $holder
  > see wait: another process is at work
  > press C
  > see lamina: stories.gguf: another process imports it (LAM_E_CANCELLED)
  > end 130
  > STEPS

What a command reads it does not write over, wherever it is named: by an option, or by the manifest that is the model.

  $ lamina compose stories.slm -a oz.slm -o stack.json -q; lamina receipt keygen me -q > keygen
  > lamina receipt make stack.json --figures a=1 --key me-private.pem -o r.json; echo '{"a": 1}' > figures.json
  > for f in oz.slm stories.slm stack.json; do for c in "logits stack.json -p Once -o" "merge stack.json -o" "receipt make stack.json --figures a=1 -o" \
  >  "run stack.json --raw -p Once -n 1 --save-session"; do lamina $c $f -q 2>&1 > /dev/null | grep -c "$f is read from and cannot be written to (LAM_E_CONFLICT)"; done; done | sort | uniq -c | tr -s ' '
   12 1
  $ lamina run stories.slm -a oz.slm --raw -p Once -n 1 --save-session oz.slm -q > /dev/null
  lamina: oz.slm is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina receipt make stack.json --figures figures.json -o figures.json
  lamina: figures.json is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina receipt make stack.json --figures a=1 --key me-private.pem -o me-private.pem
  lamina: me-private.pem is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina compose stack.json --receipt r.json -o r.json
  lamina: r.json is read from and cannot be written to (LAM_E_CONFLICT)
  [1]
  $ lamina compose stack.json --receipt r.json -o stack.json -q; lamina check stack.json | head -1
  nothing is wrong

A file that is there stays as it was until the new one is whole.

  $ for c in "logits stories.slm --token-ids 1,2,3,4" "receipt make stack.json --figures a=1"; do echo good > kept
  >  (trap '' XFSZ; ulimit -f 0; lamina $c -q -o kept > /dev/null 2>&1 | cat); cat kept; lamina $c -q -o kept > /dev/null; grep -c good kept; done; ls | grep kept
  good
  0
  good
  0
  kept

Nor is a pipe or a device replaced by a session's file.

  $ mkfifo pipe; lamina run stories.gguf --raw -p Once -n 1 -q --save-session pipe > /dev/null; test -p pipe && echo still a pipe
  lamina: pipe is a device or pipe, not a file to replace (LAM_E_ARGUMENT)
  still a pipe

Where a session cannot be written is known before a word is generated; on standard output stands nothing.

  $ for f in nowhere/a.session note.txt/a.session; do lamina run stories.gguf --raw -p Once -n 1 -q --save-session $f 2> why || cat why; done
  lamina: nowhere/a.session: create: No such file or directory (LAM_E_NOT_FOUND)
  lamina: note.txt/a.session: create: Not a directory (LAM_E_NOT_FOUND)

A name that says another format than what is written is refused; what merge writes, the name decides.

  $ lamina import stories.gguf -o x.gguf
  lamina: x.gguf: its name ends in .gguf, and a .slm file is what is written (LAM_E_ARGUMENT)
  [1]
  $ lamina export stories.slm -o x.slm
  lamina: x.slm: its name ends in .slm, and a .gguf file is what is written (LAM_E_ARGUMENT)
  [1]
  $ lamina diff stories.slm stories.slm --method dense -o x.safetensors
  lamina: x.safetensors: its name ends in .safetensors, and a .slm file is what is written (LAM_E_ARGUMENT)
  [1]
  $ for f in x.txt x x.d/y .slm; do mkdir -p x.d; lamina merge stories.slm -a oz.slm -o $f; done 2>&1 | grep -c 'a name that ends in .slm or .gguf is needed'; ls x x.txt x.d/y 2> /dev/null
  4
  [2]

What a killed program left of a file is removed by who next writes it; what a living one writes is not, nor what is only called alike.

  $ for f in out.f32.12-7f0a.part out.f32.34-7f0b.part other.f32.12-7f0a.part out.f32.mine.part; do echo half > $f; done
  > flock out.f32.34-7f0b.part sh -c 'lamina logits stories.slm --token-ids 1,2 -q -o out.f32 > /dev/null'; ls *.part; rm *.part
  other.f32.12-7f0a.part
  out.f32.34-7f0b.part
  out.f32.mine.part
  $ for c in "export stories.slm -o back.gguf" "receipt make stack.json --figures a=1 -o r.json" "run stories.slm --raw -p Once -n 1 --save-session a.session" \
  >  "compose stories.slm -a oz.slm -o stack.json" "merge stories.slm -a oz.slm -o merged.slm"; do echo half > ${c##* }.12-7f0a.part
  > lamina $c -q > /dev/null; test -s ${c##* } || echo none; ls *.part; done 2>&1 | grep -v 'No such\|cannot access'
  [1]

An entry of the cache is used where nothing can be written, not even a lock; and where one must be made there, the error says what helps.

  $ mkdir shelf; export LAMINA_CACHE=shelf; lamina logits stories.gguf --token-ids 1,2 -q > first; key=$(ls shelf/*.slm); mkdir "${key%.slm}.lock"
  > lamina logits stories.gguf --token-ids 1,2 -q | cmp - first && ls shelf | sed 's/.*\././' | sort
  .json
  .lock
  .slm
  $ export LAMINA_CACHE=shelf; rm shelf/*.slm; lamina logits stories.gguf --token-ids 1,2 -q
  lamina: stories.gguf: not in the cache, to which nothing can be added: shelf/[0-9a-f]*.lock: open to lock: Is a directory; LAMINA_CACHE names another folder \(LAM_E_IO\) (re)
  [1]
  $ LAMINA_CACHE=note.txt/shelf lamina logits stories.gguf --token-ids 1,2 -q
  lamina: stories.gguf: not in the cache, to which nothing can be added: note.txt.*; LAMINA_CACHE names another folder \(LAM_E_[A-Z_]*\) (re)
  [1]
  $ chmod 500 shelf; rmdir shelf/*.lock; LAMINA_CACHE=shelf lamina logits stories.gguf --token-ids 1,2 -q > second; chmod 700 shelf; if test $(id -u) = 0; then cmp first second; else test ! -s second; fi

What inspect tells of a session, a receipt and a manifest.

  $ lamina run stories.slm -a oz.slm --raw -p Once -n 3 -q --save-session a.session > /dev/null; lamina inspect a.session | grep -E '^(a.session|n_tokens|adapters|composition_id)'
  a.session: saved session, 0.17 MB
  n_tokens            [0-9]+ (re)
  composition_id      sha256:[0-9a-f]{64} (re)
  adapters            \[\{.*"name":"oz".*\}\] (re)
  $ lamina inspect a.session --json > told; python3 - <<'EOF'
  > import hashlib, json, os
  > told, data = json.load(open("told")), open("a.session", "rb").read()
  > print(told["kind"], told["bytes"] == len(data), told["file_digest"] == "sha256:" + hashlib.sha256(data[:-32]).hexdigest(),
  >       told["n_tokens"] == int.from_bytes(data[12:16], "little"), told["kv_bytes"] == int.from_bytes(data[16:24], "little"), "tensor_types" in told)
  > EOF
  saved session True True True True False
  $ head -c 1000 a.session > short.session; lamina inspect short.session
  lamina: short.session: a saved session has 1000 of [0-9]+ bytes \(LAM_E_TRUNCATED\) (re)
  [1]
  $ lamina verify a.session 2>&1 | grep -c '^lamina: a.session: '; lamina import a.session -m stories.slm -o x.slm
  1
  lamina: a.session: a saved session (LAM_E_MAGIC)
  [1]
  $ lamina receipt make stack.json --figures a=1 --by Me -o r.json; lamina inspect r.json | grep -vE '^(key|digest) '
  r.json: receipt, 0.000[0-9] MB (re)
  standing            claimed by "Me", a bare hash
  composition_id      sha256:[0-9a-f]{64} (re)
  by                  Me
  figures
    a                 1
  $ lamina inspect r.json --json | grep -E '"(kind|composition_id)"' | cut -c 1-40; sed 's/"a":1/"a":2/' r.json > forged.json; lamina inspect forged.json 2>&1 | grep -o '^lamina: forged.json.*LAM_E_DIGEST'| wc -l
    "kind": "receipt",
    "composition_id": "sha256:[0-9a-f]+ (re)
  1
  $ lamina inspect stack.json --json | grep -E '"(kind|bytes)"'; lamina inspect stack.json | head -n 1
    "kind": "manifest",
    "bytes": [0-9]+, (re)
  stack.json: manifest, 0.00[0-9]+ MB (re)
