The store: adding, naming, activating, going back, upkeep, copies.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf; mkdir -p .local/share; ln -s .local/share/lamina store
  $ printf '#!/bin/sh\nexec lamina run "$@" --raw -p "Once upon a time" --temp 0 -n 30 -q\n' > story; chmod +x story
  $ lamina store list
  lamina: .*/.local/share/lamina: there is no store here; `lamina store add` makes one \(LAM_E_NOT_FOUND\) (re)
  [1]
  $ lamina store add stories.gguf
  stories  base sha256:[0-9a-f]{64} (re)
  manifest sha256:[0-9a-f]{64} (re)
  $ lamina store add "$DATA/adapters/oz" "$DATA/adapters/shakespeare" -q; lamina store add "$DATA/adapters/oz" | tail -1
  manifest sha256:[0-9a-f]{64}, as before (re)
  $ lamina store list
    stories      base         [0-9a-f]{12}       0.46 MB  [0-9a-f]{12} (re)
    oz           adapter      [0-9a-f]{12}       0.3. MB  [0-9a-f]{12} (re)
    shakespeare  adapter      [0-9a-f]{12}       0.6. MB  [0-9a-f]{12} (re)
  3 in .*/lamina (re)

Names stand where models and adapters do; the text is that of the files.

  $ ./story stories.gguf -a "$DATA/adapters/oz=0.5" > plain; ./story stories -a oz=0.5 | cmp - plain
  $ lamina store activate stories -a oz=0.5 --reason "first release"
  composition sha256:[0-9a-f]{64} (re)
  generation  1
  $ ./story | cmp - plain
  $ lamina store activate stories -a oz=0.5
  composition sha256:[0-9a-f]{64} (re)
  generation  1, active already
  $ lamina run --raw -p Once -n 2 2>&1 | head -1
  lamina: no model given: this is the store's active composition, generation 1
  $ lamina run -a shakespeare -p Once -q 2>&1 | sed 's/[0-9a-f]\{12\}/X/g'
  lamina: no model was named, and the one that runs then, sha256:X, is a composition, to which -a adds nothing; `lamina store activate sha256:X -a shakespeare` makes one with it the active one, -m BASE runs a base with it (LAM_E_CONFLICT)
  $ lamina check stories -a shakespeare | head -1; lamina tokenize stories Hi | cmp - - << END
  > $(lamina tokenize stories.gguf Hi)
  > END
  nothing is wrong
  $ lamina export stories -o back.gguf -q; lamina inspect back.gguf | head -1 | cut -c1-10
  back.gguf:

The model that ran last is the one without a name, as long as nothing is active.

  $ lamina store add stories.gguf --name first --store used -q; lamina compose stories.gguf -a "$DATA/adapters/oz" -o second.json -q
  > lamina store add second.json --store used -q; lamina run --store used --raw -p Once -n 1 2>&1 | head -1
  lamina: no model given, and none is active: this is second, which the store has
  $ lamina run first --store used --raw -p Once -n 1 -q > out; lamina run --store used --raw -p Once -n 1 2>&1 | head -1
  lamina: no model given, and none is active: this is first, which the store has
  $ lamina store fsck --store used; lamina store remove first --store used -q; lamina store gc --store used -q; lamina run --store used --raw -p Once -n 1 2>&1 | head -1
  nothing is wrong
  lamina: no model given, and none is active: this is second, which the store has

  $ lamina run storis -p Hi
  lamina: storis: no such file, and no such name in the store .*/lamina; did you mean stories, which the store has\? \(LAM_E_NOT_FOUND\) (re)
  [1]
  $ lamina run oz -p Hi
  lamina: oz is of kind adapter in the store; a base or a composition is needed (LAM_E_ARGUMENT)
  [1]
  $ lamina store actvate x
  lamina: store has no "actvate"; did you mean activate?
  lamina store --help tells more.
  [2]

Without one adapter, and back.

  $ lamina store deactivate oz | tail -1; ./story > base; ./story stories.gguf | cmp - base; lamina store rollback | tail -1; ./story | cmp - plain
  generation  2
  generation  3
  $ lamina store deactivate nobody
  lamina: nobody: none, or more than one, of the 1 active adapters is called so (LAM_E_NOT_FOUND)
  [1]

A manifest becomes a composition; the same composition is the same blob.

  $ lamina compose stories.gguf -a "$DATA/adapters/oz=0.5" -o poet.json -q; lamina store add poet.json -q; lamina store list | grep '^\*'
  \* poet         composition  [0-9a-f]{12}       0.8. MB  [0-9a-f]{12} (re)
  $ ./story poet | cmp - plain
  $ lamina store show poet --json | python3 -c 'import json, sys; s = json.load(sys.stdin); print(s["kind"], [k for k in ("base", "adapters") if "file" in str(s["composition"][k])], len(s["manifest"]["layers"]))'
  composition [] 2

What a composition carries is in blobs of its own, and comes back.

  $ printf '{%% for m in messages %%}{{ m.role }}: {{ m.content }} {%% endfor %%}' > t.jinja
  > lamina compose stories.gguf -a "$DATA/adapters/oz" --template t.jinja --system "Be brief." --temp 0 --seed 7 -o own.json -q
  > lamina store add own.json --store carried -q; lamina store show own --store carried | grep -o '[A-Za-z0-9]*\.[a-z]*$'
  stories260K.slm
  oz.slm
  template.jinja
  prompt.txt
  sampling.json
  $ lamina run own.json -p Hi -n 8 --json > file.txt; lamina run own --store carried -p Hi -n 8 --json > store.txt; sed -i '/_per_s\|seconds\|"rate/d' file.txt store.txt; grep -o '"text".*\|"composition_id".*\|"seed".*' file.txt > a; grep -o '"text".*\|"composition_id".*\|"seed".*' store.txt | cmp - a; wc -l < a
  3
  $ cmp "carried/blobs/sha256/$(sha256sum < t.jinja | cut -c1-64)" t.jinja

