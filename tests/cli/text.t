Tokens and back. Expected tokens are those of llama.cpp for this vocabulary.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o stories.slm -q
  $ lamina tokenize stories.slm "Once upon a time"
  1,403,407,261,378
  $ lamina tokenize stories.slm -p "Once upon a time" --raw
  403,407,261,378
  $ printf 'Once upon a time' | lamina tokenize -m stories.slm
  1,403,407,261,378
  $ lamina tokenize stories.slm "<s>Once"
  1,403
  $ lamina tokenize stories.slm "<s>Once" --raw | grep -c '^1,'
  0
  [1]
  $ lamina tokenize stories.slm "" 
  1
  $ lamina tokenize stories.slm "Once" --json | python3 -c 'import json, sys; t = json.load(sys.stdin); print(t["n"], t["tokens"], t["pieces"])'
  2 [1, 403] ['<s>', ' Once']
  $ lamina tokenize stories.slm one two
  lamina: unexpected argument "two"
  lamina tokenize --help tells more.
  [2]
  $ lamina tokenize -m stories.slm -p one two
  lamina: the text stands twice: --prompt and "two"
  lamina tokenize --help tells more.
  [2]

  $ lamina detokenize stories.slm 1,403,407,261,378
  <s> Once upon a time
  $ lamina tokenize stories.slm "Once upon a time" | lamina detokenize stories.slm --raw
  Once upon a time
  $ lamina detokenize stories.slm --token-ids "403 407" --json
  {
    "text": "Once upon",
    "n": 2
  }
  $ lamina detokenize stories.slm 1,two
  lamina: "two" is not a list of token ids such as 1,2,3 (LAM_E_ARGUMENT)
  [1]
  $ for l in 1,,2 1, ,1 '1, ,2' '1;2' +1 1.0; do lamina detokenize stories.slm -- "$l"; done 2>&1 | grep -c 'is not a list of token ids'
  7
  $ for l in '403,407' '403 407' ' 403 , 407 ' '403
  > 407'; do lamina detokenize stories.slm "$l"; done | uniq | wc -l
  1
  $ lamina detokenize stories.slm 1,512
  lamina: token 512 of a vocabulary of 512 (LAM_E_TOKEN)
  [1]
  $ lamina detokenize stories.slm 99999999999
  lamina: "99999999999" is not a list of token ids such as 1,2,3 (LAM_E_ARGUMENT)
  [1]

Text in any script, with bytes that are no text, and with a zero byte, comes through.

  $ text='héllo 世界 🙂'; lamina tokenize stories.slm "$text" | lamina detokenize stories.slm --raw
  héllo 世界 🙂
  $ printf 'a\000b' | lamina tokenize stories.slm --json | grep -c '"n": 4'
  1
  $ printf 'a\377b\355\240\200c\303\251' | lamina tokenize stories.slm >/dev/null
  lamina: 4 of 9 bytes of the text are no UTF-8; U+FFFD stands in their place
  $ printf 'a\377b' | lamina tokenize stories.slm -q >/dev/null
  $ printf 'a\377b\360\237' | lamina run stories.slm --raw -n 0 2>&1 | head -n 1
  lamina: 3 of 5 bytes of the text are no UTF-8; U+FFFD stands in their place
