The published schema and the reader agree, on every manifest that is written and on wrong ones.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf; lamina import stories.gguf -q; echo '{{ messages }}' > t.jinja
  > for a in oz shakespeare; do lamina import "$DATA/adapters/$a" -m stories.slm -q; done; cp -r "$DATA/adapters/oz" templated; echo '{{ 1 }}' > templated/chat_template.jinja
  $ lamina compose stories.slm -o 1.json -q; lamina compose stories.gguf -a "$DATA/adapters/oz=-0.25" --kv int8 --policy materialize -o 2.json -q
  > lamina compose stories.slm -a oz.slm,replace -a shakespeare.slm,replace --owner oz --policy blk.0.ffn_up=materialize -o 3.json -q
  > lamina compose stories.slm -a templated --accept-tokenizer -o 4.json -q
  > lamina receipt make 3.json --figures perplexity=2.5 --by "A B" -o r.json; lamina compose 3.json --receipt r.json -o 5.json -q
  > lamina compose stories.slm -a oz.slm=0.5 --template t.jinja --system "Be
  > brief." --temp 0.7 --top-k 5 --top-p 0.9 --min-p 0.1 --repeat-penalty 1.1 --seed 7 -o 6.json -q
  $ python3 "$TESTS/cli/schema.py" 1.json 2.json 3.json 4.json 5.json 6.json
  6 written manifests, \d{3} wrong variants, \d\d right ones, 5 beyond the schema (re)
  $ python3 "$TESTS/cli/manifest_id.py" 1.json 2.json 3.json 4.json 5.json 6.json
  as computed
  as computed
  as computed
  as computed
  as computed
  as computed
