#!/bin/sh
# An installed Lamina serves a program that knows only pkg-config, with the static and with the shared library.
#     tests/install.sh BUILD_FOLDER
set -eu
build=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
make --no-print-directory B="$build" PREFIX="$root" install >/dev/null
export PKG_CONFIG_PATH="$root/lib/pkgconfig"
"$root/bin/lamina" import data/stories260K-Q8_0.gguf -o "$root/stories.slm" -q
cc -std=c11 examples/hello.c $(pkg-config --cflags --libs lamina) -o "$root/hello-shared"
cc -std=c11 examples/hello.c -Wl,-Bstatic $(pkg-config --cflags --libs lamina) -Wl,-Bdynamic \
    $(pkg-config --libs jansson libzstd libcrypto libpcre2-8 libutf8proc libcurl) -lpthread -lm -o "$root/hello-static"
LD_LIBRARY_PATH="$root/lib" "$root/hello-shared" "$root/stories.slm" >"$root/shared.txt"
"$root/hello-static" "$root/stories.slm" >"$root/static.txt"
cmp "$root/shared.txt" "$root/static.txt"
grep -q 'Once upon a time' "$root/shared.txt"
# What the shared library exports is the public interface and nothing else.
nm -D --defined-only "$root/lib/liblamina.so" | awk '$2 == "T" { print $3 }' | sort >"$root/exported"
grep -ho 'lam_[a-z0-9_]*(' include/lamina/*.h | tr -d '(' | sort -u >"$root/declared"
comm -23 "$root/exported" "$root/declared" | if grep .; then echo "exported, but not in include/lamina"; exit 1; fi
wc -l examples/hello.c | awk '$1 >= 60 { print "examples/hello.c has " $1 " lines"; exit 1 }'
# And what was installed can be removed.
make --no-print-directory B="$build" PREFIX="$root" uninstall >/dev/null
find "$root" -type f -path '*lamina*' -not -name '*.slm' | if grep .; then echo "left by uninstall"; exit 1; fi
