References, and what is refused before anything is asked of the network.

  $ lamina pull
  lamina: pull takes one REFERENCE, and of a seed a MODEL
  lamina pull --help tells more.
  [2]
  $ lamina pull model.slm
  lamina: model.slm: neither a URL nor a registry's reference (oci://HOST/NAME:TAG) (LAM_E_ARGUMENT)
  [1]
  $ lamina pull https://example.org/m.slm#sha256:12 2>&1 | sed 's/;.*(/ (/'
  lamina: https://example.org/m.slm#sha256:12: "sha256:12" is no digest (LAM_E_ARGUMENT)
  $ lamina pull https://me:secret@example.org/m.slm
  lamina: https://…: a user's name does not belong into a URL, which is shown and recorded; give it with --user (LAM_E_ARGUMENT)
  [1]
  $ lamina pull registry.example.org/Team/x
  lamina: registry.example.org/Team/x: "Team/x" is no repository's name: small letters, digits, and . _ - / between them (LAM_E_ARGUMENT)
  [1]
  $ lamina pull registry.example.org/x:-v1
  lamina: registry.example.org/x:-v1: "-v1" is no tag (LAM_E_ARGUMENT)
  [1]
  $ lamina pull registry.example.org/x y
  lamina: registry.example.org/x is no seed, which has several models to choose from (LAM_E_ARGUMENT)
  [1]
  $ lamina pull https://example.org/m.slm --limit-rate fast
  lamina: --limit-rate fast: a number of bytes is needed, or one with k, M, G or T (LAM_E_ARGUMENT)
  [1]
  $ lamina pull https://example.org/m.slm --user me
  lamina: a login is NAME:PASSWORD (LAM_E_ARGUMENT)
  [1]
  $ lamina push x https://example.org/x
  lamina: https://example.org/x: a push goes to a registry (oci://HOST/NAME:TAG) (LAM_E_ARGUMENT)
  [1]

Nothing listens there.

  $ lamina pull http://localhost:9/m.slm --json | python3 -c 'import json, sys; e = json.load(sys.stdin)["error"]; print(e["name"], "localhost" in e["message"])'
  LAM_E_NETWORK True

A seed is what the store has names for.

  $ lamina store add "$DATA/stories260K-Q8_0.gguf" --name stories -q
  $ lamina seed
  stories: base
    blobs/sha256/[0-9a-f]{64} (re)
    blobs/sha256/44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a  2
    blobs/sha256/[0-9a-f]{64}  459008 (re)
  $ lamina seed -o www --default poet
  lamina: the default, poet, is not among the seed's models (LAM_E_NOT_FOUND)
  [1]
  $ lamina seed --key me.pem
  lamina: a signature is for what is written: give -o FOLDER
  lamina seed --help tells more.
  [2]
  $ lamina seed -o www | tail -1; ls www
  www/seed.json: unsigned
  blobs
  index.json
  oci-layout
  seed.json
  $ cat www/seed.json | python3 -c 'import json, sys; s = json.load(sys.stdin)["statement"]; print(s["default"], [len(f) for f in s["models"]["stories"]["files"]])'
  stories [3, 4]
