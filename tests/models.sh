#!/bin/sh
# Explores the models of tests/models exhaustively with spin, and shows that it finds the faults of their broken variants:
#     tests/models.sh BUILD_FOLDER
set -eu

build=$1
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
command -v spin >/dev/null || { echo "spin is not installed (tools/deps.sh --test)" >&2; exit 1; }

# explore NAME DEFINITIONS → spin's verdict in $build/models/NAME/log
explore()
{
    dir=$build/models/$1
    rm -rf "$dir"
    mkdir -p "$dir"
    cp tests/models/generations.pml "$dir/"
    (cd "$dir" && spin -a $2 generations.pml >spin.log && ${CC:-gcc} -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=3000 -o pan pan.c && ./pan -m200000 >log 2>&1) ||
        { cat "$dir"/*log; exit 1; }
}

states() { sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' "$dir/log"; }

explore right ""
grep -q 'errors: 0' "$dir/log" && ! grep -q 'max search depth too small\|out of memory\|Search not completed' "$dir/log" || { cat "$dir/log"; exit 1; }
echo "generations: $(states) states, no fault"

for variant in COUNT_ALONE UNVERIFIED BARE_STATE; do
    explore $variant -D$variant
    grep -q 'assertion violated' "$dir/log" || { echo "$variant: no fault was found"; cat "$dir/log"; exit 1; }
    echo "$variant: found: $(sed -n 's/pan:1: //p' "$dir/log")"
done
