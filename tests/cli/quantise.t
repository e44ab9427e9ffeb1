Float weights encoded while importing.

  $ cp "$DATA/../tests/golden/llama-gqa/llama-gqa-f32.gguf" float.gguf
  $ lamina import float.gguf --quantise q4_64:outliers=0.01 -o small.slm
  small.slm: a base from float.gguf, 0.28 MB, in \d+\.\d\d s (re)
  weights    21 tensors: 14 Q4_64, 7 F32
  encoded    14 matrices to Q4_64, 0.05 MB, and 884 outlier residuals, 0.01 MB
  left       blk.0.ffn_down.weight, blk.1.ffn_down.weight; with norms and biases 0.06 MB
  digest     sha256:[0-9a-f]{64} (re)
  file_root  sha256:[0-9a-f]{64} (re)
  $ lamina import float.gguf --quantise q4_64:outliers=0.01 -o again.slm -q && cmp small.slm again.slm
  $ lamina inspect small.slm --tensors | grep ^output.weight
  output.weight                                Q4_64         10368  [64,288]  + 184 residual values
  $ lamina inspect small.slm | grep -A 3 -e ^residuals -e ' encoder'
    encoder
      quantise        q4_64:outliers=0.01
      version         1
    file              float.gguf
  --
  residuals
    tensors           14
    values            884
    bytes             9160
  $ lamina import float.gguf --quantise q4_64:keep=embedding,keep=output -o kept.slm | grep left
  left       blk.0.ffn_down.weight, blk.1.ffn_down.weight, output.weight, token_embd.weight; with norms and biases 0.20 MB

What cannot be done is refused.

  $ lamina export small.slm -o back.gguf 2>&1 | grep -o 'is Q4_64, a type of Lamina.s own'
  is Q4_64, a type of Lamina's own
  $ lamina import float.gguf --quantise q4_64:outliers=0.5 -o x.slm
  lamina: float.gguf: quantise: outliers=0.5 is not a fraction from 0 to 0.05, such as outliers=0.005 (LAM_E_ARGUMENT)
  [1]
  $ lamina import float.gguf --quantise q5 -o x.slm
  lamina: float.gguf: quantise: unknown type "q5"; q4_64 is known (LAM_E_ARGUMENT)
  [1]
  $ lamina import "$DATA/stories260K-Q8_0.gguf" --quantise q4_64 -o x.slm 2>&1 | grep -o 'token_embd.weight is Q8_0.*LAM_E_[A-Z]*'
  token_embd.weight is Q8_0: what is quantised already isn't quantised again; take float weights (LAM_E_DTYPE
  $ lamina import "$DATA/adapters/oz" -m small.slm --quantise q4_64 -o x.slm 2>&1 | grep -o 'is an adapter.*'
  is an adapter; --quantise is for bases
