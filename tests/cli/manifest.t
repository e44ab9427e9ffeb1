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
  $ lamina run moved/both.json -a oz.slm -p Hi
  lamina: moved/both.json is a manifest, which says what is composed; -a, --owner, --policy, --kv, --waive, --accept-tokenizer and --template go with a model (LAM_E_CONFLICT)
  [1]

Its parts are found by their digests, whatever they are called: beside it, and in the folders that are named.

  $ lamina logits renamed.txt --raw -p Once | cmp - plain
  $ mkdir -p far/away bases "some adapters"; cp moved/both.json far/away; lamina run far/away/both.json -p Hi 2>&1 | sed 's/sha256:[0-9a-f]*/ID/'
  lamina: far/away/both.json: stack: 3 faults; the first: base, stories260K: ID: there is no far/away/../stories.slm, and nothing of that digest is in far/away; --search DIR looks elsewhere (LAM_E_NOT_FOUND)
    LAM_E_NOT_FOUND  base, stories260K       ID: there is no far/away/../stories.slm, and nothing of that digest is in far/away; --search DIR looks elsewhere
    LAM_E_NOT_FOUND  adapter 1, oz           ID: there is no far/away/../oz.slm, and nothing of that digest is in far/away; --search DIR looks elsewhere
    LAM_E_NOT_FOUND  adapter 2, shakespeare  ID: there is no far/away/../shakespeare.slm, and nothing of that digest is in far/away; --search DIR looks elsewhere
  $ cp stories.slm bases/model-1.slm; cp "$DATA/README.md" bases/broken.slm
  > lamina run far/away/both.json -p Hi --search bases --search moved 2>&1 | sed 's/sha256:[0-9a-f]*/ID/'
  lamina: far/away/both.json: stack: 2 faults; the first: adapter 1, oz: ID: there is no far/away/../oz.slm, and nothing of that digest is in far/away, bases, moved; --search DIR looks elsewhere (LAM_E_NOT_FOUND)
    LAM_E_NOT_FOUND  adapter 1, oz           ID: there is no far/away/../oz.slm, and nothing of that digest is in far/away, bases, moved; --search DIR looks elsewhere
    LAM_E_NOT_FOUND  adapter 2, shakespeare  ID: there is no far/away/../shakespeare.slm, and nothing of that digest is in far/away, bases, moved; --search DIR looks elsewhere
  $ cp oz.slm "some adapters/x.slm"; cp shakespeare.slm "some adapters/y.slm"; lamina logits far/away/both.json --search bases --search "some adapters" --raw -p Once | cmp - plain
  $ lamina run far/away/both.json -p Hi --search nowhere
  lamina: --search nowhere: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina run stories.slm --search nowhere -p Hi; lamina run stories.slm --search bases -p Hi
  lamina: --search nowhere: No such file or directory (LAM_E_NOT_FOUND)
  lamina: --search bases looks for the parts of a manifest, and stories.slm is none (LAM_E_CONFLICT)
  [1]
  $ lamina plan stories.slm --from far/away/both.json --search bases --search "some adapters" --policy dual | grep -c "composition before"; lamina check moved/both.json --search nowhere
  1
  lamina: --search nowhere: No such file or directory (LAM_E_NOT_FOUND)
  [1]
  $ lamina inspect far/away/both.json | grep ^standing
  standing            unverified mixture
  $ sed 's/,*"file":"[^"]*"//g; s/{,/{/g' moved/both.json > bare.json; lamina logits bare.json --raw -p Once | cmp - plain; cp bare.json far/away; lamina check far/away/bare.json 2>&1 | sed 's/sha256:[0-9a-f]*/ID/'
  lamina: far/away/bare.json: stack: 3 faults; the first: base, stories260K: ID: it names no file, and nothing of that digest is in far/away; --search DIR looks elsewhere (LAM_E_NOT_FOUND)
    LAM_E_NOT_FOUND  base, stories260K       ID: it names no file, and nothing of that digest is in far/away; --search DIR looks elsewhere
    LAM_E_NOT_FOUND  adapter 1, oz           ID: it names no file, and nothing of that digest is in far/away; --search DIR looks elsewhere
    LAM_E_NOT_FOUND  adapter 2, shakespeare  ID: it names no file, and nothing of that digest is in far/away; --search DIR looks elsewhere
  $ lamina compose far/away/bare.json --search bases --search "some adapters" -o far/found.json -q; grep -o '"file":"[^"]*"' far/found.json
  "file":"../some adapters/x.slm"
  "file":"../some adapters/y.slm"
  "file":"../bases/model-1.slm"

