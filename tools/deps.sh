#!/bin/sh
# Install what is missing to build Lamina, from Debian's packages; silent when nothing is:
#     tools/deps.sh            the library and the command line
#     tools/deps.sh --test     also what the tests need
#     tools/deps.sh --wasm     also what the WebAssembly build needs
#     tools/deps.sh --web      also what the browser's package and its tests need, besides --wasm
#     tools/deps.sh --arm      also what builds and runs tests for 64-bit ARM elsewhere
#     tools/deps.sh --fuzz     also what the fuzz targets need
set -u

missing=
want()
{
    case " $missing " in *" $1 "*) ;; *) missing="$missing${missing:+ }$1" ;; esac
}

need_command() { command -v "$1" >/dev/null 2>&1 || want "$2"; }
need_file() { [ -e "$1" ] || want "$2"; }
need_library() { pkg-config --exists "$1" 2>/dev/null || want "$2"; }

need_node()
{
    version=$(node --version 2>/dev/null) || version=v0
    version=${version#v}
    [ "${version%%.*}" -ge 18 ] || want nodejs
}

look()
{
    missing=
    need_command make make
    need_command gcc gcc
    echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1 || want libc6-dev
    need_command pkg-config pkg-config
    need_library jansson libjansson-dev
    need_library libzstd libzstd-dev
    need_library libcrypto libssl-dev
    need_library libpcre2-8 libpcre2-dev
    need_library libutf8proc libutf8proc-dev
    need_library libcurl libcurl4-openssl-dev
    need_file /etc/ssl/certs/ca-certificates.crt ca-certificates
    for option; do
        case $option in
        --test)
            need_library cmocka libcmocka-dev
            need_command python3 python3
            python3 -c 'import jsonschema' 2>/dev/null || want python3-jsonschema
            need_command patch patch
            need_command spin spin
            need_command skopeo skopeo
            need_command openssl openssl
            need_command /usr/sbin/nginx nginx-light
            need_command docker-registry docker-registry
            need_node ;;
        --wasm)
            need_command clang-19 clang-19
            need_command wasm-ld-19 lld-19
            need_file /usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a libclang-rt-19-dev-wasm32
            need_file /usr/lib/wasm32-wasi/libc.a wasi-libc
            need_command dpkg-source dpkg-dev
            need_node ;;
        --web)
            need_command npm npm
            [ -n "${CHROMIUM:-}" ] || need_command chromium chromium ;;
        --arm)
            need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
            [ "$(uname -m)" = aarch64 ] || need_file /usr/aarch64-linux-gnu/lib/libc.a libc6-dev-arm64-cross
            need_command qemu-aarch64 qemu-user ;;
        --fuzz)
            need_command clang-19 clang-19
            need_file "/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-$(uname -m).a" libclang-rt-19-dev ;;
        *)
            echo "tools/deps.sh: $option: the options are --test, --wasm, --web, --arm and --fuzz" >&2
            exit 2 ;;
        esac
    done
}

look "$@"
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends $missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "tools/deps.sh: there is no apt-get here; please install what these Debian packages hold: $missing" >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    echo "tools/deps.sh: installing needs root, and there is no sudo. As root: apt-get update && $install" >&2
    exit 1
fi

echo "installing $missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Should one of several repositories fail in the update, the packages may still be had.
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >"$log" 2>&1
if ! $as_root env DEBIAN_FRONTEND=noninteractive $install -qq >>"$log" 2>&1; then
    cat "$log" >&2
    echo "tools/deps.sh: this failed: ${as_root:+$as_root }$install" >&2
    exit 1
fi

look "$@"
[ -z "$missing" ] && exit 0
echo "tools/deps.sh: installed, yet still not found: $missing" >&2
exit 1