Who did what, and why; a line that was changed is found.

  $ lamina store log | sed 's/^ *\([0-9]*\)  [^ ]*  [^ ]*@[^ ]*  /\1 /; s/[0-9a-f]\{12\}/X/g'
  1 add  done  stories  nothing → X
  2 add  done  oz  nothing → X
  3 add  done  shakespeare  nothing → X
  4 activate  done  nothing → X  (first release)
  5 deactivate  done  X → X
  6 rollback  done  X → X
  7 deactivate  failed  nobody  LAM_E_NOT_FOUND
  8 add  done  poet  nothing → X
  $ lamina store log --verify
  8 lines, each follows from the one before it
  $ cp -r store/ other; sed -i '3s/shakespeare/shakespeer/' other/audit.jsonl; lamina store log --verify --store other
  lamina: audit.jsonl: line 3 was changed (LAM_E_STORE_AUDIT)
  [1]

Damage is named and, where it can be, put right.

  $ lamina store fsck
  nothing is wrong
  $ blob=$(ls -S other/blobs/sha256 | head -1); chmod 644 "other/blobs/sha256/$blob"; printf XXXX | dd of="other/blobs/sha256/$blob" bs=1 seek=300000 conv=notrunc 2> /dev/null
  > touch other/note other/known_roots.4711-5a.part; lamina store fsck --store other | cut -c1-35; lamina store fsck --store other --repair | sed -n '/not repaired/,$p' | sed 's/blobs.*pieces/… pieces/'
    LAM_E_STORE_TEMPORARY   known_roo
    LAM_E_STORE_STRAY       note     
    LAM_E_STORE_AUDIT       audit.jso
    LAM_E_STORE_BLOB_MODE   blobs/sha
    LAM_E_STORE_BLOB_BYTES  blobs/sha
  not repaired:
    LAM_E_STORE_BLOB_BYTES  … pieces are bad, the first is 0
  $ lamina store add "$DATA/adapters/shakespeare" --store other -q; lamina store fsck --store other
  nothing is wrong

A store that cannot be read is not passed over for the model that ships; a file is run all the same.

  $ for file in active.json oci-layout index.json; do
  >   cp -r store/ bad; rm bad/active.json; echo '{' > "bad/$file"; lamina run -p Hi --store bad; echo $?
  >   ./story stories.gguf -a "$DATA/adapters/oz=0.5" --store bad | cmp - plain; lamina store fsck --repair --store bad | tail -1; ./story --store bad > again; rm -r bad
  > done
  lamina: bad/active\.json: .*; `lamina store fsck --repair` mends it, and -m takes a file all the same \(LAM_E_STORE_ACTIVE\) (re)
  1
  all of it is repaired
  lamina: bad/oci-layout: .*; `lamina store fsck --repair` mends it, and -m takes a file all the same \(LAM_E_STORE_LAYOUT\) (re)
  1
  all of it is repaired
  lamina: bad/index\.json: .*; `lamina store fsck --repair` mends it, and -m takes a file all the same \(LAM_E_STORE_INDEX\) (re)
  1
  all of it is repaired
  $ mkdir bad; echo '{' > bad/oci-layout; lamina run stories -p Hi --store bad 2>&1 | grep -o 'LAM_E.*'; rm -r bad
  LAM_E_STORE_LAYOUT)
  $ lamina run --raw -p Once -n 2 --store nowhere 2>&1 | head -1 | cut -c1-60
  lamina: no model given: this is the small one that ships wit

gc leaves what has a name, is active, or was before.

  $ lamina store gc
  0 blobs removed, 0.00 MB freed
  $ lamina store remove shakespeare -q; lamina store gc
  2 blobs removed, 0.66 MB freed

Copies, by lamina and by a tool that knows nothing of it.

  $ lamina store export poet copy -q; lamina store import copy --store third -q; lamina store list --store third | cut -c1-20
    poet  composition 
  1 in third
  $ lamina store export poet poet.tar; test -e poet.tar || echo nothing
  lamina: poet.tar: copies are folders, not archives; export to a FOLDER, and `tar -cf FILE.tar -C FOLDER .` packs it (LAM_E_ARGUMENT)
  nothing
  $ tar -cf poet.tar -C copy . && lamina store import poet.tar --store fifth
  lamina: poet.tar: copies are folders, not archives; `mkdir FOLDER && tar -xf FILE.tar -C FOLDER` unpacks one, then import FOLDER (LAM_E_ARGUMENT)
  [1]
  $ mkdir unpacked && tar -xf poet.tar -C unpacked && lamina store import unpacked --store fifth -q; lamina store list --store fifth | cut -c1-20
    poet  composition 
  1 in fifth
  $ digest() { python3 -c 'import json, sys; print(*[m["digest"] for m in json.load(open(sys.argv[1]))["manifests"] if m["annotations"]["org.opencontainers.image.ref.name"] == sys.argv[2]])' "$@"; }
  > skopeo copy -q --insecure-policy "oci:store:poet" oci:fourth:poet && [ "$(digest store/index.json poet)" = "$(digest fourth/index.json poet)" ] && echo equal
  equal
  $ ./story poet --store fourth | cmp - plain; lamina store activate poet --store fourth | tail -1; lamina store list --store fourth | tail -1
  generation  1
  1 in fourth, generation 1 is active