It stands wherever a model does, or a message names what to do.

  $ lamina detokenize moved/both.json "$(lamina tokenize moved/both.json Hi)"; lamina perplexity moved/both.json "$DATA/README.md" -c 64 -q | head -1 > 1
  > lamina perplexity stories.slm -a oz.slm=0.5 -a shakespeare.slm "$DATA/README.md" -c 64 -q | head -1 | cmp - 1; lamina bench moved/both.json --only load --runs 1 --json | grep -c composition_id
  <s> Hi
  1
  $ lamina plan moved/both.json --json | python3 -c 'import json, sys; print(*[p["policy"] for p in json.load(sys.stdin)["plans"]])'
  dual
  $ peak() { lamina plan stories.slm --policy dual "$@" --json | grep '"peak"'; }; peak --from moved/both.json > 1; peak --from oz.slm=0.5 --from shakespeare.slm | cmp - 1; peak | cmp -s - 1 || echo more
  more
  $ lamina plan stories.slm --from moved/both.json --from oz.slm
  lamina: --from moved/both.json is a manifest, and says all of the composition before: it stands alone (LAM_E_CONFLICT)
  [1]
  $ lamina import "$DATA/adapters/oz" -m moved/both.json -o again.slm -q; cmp again.slm oz.slm
  $ lamina export moved/both.json -o both.gguf
  lamina: moved/both.json is more than a base: lamina merge moved/both.json -o FILE.gguf makes one base of it (LAM_E_ARGUMENT)
  [1]
  $ lamina merge moved/both.json -o both.gguf -q; lamina compose stories.slm -o alone.json -q; lamina export alone.json -o 1 -q; lamina export stories.slm -o 2 -q; cmp 1 2
  $ for c in "verify moved/both.json" "diff moved/both.json stories.slm --method dense -o x.slm" "import moved/both.json" "run stories.slm -a moved/both.json -p Hi"; do lamina $c 2>&1 | head -1; done
  lamina: moved/both.json is a manifest; lamina check moved/both.json looks at all that it names
  lamina: moved/both.json is a manifest, and diff takes bases: lamina merge moved/both.json -o FILE.slm makes one of it
  lamina: moved/both.json is a manifest, of which nothing is imported: lamina run and the others take it as it is
  lamina: moved/both.json is a manifest, which stands in a MODEL's place, not in an adapter's (LAM_E_ARGUMENT)

