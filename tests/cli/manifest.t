Manifests, checks and receipts.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf; lamina import stories.gguf -q; mkdir -p out keys
  $ for a in oz shakespeare; do lamina import "$DATA/adapters/$a" -m stories.slm -q; done

A manifest is what the options name, and runs as they do.

  $ lamina compose stories.slm -a oz.slm=0.5 -a shakespeare.slm -o out/both.json
  out/both.json
  composition sha256:[0-9a-f]{64} (re)
  standing unverified mixture
  $ python3 -c 'import json; m = json.load(open("out/both.json")); print(*[[a["file"], a["weight"], a["rule"]] for a in m["adapters"]], m["base"]["file"])'
  ['../oz.slm', 0.5, 'add'] ['../shakespeare.slm', 1, 'add'] ../stories.slm
  $ write() { lamina run "$@" --raw -p "Once upon a time" --temp 0 -n 30 -q; }
  > write stories.slm -a oz.slm=0.5 -a shakespeare.slm > plain; write out/both.json | cmp - plain; write -m out/both.json | cmp - plain
  $ lamina logits stories.slm -a oz.slm=0.5 -a shakespeare.slm --raw -p Once > plain; lamina logits out/both.json --raw -p Once | cmp - plain
  $ lamina tokenize out/both.json Hi | cmp - - << END
  > $(lamina tokenize stories.slm Hi)
  > END
  $ mv out moved; cp moved/both.json renamed.txt; lamina run moved/both.json --raw -p Once -n 2 -q > /dev/null
  $ lamina run renamed.txt -p Hi
  lamina: ../stories.slm: open: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina run moved/both.json -a oz.slm -p Hi
  lamina: moved/both.json is a manifest, which says what is composed; -a, --owner, --policy, --kv, --waive and --accept-tokenizer go with a model (LAM_E_CONFLICT)
  [1]

A GGUF file and a folder may stand there, too.

  $ lamina compose stories.gguf -a "$DATA/adapters/oz" -o raw.json -q; lamina check raw.json
  nothing is wrong
  composition sha256:[0-9a-f]{64} (re)
  standing unverified mixture
  $ lamina compose stories.slm -o base.json; lamina run base.json --raw -p Once -n 2 --json | grep standing
  base.json
  composition sha256:[0-9a-f]{64} (re)
    "standing": "base",

A folder with another chat template is refused, unless the manifest says that it may be so; that import serves nobody else.

  $ cp -r "$DATA/adapters/oz" templated; echo '{{ messages }}' > templated/chat_template.jinja
  > lamina compose stories.slm -a templated --accept-tokenizer -o accepted.json -q; grep -o '"accept_tokenizer":true' accepted.json; lamina check accepted.json | head -1
  "accept_tokenizer":true
  nothing is wrong
  $ lamina check stories.slm -a templated 2>&1 | grep -o 'LAM_E_[A-Z]*' | sort -u; sed 's/"accept_tokenizer":true,//' accepted.json > refused.json; lamina run refused.json -p Hi 2>&1 | grep -o 'LAM_E_[A-Z]*' | sort -u
  LAM_E_TEMPLATE
  LAM_E_TEMPLATE

All that is wrong with a manifest is told.

  $ echo '{"type":"lamina.manifest.v0","nam":1,"base":{"file":"/etc/x"},"adapters":[{"rule":"mul"}]}' > bad.json; lamina run bad.json -p Hi
  lamina: bad.json: 5 faults; the first: base.digest: is missing (LAM_E_FORMAT)
    LAM_E_FORMAT         base.digest         is missing
    LAM_E_FORMAT         base.file           must be relative to the manifest
    LAM_E_FORMAT         adapters[0].digest  is missing
    LAM_E_FORMAT         adapters[0].rule    must be "add" or "replace"
    LAM_E_UNKNOWN_FIELD  nam                 is no field of a manifest
  [1]
  $ lamina check bad.json --json | python3 -c 'import json, sys; print(*[f["name"] for f in json.load(sys.stdin)["error"]["faults"]])'
  LAM_E_FORMAT LAM_E_FORMAT LAM_E_FORMAT LAM_E_FORMAT LAM_E_UNKNOWN_FIELD
  $ echo '{}' > bad.json; lamina run bad.json -p Hi 2>&1 | head -1
  lamina: bad.json: 2 faults; the first: type: is missing (LAM_E_FORMAT)

Another file than the one that was meant.

  $ cp oz.slm oz-right; cp shakespeare.slm oz.slm; lamina run moved/both.json -p Hi 2>&1 | sed 's/sha256:[0-9a-f]*/ID/g'
  lamina: stack: 5 faults; the first: adapter 1, oz.slm: its alphas: ID, the manifest says ID (LAM_E_ADAPTER_ALPHA)
    LAM_E_ADAPTER_ALPHA    adapter 1, oz.slm           its alphas: ID, the manifest says ID
    LAM_E_ADAPTER_MODULES  adapter 1, oz.slm           its modules: ID, the manifest says ID
    LAM_E_ADAPTER_FACTORS  adapter 1, oz.slm           its factors: ID, the manifest says ID
    LAM_E_DIGEST           adapter 1, oz.slm           is ID, the manifest names ID
    LAM_E_DUPLICATE        adapter 2, shakespeare.slm  is the same as adapter 1: one adapter stands in a stack once
  $ mv oz-right oz.slm

