The chat, on a terminal of its own.

  $ lamina import "$DATA/stories260K-Q8_0.gguf" -o stories.slm -q
  $ for a in oz shakespeare; do lamina import "$DATA/adapters/$a" -m stories.slm -q; done

A conversation, and the commands.

  $ NO_COLOR=1 terminal lamina run stories.slm -a oz.slm --temp 0 -n 10 <<'STEPS'
  > see base         stories260K
  > see adapter      oz, weight 1
  > see composition  sha256:
  > see no chat template
  > see > 
  > type /base
  > see switched in
  > see base stories260K
  > type Once upon a time
  > see , there was a little girl named
  > see > 
  > type /help
  > see /quit
  > see > 
  > type /adapter
  > see oz, weight 0 (off)
  > type /adapter oz=0.5
  > see base stories260K + 0.5 x oz
  > type /adapter shakespeare.slm=-2e-1
  > see base stories260K + 0.5 x oz + -0.2 x shakespeare
  > type /adapter ./oz.slm=2
  > see base stories260K + 2 x oz + -0.2 x shakespeare
  > type /id
  > see oz, weight 2
  > see shakespeare, weight -0.2
  > see composition  sha256:
  > type /reset
  > see forgotten
  > type /quit
  > end 0
  > STEPS

What goes wrong changes nothing.

  $ NO_COLOR=1 terminal lamina run stories.slm -a oz.slm -q --temp 0 -n 10 <<'STEPS'
  > see > 
  > type /adapter ozz
  > see no adapter and no file is called "ozz" (did you mean oz?); loaded: oz (LAM_E_NOT_FOUND)
  > type /adapter stories.slm
  > see stories.slm is a base, not an adapter (LAM_E_FORMAT)
  > type /adapter oz=nan
  > see the weight "nan" is not a finite number (LAM_E_ARGUMENT)
  > type /bse
  > see no command /bse; did you mean /base?
  > type /xyzzy
  > see no command /xyzzy; /help lists them
  > type /adapter oz 0.5
  > see the weight stands behind a '=', without blanks: /adapter oz=0.5 (LAM_E_ARGUMENT)
  > type /adapter oz=heavy
  > see oz: the weight "heavy" is not a number (LAM_E_ARGUMENT)
  > type /base now
  > see /base takes nothing behind it
  > type /id
  > see adapter      oz, weight 1
  > see > 
  > press D
  > end 0
  > STEPS

White space around a command is nothing; ~ is the home folder.

  $ cp shakespeare.slm ~/verse.slm
  $ NO_COLOR=1 terminal lamina run stories.slm -q <<'STEPS'
  > see > 
  > type   /id  
  > see composition
  > type  /adapter   ~/verse.slm=0.5 
  > see base stories260K + 0.5 x shakespeare
  > type   
  > see > 
  > type /quit 
  > end 0
  > STEPS

Without -n an answer leaves a quarter of the context to the next message, or else half of what is left; what is full says how to go on.

  $ NO_COLOR=1 terminal lamina run stories.slm --temp 0 -c 60 <<'STEPS'
  > see by 128 tokens at most (-n)
  > see > 
  > type Once upon a time
  > see (stopped to leave room: 45 of 60 tokens of the context are used; /reset begins anew, -c sets it)
  > type Once
  > see (stopped to leave room: 
  > see of 60 tokens
  > type The king said that he would never again speak to the queen.
  > see with this message the conversation has
  > see /reset begins anew, -c sets the context; nothing was changed (LAM_E_CONTEXT)
  > type /reset
  > see forgotten
  > type Once upon a time
  > see 45 of 60 tokens
  > type /quit
  > end 0
  > STEPS
  $ NO_COLOR=1 terminal lamina run "$TESTS/golden/qwen2-tied" --temp 0 -q <<'STEPS'
  > see > 
  > type Hi
  > see tokens of the context are used; /reset begins anew
  > see > 
  > type Hi
  > see > 
  > press D
  > end 0
  > STEPS
  $ NO_COLOR=1 terminal lamina run stories.slm --temp 0 -q -c 30 -n 100 <<'STEPS'
  > see > 
  > type Once upon a time
  > see (the context of 30 tokens is full: /reset begins anew, -c sets it)
  > press D
  > end 0
  > STEPS

Empty lines are nothing; a backslash goes on; what does not fit says so and is forgotten; a colour ends where it began.

  $ NO_COLOR= terminal lamina run stories.slm -q --temp 0 -n 10 -c 40 <<'STEPS'
  > see > 
  > type 
  > see > 
  > type Once upon\
  > see ... 
  > type  a time
  > see \e[36m
  > see \e[0m
  > see > 
  > type The king said that he would never again speak to the queen who lived in the castle on the other side of the river.
  > see (LAM_E_CONTEXT)
  > type /reset
  > see forgotten
  > type Once upon a time
  > see , there was a little girl named
  > type /quit
  > end 0
  > STEPS

Ctrl-C stops an answer, throws a line away, and twice in a row leaves.

  $ NO_COLOR=1 terminal lamina run stories.slm -q --temp 0.8 -c 1000000 -n 100000000 <<'STEPS'
  > see > 
  > type Once upon a time
  > see , there was
  > press C
  > see (stopped)
  > see > 
  > press C
  > see (Ctrl-D or /quit leaves, so does another Ctrl-C)
  > see > 
  > type /id
  > see composition
  > see > 
  > press C
  > see > 
  > press C
  > end 130
  > STEPS

There must be a template for a system message, and no chat for programs.

  $ NO_COLOR=1 terminal lamina run stories.slm --system "Be brief." <<'STEPS'
  > see stories260K has no chat template, so there is no place for --system (LAM_E_TEMPLATE)
  > end 1
  > STEPS
  $ NO_COLOR=1 terminal lamina run stories.slm --json <<'STEPS'
  > see --json needs a prompt
  > end 2
  > STEPS

Of two adapters of one name the second is called by the name with a number, and each is put on and taken off alone.

  $ mkdir other; cp -r "$DATA/adapters/shakespeare" other/oz; lamina import other/oz -m stories.slm -o other/oz.slm -q
  $ NO_COLOR=1 terminal lamina run stories.slm -a oz.slm -a other/oz.slm=0.5 -n 10 <<'STEPS'
  > see oz, weight 1
  > see oz-2, weight 0.5
  > see > 
  > type /adapter oz=0
  > see base stories260K + 0.5 x oz-2
  > type /adapter oz=0.25
  > see + 0.25 x oz
  > type /adapter oz-2=0
  > see base stories260K + 0.25 x oz
  > type /quit
  > end 0
  > STEPS
