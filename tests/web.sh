#!/bin/sh
# The browser's package: what it knows of the C headers is fresh, its modules are small enough, and in headless Chromium it gives the native
# program's bits and keeps its word about files, memory and workers.
#     tests/web.sh BUILD_FOLDER [PART OF A TEST'S NAME]
set -eu

build=$1
check() # NAME COMMAND…
{
    name=$1
    shift
    if "$@"; then echo "[       OK ] $name"; else echo "[  FAILED  ] $name"; exit 1; fi
}

small() # bytes after gzip, of each module: what a page fetches
{
    for module in "$build"/web/*.wasm; do
        bytes=$(gzip -9 <"$module" | wc -c)
        [ "$bytes" -le 600000 ] || { echo "$module: $bytes bytes after gzip, 600000 are allowed"; return 1; }
    done
}

check "generated.ts is what the headers give" tools/web_types.py
check "each module is at most 600 kB after gzip" small
exec node tests/web/run.mjs "$@"
