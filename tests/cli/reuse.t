What one run leaves to the next: saved sessions, and drafts.

  $ cp "$DATA/stories260K-Q8_0.gguf" stories.gguf; lamina import stories.gguf -q
  $ lamina import "$DATA/adapters/oz" -m stories.slm -o oz.slm -q

A text in two runs is the text of one, draws too.

  $ lamina run stories.slm --raw -p "Once upon a time" -n 50 --seed 5 -q >whole.txt
  $ lamina run stories.slm --raw -p "Once upon a time" -n 20 --seed 5 -q --save-session a.session >first.txt
  $ lamina run stories.slm --raw -p "" -n 30 --seed 5 -q --restore-session a.session >second.txt
  $ test "$(tr -d '\n' <first.txt)$(tr -d '\n' <second.txt)" = "$(tr -d '\n' <whole.txt)" && echo the same
  the same
  $ lamina run stories.slm --raw -p " The end" -n 1 --restore-session a.session --json | grep -E '"(restored|cached)_tokens"'
    "restored_tokens": 25,
    "cached_tokens": 0,

Under another composition it is refused, and so is a damaged file.

  $ lamina run stories.slm -a oz.slm --raw -p "" --restore-session a.session -q
  lamina: a.session: the session was saved under sha256:.* \(LAM_E_IDENTITY\) (re)
  [1]
  $ head -c 1000 a.session >b.session; lamina run stories.slm --raw -p "" --restore-session b.session -q
  lamina: b.session: .* \(LAM_E_TRUNCATED\) (re)
  [1]
  $ lamina run stories.slm --raw -p "" --restore-session stories.slm -q
  lamina: stories.slm: not a saved session.* \(LAM_E_MAGIC\) (re)
  [1]

Drafts change no letter.

  $ for d in lookup base lookup:3 base:1; do lamina run stories.slm -a oz.slm --raw -p "Once upon a time" -n 60 --seed 3 -q --draft $d; done | sort -u | wc -l
  1
  $ lamina run stories.slm -a oz.slm --raw -p "Once upon a time" -n 60 --seed 3 -q >plain.txt
  $ lamina run stories.slm -a oz.slm --raw -p "Once upon a time" -n 60 --seed 3 -q --draft base | cmp - plain.txt
  $ lamina run stories.slm --raw -p Once -n 20 --temp 0 --draft base:4 --json | grep -E '"(passes|accepted_tokens)"'
    "passes": 4,
    "accepted_tokens": 16,
  $ lamina run stories.slm --raw -p Once --draft bass
  lamina: --draft is lookup or base, perhaps with :N, N from 1 to 31; did you mean base?
  lamina run --help tells more.
  [2]