Rules, owners and policies.

  $ lamina check stories.slm -a oz.slm,replace -a shakespeare.slm,replace 2>&1 | head -2
  lamina: stack: 35 faults; the first: blk.0.attn_k: adapter 1, oz.slm and adapter 2, shakespeare.slm both replace this module; name its owner (LAM_E_CONFLICT)
    LAM_E_CONFLICT  blk.0.attn_k       adapter 1, oz.slm and adapter 2, shakespeare.slm both replace this module; name its owner
  $ id() { lamina compose stories.slm "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'; }
  > id -a oz.slm > 1; id -a oz.slm,replace > 2; id -a oz.slm=1,add > 3; id -a oz.slm --policy materialize > 4
  > id -a oz.slm --policy blk.0.ffn_up=materialize > 5; id -a oz.slm --policy materialize --policy blk.0.ffn_up=dual > 6; id -a oz.slm --kv int8 > 7
  > id -a oz.slm --owner blk.0.ffn_up=oz > 8; id -a oz.slm --owner blk.0.ffn_up=1 > 9; id -a oz.slm --owner blk.0.ffn_up=oz.slm > 10
  > cmp 1 3; cmp 8 9; cmp 8 10; sort -u 1 2 4 5 6 7 8 | wc -l
  7
  $ lamina run stories.slm -a oz.slm -p Hi --owner blk.0.ffn_up
  lamina: --owner blk.0.ffn_up: MODULE=ADAPTER is needed (LAM_E_ARGUMENT)
  [1]
  $ lamina run stories.slm -a oz.slm -p Hi --owner blk.0.ffn_up=wizard
  lamina: --owner blk.0.ffn_up=wizard: no adapter of -a is called so (LAM_E_NOT_FOUND)
  [1]
  $ lamina run stories.slm -a oz.slm -p Hi --policy merge
  lamina: --policy merge: "merge" is none of dual and materialize (LAM_E_ARGUMENT)
  [1]
  $ lamina run stories.slm -a oz.slm -p Hi --policy blk.9.ffn_up=dual 2>&1 | grep -o 'LAM_E_[A-Z]*'
  LAM_E_UNMATCHED

Receipts.

  $ lamina receipt keygen keys/me | tail -1
  keys/me-private.pem is yours alone; keys/me.pem goes to who shall trust you
  $ ls -l keys/me-private.pem | cut -c1-10; lamina receipt keygen keys/me
  -rw-------
  lamina: keys/me-private.pem: is there already (LAM_E_CONFLICT)
  [1]
  $ lamina receipt make moved/both.json --figures perplexity=12.5 --figures text=wiki --by "A B" -o hash.json
  > lamina receipt make moved/both.json --figures perplexity=12.5 --key keys/me-private.pem -o signed.json
  $ lamina receipt check hash.json moved/both.json
  claimed by "A B", a bare hash
  composition sha256:[0-9a-f]{64} (re)
    perplexity 12.5
    text "wiki"
  $ lamina receipt check signed.json | head -1
  claimed by key ed25519:[0-9a-f]{16}…, which is not in the trust list (re)
  $ lamina receipt check signed.json moved/both.json --trust keys/me.pem | head -1
  verified by me
  $ lamina receipt check signed.json stories.slm 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_WRONG_COMPOSITION
  $ sed 's/:12\.5/:12.4/' signed.json > changed.json; lamina receipt check changed.json 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_DIGEST
  $ lamina compose moved/both.json --receipt hash.json --receipt signed.json -o moved/both.json -q
  $ cat > standing << 'END'
  > lamina run moved/both.json --raw -p Once -n 1 "$@" 2>&1 > /dev/null | grep ^standing
  > END
  > XDG_CONFIG_HOME=config sh standing
  standing claimed by "A B", a bare hash
  $ LAMINA_TRUST=keys/me.pem sh standing; sh standing --trust keys/me.pem
  standing verified by me
  standing verified by me
  $ mkdir -p config/lamina/trust; cp keys/me.pem "config/lamina/trust/Me Myself.pem"; export XDG_CONFIG_HOME=config; sh standing; lamina logits moved/both.json -p Hi | grep standing
  standing verified by Me Myself
  standing verified by Me Myself
  $ export XDG_CONFIG_HOME=config; lamina run moved/both.json --raw -p Hi -n 1 --json | grep standing; lamina inspect moved/both.json | grep -i standing
    "standing": "verified by Me Myself",
  standing            verified by Me Myself
  $ sed 's/"value":"..../"value":"0123/' moved/both.json > moved/forged.json
  > lamina run moved/forged.json -p Hi 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_SIGNATURE
  $ lamina receipt check nothing.json
  lamina: nothing.json: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina receipt
  lamina: receipt make, receipt check or receipt keygen?
  lamina receipt --help tells more.
  [2]

A figure's name cannot pass for a line of the program's own.

  $ printf '{"a\\nstanding verified by me":1}' > lines.json; lamina receipt make moved/both.json --figures lines.json -o lines-receipt.json; lamina receipt check lines-receipt.json | grep -c '^standing'; lamina receipt check lines-receipt.json | tail -1
  0
    a\nstanding verified by me 1