It carries a chat template and defaults; the template is in its id, the others are not.

  $ printf '%s' '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}' > t.jinja
  $ lamina compose stories.slm -a oz.slm --template t.jinja --system "Be brief." --temp 0.7 --top-k 5 --seed 3 -o chatty.json -q; python3 "$TESTS/cli/manifest_id.py" chatty.json
  as computed
  $ python3 -c 'import json; m = json.load(open("chatty.json")); print(m["prompt"], m["sampling"], m["template"]["text"])'
  Be brief. {'seed': 3, 'temperature': 0.7, 'top_k': 5} {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}
  $ lamina logits chatty.json -p Hi | head -20 > 1; lamina logits stories.slm -a oz.slm --raw -p "<system>Be brief.<user>Hi" | head -20 | cmp - 1
  $ lamina run chatty.json -p Hi -n 20 -q > 1; lamina run stories.slm -a oz.slm --raw -p "<system>Be brief.<user>Hi" -n 20 -q --temp 0.7 --top-k 5 --seed 3 | cmp - 1
  > lamina run stories.slm -a oz.slm --template t.jinja --system "Be brief." -p Hi -n 20 -q --temp 0.7 --top-k 5 --seed 3 | cmp - 1
  $ lamina run chatty.json --system "No." --temp 0 -p Hi -n 20 -q > 1; lamina run stories.slm -a oz.slm --raw -p "<system>No.<user>Hi" -n 20 -q --temp 0 | cmp - 1
  $ lamina run chatty.json --raw -p Hi -n 20 -q --temp 0 > 1; lamina run stories.slm -a oz.slm --raw -p Hi -n 20 -q --temp 0 | cmp - 1
  $ want=$(lamina run stories.slm -a oz.slm --raw -p "<system>Be brief.<user>Hi" -n 8 -q --temp 0 | head -1); NO_COLOR=1 terminal lamina run chatty.json --temp 0 -n 8 << STEPS
  > see composition
  > see > 
  > type Hi
  > see $want
  > see > 
  > type /reset
  > see forgotten
  > type Hi
  > see $want
  > see > 
  > type /quit
  > end 0
  > STEPS
  $ id() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["id"])' $1; }
  > lamina compose chatty.json --system "Else." --temp 1 --min-p 0.2 -o else.json -q; test $(id else.json) = $(id chatty.json) && echo the same; python3 -c 'import json; m = json.load(open("else.json")); print(m["prompt"], m["sampling"])'
  the same
  Else. {'min_p': 0.2, 'seed': 3, 'temperature': 1, 'top_k': 5}
  $ lamina compose chatty.json --template t.jinja 2>&1 | grep -o 'LAM_E_[A-Z]*'; lamina compose stories.slm --system "Be brief."
  LAM_E_CONFLICT
  lamina: stories260K has no chat template, so there is no place for --system (LAM_E_TEMPLATE)
  [1]
  $ python3 -c 'import json; m = json.load(open("alone.json")); m["prompt"] = "P"; json.dump(m, open("prompt.json", "w"))'; lamina run prompt.json -p Hi; lamina run prompt.json --raw -p Hi -n 1 -q > 1
  lamina: stories260K has no chat template, so there is no place for the manifest's prompt (LAM_E_TEMPLATE)
  $ echo '{{ 1' > bad.jinja; lamina check stories.slm --template bad.jinja 2>&1 | grep -o 'LAM_E_[A-Z]*'
  LAM_E_TEMPLATE

A template may lie beside the manifest; its digest decides.

  $ python3 -c 'import json; m = json.load(open("chatty.json")); del m["template"]["text"]; m["template"]["file"] = "t.jinja"; json.dump(m, open("beside.json", "w"))'
  > lamina logits beside.json -p Hi > 1; lamina logits chatty.json -p Hi | cmp - 1; lamina check beside.json | head -1; python3 "$TESTS/cli/manifest_id.py" beside.json
  nothing is wrong
  as computed
  $ lamina merge beside.json -o merged.slm -q; lamina logits merged.slm -p Hi --json | grep -c '"position"'; lamina logits stories.slm --raw -p "<user>Hi" --json | grep -c '"position"'; lamina export merged.slm -o merged.gguf -q; lamina inspect merged.gguf | grep -c chat_template
  \d+ (re)
  \d+ (re)
  1
  $ echo >> t.jinja; lamina run beside.json -p Hi 2>&1 | sed 's/sha256:[0-9a-f]*/ID/g'
  lamina: beside.json: template.file: is ID, its digest says ID (LAM_E_DIGEST)
  $ rm t.jinja; lamina run beside.json -p Hi
  lamina: beside.json: template.file: t.jinja: stat: No such file or directory (LAM_E_NOT_FOUND)
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

