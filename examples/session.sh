#!/bin/sh
# A session with the command line, on the model that ships here:  examples/session.sh [LAMINA]    after make
set -eu
cd "$(dirname "$0")/.."
lamina=${1:-build/lamina}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Shows a command, then runs it.
show() { printf '\n$ lamina %s\n' "$*"; "$lamina" "$@"; }

# A model and two adapters become .slm files, each with a digest of its own.
show import data/stories260K-Q8_0.gguf -o "$work/stories.slm"
show import data/adapters/oz -m "$work/stories.slm" -o "$work/oz.slm"
show import data/adapters/shakespeare -m "$work/stories.slm" -o "$work/shakespeare.slm"

# The base, under an adapter, under two, and the base again: the digest tells the function that wrote, and the base's comes back.
set -- run "$work/stories.slm" --raw -p "The king said" --temp 0 -n 30
show "$@"
show "$@" -a "$work/oz.slm"
show "$@" -a "$work/oz.slm" -a "$work/shakespeare.slm=0.5"
show "$@"

# Any number of threads, any chunks, any instruction set: the same bits.
show logits "$work/stories.slm" -a "$work/oz.slm" -p "The king said" --quiet
LAMINA_ISA=scalar show logits "$work/stories.slm" -a "$work/oz.slm" -p "The king said" --quiet --threads 1 --chunk 1

# Every byte is what was imported, and the tensors go back to GGUF as they came.
show verify "$work/stories.slm"
show export "$work/stories.slm" -o "$work/stories.gguf"
