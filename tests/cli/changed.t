A base that is truncated or replaced while it is mapped: a typed error and a clean end, no signal.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o stories.slm -q

Truncated between two turns of a chat.

  $ cp stories.slm base.slm
  $ NO_COLOR=1 terminal lamina run base.slm -q --temp 0 -n 5 <<'STEPS'
  > see > 
  > type Once upon a time
  > see , there was
  > see > 
  > do truncate -s 4096 base.slm
  > type Once upon a time
  > see (LAM_E_CHANGED)
  > end 1
  > STEPS

Replaced by another file.

  $ cp stories.slm base.slm; cp stories.slm next.slm
  $ NO_COLOR=1 terminal lamina run base.slm -q --temp 0 -n 5 <<'STEPS'
  > see > 
  > type Once upon a time
  > see , there was
  > see > 
  > do mv next.slm base.slm
  > type Once upon a time
  > see (LAM_E_CHANGED)
  > end 1
  > STEPS

Written to.

  $ cp stories.slm base.slm
  $ NO_COLOR=1 terminal lamina run base.slm -q --temp 0 -n 5 <<'STEPS'
  > see > 
  > type Once upon a time
  > see , there was
  > see > 
  > do sleep 0.05; printf x | dd of=base.slm bs=1 seek=400000 conv=notrunc status=none
  > type /base
  > see (LAM_E_CHANGED)
  > end 1
  > STEPS

Truncated in the middle of an answer.

  $ cp stories.slm base.slm; lamina run base.slm --raw -p Once -n 100000000 -c 1000000 -q > out 2> err & run=$!
  > while ! [ -s out ]; do sleep 0.05; done; truncate -s 4096 base.slm; wait $run; echo $?; grep -o LAM_E_CHANGED err
  1
  LAM_E_CHANGED
  $ cp stories.slm base.slm; lamina run base.slm --raw -p Once -n 100000000 -c 1000000 --json > out 2> err & run=$!
  > while ! grep -q base.slm /proc/$run/maps; do sleep 0.05; done; truncate -s 0 base.slm; wait $run; echo $?
  > python3 -c 'import json; print(json.load(open("out"))["error"]["name"])'
  1
  LAM_E_CHANGED