What is no JSON in UTF-8, and null.

  $ printf '\357\273\277' > bom.json; cat alone.json >> bom.json; lamina run bom.json -p Hi
  lamina: bom.json: manifest: begins with a byte order mark (EF BB BF), which JSON does not have: save it as UTF-8 without one (LAM_E_FORMAT)
  [1]
  $ python3 -c 'open("wide.json", "w", encoding="utf-16").write(open("alone.json").read())'; lamina run wide.json -p Hi
  lamina: wide.json: manifest: is UTF-16; JSON is UTF-8 (LAM_E_FORMAT)
  [1]
  $ sed 's/"policy":"dual"/"policy":null/' alone.json > null.json; lamina check null.json
  lamina: null.json: policy: is null; leave it out instead (LAM_E_FORMAT)
  [1]

Another file than the one that was meant.

  $ cp oz.slm oz-right; cp shakespeare.slm oz.slm; lamina run moved/both.json -p Hi 2>&1 | sed 's/sha256:[0-9a-f]*/ID/g'
  lamina: moved/both.json: stack: 5 faults; the first: adapter 1, oz: its alphas: ID, the manifest says ID (LAM_E_ADAPTER_ALPHA)
    LAM_E_ADAPTER_ALPHA    adapter 1, oz           its alphas: ID, the manifest says ID
    LAM_E_ADAPTER_MODULES  adapter 1, oz           its modules: ID, the manifest says ID
    LAM_E_ADAPTER_FACTORS  adapter 1, oz           its factors: ID, the manifest says ID
    LAM_E_DIGEST           adapter 1, oz           is ID, the manifest names ID
    LAM_E_DUPLICATE        adapter 2, shakespeare  is the same as adapter 1: one adapter stands in a stack once
  $ mv oz-right oz.slm

Whichever step finds a fault, all the others are told with it, by every command that composes: digests and parts of base, tokenizer and adapters, modules.

  $ cat > wrong.py << 'END'
  > import json, sys
  > m = json.load(open("moved/both.json"))
  > no = "sha256:" + 64 * "0"
  > m["base"]["digest"] = m["base"]["parts"]["config"] = no
  > m["tokenizer"]["digest"] = no
  > m["template"] = {"digest": no}
  > m["adapters"][0]["parts"]["factors"] = no
  > m["module_policies"] = {"blk.9.attn_q": "dual"}
  > del m["id"]
  > if len(sys.argv) > 1: m["adapters"][1]["file"] = "nothing.slm"; m["adapters"][1]["digest"] = no; m["memory_budget"] = 10**9
  > json.dump(m, open("moved/wrong.json", "w"))
  > END
  $ cat > told.py << 'END'
  > import json, sys
  > print(*[f["name"][6:] + " (" + f["subject"] + ")" for f in json.load(sys.stdin)["error"]["faults"]], sep=", ")
  > END
  $ python3 wrong.py; for c in check run compose "plan -m" merge "logits --token-ids 1"; do lamina $c moved/wrong.json $(test "$c" = merge && echo -o x.slm; test "$c" = run && echo -p Hi) --json | python3 told.py; done | uniq -c | sed 's/^ *//'
  6 WRONG_BASE (base), BASE_CONFIG (base), TOKENIZER (tokenizer), TEMPLATE (template), ADAPTER_FACTORS (adapter 1, oz), UNMATCHED (policy of blk.9.attn_q)
  $ lamina check moved/wrong.json 2>&1 | sed 's/sha256:[0-9a-f]*/ID/g; s/  *$//'
  lamina: moved/wrong.json: stack: 6 faults; the first: base: is ID, the manifest names ID (LAM_E_WRONG_BASE)
    LAM_E_WRONG_BASE       base                    is ID, the manifest names ID
    LAM_E_BASE_CONFIG      base                    its configuration: ID, the manifest says ID
    LAM_E_TOKENIZER        tokenizer               is ID, the manifest names ID
    LAM_E_TEMPLATE         template                is none, the manifest names ID
    LAM_E_ADAPTER_FACTORS  adapter 1, oz           its factors: ID, the manifest says ID
    LAM_E_UNMATCHED        policy of blk.9.attn_q  the base has no such module
  $ python3 wrong.py missing; for c in check run; do lamina $c moved/wrong.json $(test "$c" = run && echo -p Hi) --json | python3 told.py; done | uniq -c | sed 's/^ *//'
  2 NOT_FOUND (adapter 2, shakespeare), WRONG_BASE (base), BASE_CONFIG (base), TOKENIZER (tokenizer), TEMPLATE (template), ADAPTER_FACTORS (adapter 1, oz), UNMATCHED (policy of blk.9.attn_q)

