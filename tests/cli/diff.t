What a tuned model changed, as an adapter.

  $ ln -s "$TESTS/golden/llama-gqa" base && ln -s "$TESTS/golden/methods/llama-gqa/tuned-dense" tuned
  $ lamina diff base tuned --method dense -o d.slm
  module                 part      difference         kept         rest    of base
  token_embd +matrix .* (re)
  blk.0.attn_v +matrix .* (re)
  blk.0.attn_output +matrix .* (re)
  blk.0.ffn_down +matrix .* (re)
  output_norm +norm .* (re)
  d.slm: dense, \d+\.\d\d MB, in \d+\.\d\d s; 5 tensors differ, 16 do not (re)
  digest     sha256:[0-9a-f]{64} (re)
  $ lamina diff base tuned --method lora:4 --dtype f16 -o l.slm | grep -c "  rank 4 leaves"
  4
  $ lamina diff base tuned --method sparse --density 0.1 --drop 0.5 --seed 7 -o s.slm -q && lamina inspect s.slm | grep -A 10 " diff"
    diff
      base            sha256:[0-9a-f]{64} (re)
      density         0.1
      drop            0.5
      dtype           F32
      method          sparse
      rescale         2
      seed            7
      tuned           sha256:[0-9a-f]{64} (re)
  .* (re)
  .* (re)
  $ lamina diff base tuned --method sparse --density 0.1 --drop 0.5 --seed 7 -o again/../s2.slm 2>&1 | grep -o "LAM_E_[A-Z_]*"
  LAM_E_(IO|NOT_FOUND) (re)
  $ lamina logits base -a d.slm --token-ids 1,2,3 -q | grep -c sha256
  2

What cannot be done is refused.

  $ lamina diff base base --method dense -o x.slm
  lamina: nothing differs: the two have the same weights (LAM_E_CONFLICT)
  [1]
  $ lamina diff base "$TESTS/golden/gemma3-swa" --method dense -o x.slm 2>&1 | grep -o "the base is.*"
  the base is a llama, the tuned model a gemma3 (LAM_E_ARCHITECTURE)
  $ lamina diff base tuned -o x.slm
  lamina: how? give --method sparse, dense or lora:RANK
  lamina diff --help tells more.
  [2]
  $ lamina diff base tuned --method lora:0 -o x.slm 2>&1 | head -1
  lamina: --method lora:0: sparse, dense and lora:RANK (1 to 8192) are possible
  $ lamina diff base tuned --method dense --drop 1 -o x.slm 2>&1 | head -1
  lamina: --drop 1: 0 to less than 1 are possible
  $ ls x.slm
  ls: cannot access 'x.slm': No such file or directory
  [2]