A base that is really another one, and one that is nowhere.

  $ lamina import "$TESTS/golden/llama-gqa/llama-gqa-q4_0.gguf" -o other.slm -q; sed 's/stories\.slm/other.slm/' moved/both.json > moved/other.json; lamina check moved/other.json --json | python3 -c 'import json, sys; print(*sorted({f["name"] for f in json.load(sys.stdin)["error"]["faults"] if f["subject"] == "base"}))'
  LAM_E_BASE_CONFIG LAM_E_BASE_LAYOUT LAM_E_BASE_WEIGHTS LAM_E_WRONG_BASE
  $ lamina import "$TESTS/golden/qwen2-tied" -o other.slm -q; lamina check moved/other.json --json | python3 -c 'import json, sys; print(*sorted({f["name"] for f in json.load(sys.stdin)["error"]["faults"] if f["subject"] == "base"}))'
  LAM_E_BASE_CONFIG LAM_E_BASE_LAYOUT LAM_E_BASE_WEIGHTS LAM_E_WRONG_BASE
  $ python3 - << 'END'
  > import json
  > m = json.load(open("moved/wrong.json")); m["base"]["file"] = "gone.slm"; m["adapters"][0]["file"] = "../shakespeare.slm"
  > json.dump(m, open("moved/gone.json", "w"))
  > END
  > lamina check moved/gone.json --json | python3 told.py
  NOT_FOUND (base, stories260K), NOT_FOUND (adapter 2, shakespeare), ADAPTER_ALPHA (adapter 1, oz), ADAPTER_MODULES (adapter 1, oz), ADAPTER_FACTORS (adapter 1, oz), DIGEST (adapter 1, oz)

Rules, owners and policies.

  $ lamina check stories.slm -a oz.slm,replace -a shakespeare.slm,replace 2>&1 | head -2
  lamina: stack: 35 faults; the first: blk.0.attn_k: adapter 1, oz and adapter 2, shakespeare both replace this module; name its owner; --owner blk.0.attn_k=oz gives that one to oz, --owner oz all that it takes part in (LAM_E_CONFLICT)
    LAM_E_CONFLICT  blk.0.attn_k       adapter 1, oz and adapter 2, shakespeare both replace this module; name its owner

Owners by pattern, and of all that is contested; the manifest has each by its name.

  $ cp oz.slm renamed.slm; echo 'exec lamina compose stories.slm -a oz.slm,replace -a shakespeare.slm,replace "$@"' > both.sh; cat > owners.py << 'END'
  > import json, sys
  > m = json.load(sys.stdin)
  > owners = list(m["module_owners"].values())
  > print(len(owners), *(owners.count(a["digest"]) for a in m["adapters"]))
  > END
  $ sh both.sh --owner oz | python3 owners.py; sh both.sh --owner 2 | python3 owners.py; sh both.sh --owner 'blk.0.*=oz' --owner shakespeare | python3 owners.py; sh both.sh --owner 'blk.*.attn_?=oz' --owner 'blk.1.*=2' --owner oz | python3 owners.py
  35 35 0
  35 0 35
  35 7 28
  35 31 4
  $ sh both.sh --owner blk.1.attn_q=2 --owner 'blk.1.*=oz' --owner 'blk.*=shakespeare' | python3 owners.py
  35 6 29
  $ sh both.sh --owner oz -o one.json -q; sh both.sh $(for i in 0 1 2 3 4; do for m in attn_k attn_output attn_q attn_v ffn_down ffn_gate ffn_up; do echo --owner blk.$i.$m=1; done; done) | cmp - one.json; python3 "$TESTS/cli/manifest_id.py" one.json
  as computed
  $ lamina check stories.slm -a renamed.slm,replace -a shakespeare.slm,replace --owner oz | head -1; lamina check stories.slm -a renamed.slm,replace -a shakespeare.slm,replace --owner renamed | head -1
  nothing is wrong
  nothing is wrong
  $ sh both.sh --owner 'blk.0.*=oz' 2>&1 | head -1
  lamina: stack: 28 faults; the first: blk.1.attn_k: adapter 1, oz and adapter 2, shakespeare both replace this module; name its owner; --owner blk.1.attn_k=oz gives that one to oz, --owner oz all that it takes part in (LAM_E_CONFLICT)
  $ sh both.sh --owner 'blk.[1-4].*=oz' --owner 'blk.0.[!f]*=oz' --owner 'blk.0.ffn_[du]*=oz'
  lamina: stack: blk.0.ffn_gate: adapter 1, oz and adapter 2, shakespeare both replace this module; name its owner; --owner blk.0.ffn_gate=oz gives it to oz (LAM_E_CONFLICT)
  [1]
  $ sh both.sh --owner 'blk.9.*=oz' 2>&1 | grep owners
  lamina: stack: 36 faults; the first: owners: --owner blk.9.*=oz: no module that several replace, that adapter among them, is called so; --owner blk.0.attn_k=oz gives that one to oz, --owner oz all that it takes part in (LAM_E_UNMATCHED)
    LAM_E_UNMATCHED  owners             --owner blk.9.*=oz: no module that several replace, that adapter among them, is called so
  $ lamina run stories.slm -a oz.slm --owner 'blk.9.*=oz' -p Hi
  lamina: --owner blk.9.*=oz: no module that several replace, that adapter among them, is called so (LAM_E_UNMATCHED)
  [1]
  $ python3 -c 'import json; m = json.load(open("one.json")); del m["module_owners"], m["id"]; json.dump(m, open("open.json", "w"))'; lamina run open.json -p Hi 2>&1 | head -1 | sed 's/sha256:[0-9a-f]*/ID/'
  lamina: open.json: stack: 35 faults; the first: blk.0.attn_k: adapter 1, oz and adapter 2, shakespeare both replace this module; name its owner; module_owners of the manifest names owners: "blk.0.attn_k": "ID" (LAM_E_CONFLICT)
  $ id() { lamina compose stories.slm "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])'; }
  > id -a oz.slm > 1; id -a oz.slm,replace > 2; id -a oz.slm=1,add > 3; id -a oz.slm --policy materialize > 4
  > id -a oz.slm --policy blk.0.ffn_up=materialize > 5; id -a oz.slm --policy materialize --policy blk.0.ffn_up=dual > 6; id -a oz.slm --kv int8 > 7
  > id -a oz.slm --owner blk.0.ffn_up=oz > 8; id -a oz.slm --owner blk.0.ffn_up=1 > 9; id -a oz.slm --owner blk.0.ffn_up=oz.slm > 10
  > cmp 1 3; cmp 8 9; cmp 8 10; sort -u 1 2 4 5 6 7 8 | wc -l
  7
  $ lamina run stories.slm -a oz.slm -p Hi --owner blk.0.ffn_up
  lamina: --owner blk.0.ffn_up: no adapter of -a is called blk.0.ffn_up; there are: oz (LAM_E_NOT_FOUND)
  [1]
  $ lamina run stories.slm -a oz.slm -p Hi --owner =oz
  lamina: --owner =oz: MODULE=ADAPTER is needed, or ADAPTER (LAM_E_ARGUMENT)
  [1]
  $ lamina run stories.slm -a oz.slm -a shakespeare.slm -p Hi --owner blk.0.ffn_up=wizard
  lamina: --owner blk.0.ffn_up=wizard: no adapter of -a is called wizard; there are: oz, shakespeare (LAM_E_NOT_FOUND)
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
  [3]
  $ lamina receipt check signed.json | head -1
  claimed by key ed25519:[0-9a-f]{16}…, which is not in the trust list (re)
  $ lamina receipt check signed.json moved/both.json --trust keys/me.pem | head -1
  verified by me
  $ echo 'lamina receipt check "$@" > out.json 2> /dev/null; echo $?' > status.sh; sh status.sh signed.json moved/both.json --trust keys/me.pem
  > sh status.sh signed.json; sh status.sh signed.json stories.slm --trust keys/me.pem; sh status.sh signed.json --json; grep '"state"' out.json
  0
  3
  1
  3
    "state": "claimed",
  $ sh status.sh signed.json moved/both.json --trust keys/me.pem --json; grep '"state"' out.json; lamina receipt --help | grep -c 'Exit status: 0'
  0
    "state": "verified",
  1

A private key is nobody's to trust.

  $ lamina receipt check signed.json --trust keys
  lamina: keys/me-private.pem is a private key: only public ones belong into a trust list, and nobody else should have this one (LAM_E_PRIVATE_KEY)
  [1]
  $ LAMINA_TRUST=keys/me-private.pem lamina receipt check signed.json 2>&1 | grep -o 'LAM_E_[A-Z_]*'; lamina receipt check signed.json --trust "$TESTS/data/receipts/weak.pem" 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_PRIVATE_KEY
  LAM_E_WEAK_KEY

  $ lamina receipt check signed.json stories.slm 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_WRONG_COMPOSITION
  $ sed 's/:12\.5/:12.4/' signed.json > changed.json; lamina receipt check changed.json 2>&1 | grep -o 'LAM_E_[A-Z_]*'
  LAM_E_DIGEST
  $ lamina compose moved/both.json --receipt hash.json -o hashed.json | tail -1; lamina compose moved/both.json --receipt hash.json --receipt signed.json --trust keys/me.pem -o signed-too.json --json | grep standing
  standing claimed by "A B", a bare hash
    "standing": "verified by me"
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

Every composition of adapters has a standing, be their weights 0.

  $ lamina logits stories.slm -a oz.slm=0 -p Hi | grep standing; lamina run stories.slm -a oz.slm=0 --raw -p Hi -n 1 2>&1 > 1 | grep standing; lamina check stories.slm -a oz.slm=0 --json | grep standing
  standing unverified mixture
  standing unverified mixture
    "standing": "unverified mixture",

A receipt holds figures of the composition, none of the machine.

  $ lamina perplexity moved/forged.json "$DATA/README.md" -c 64 --json 2>&1 | grep -c SIGNATURE; lamina perplexity alone.json "$DATA/README.md" -c 64 --json > figures.json; lamina receipt make alone.json --figures figures.json -o figures-receipt.json
  > python3 -c 'import json; print(*sorted(json.load(open("figures.json"))["machine"])); f = json.load(open("figures-receipt.json"))["statement"]["figures"]; print(*sorted(f)); print(f["text_digest"])' > told; printf 'sha256:%s\n' $(sha256sum < "$DATA/README.md") | head -1 > sum; tail -1 told | cmp - sum; head -2 told
  1
  bytes isa seconds standing threads
  composition_id context deviation kv_format mean_nll perplexity scored_tokens text_digest tokens

A figure's name cannot pass for a line of the program's own.

  $ printf '{"a\\nstanding verified by me":1}' > lines.json; lamina receipt make moved/both.json --figures lines.json -o lines-receipt.json; lamina receipt check lines-receipt.json | grep -c '^standing'; lamina receipt check lines-receipt.json | tail -1
  0
    a\nstanding verified by me 1
