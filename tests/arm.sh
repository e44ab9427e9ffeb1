#!/bin/sh
# The programs for 64-bit ARM under qemu: every variant of the kernels gives the bits of the scalar definition there, and the digests
# of tests/test_invariance.c are the native ones, with the dot product and on a CPU without it.
#     tests/arm.sh BUILD_FOLDER
set -eu

build=$1
qemu=${QEMU_ARM:-qemu-aarch64} most=900 # seconds of one program
work=$(mktemp -d)
kernels=
trap '[ -z "$kernels" ] || kill "$kernels" 2>/dev/null; rm -rf "$work"' EXIT

# qemu is some twenty times slower than the machine: fewer blocks, and one number of threads.
export LAMINA_KERNEL_BLOCKS="${LAMINA_KERNEL_BLOCKS:-10000}" THREADS="${THREADS:-2}"

timeout $most "$qemu" -cpu max "$build/arm/tests/test_kernels" >"$work/kernels.log" 2>&1 &
kernels=$!

table() { grep -aE 'positions$|\|' | sed -E 's/^ *[a-z0-9-]+ +[0-9]+ threads//' | sort -u; }
lines() { grep -acE "^ *$1 +$THREADS threads" "$work/arm.log" || true; } # of one variant

# same SUBJECT CPU VARIANT…: its tables (base, composed, other KV types), with a line of each variant and of no other
same()
{
    subject=$1 cpu=$2
    shift 2
    if ! SUBJECT=$subject timeout $most "$qemu" -cpu "$cpu" "$build/arm/tests/test_invariance" >"$work/arm.log" 2>&1; then
        cat "$work/arm.log" >&2
        exit 1
    fi
    SUBJECT=$subject "$build/tests/test_invariance" >"$work/native.log" 2>&1
    tables=$(grep -ac 'positions$' "$work/arm.log" || true)
    [ "$tables" -ge 2 ] || { echo "$subject on $cpu: no table" >&2; exit 1; }
    for variant; do
        [ "$(lines "$variant")" -eq "$tables" ] || { echo "$subject on $cpu: no lines of $variant" >&2; exit 1; }
    done
    [ "$(lines '[a-z0-9-]+')" -eq $((tables * $#)) ] || { echo "$subject on $cpu: more than $*" >&2; exit 1; }
    table <"$work/native.log" >"$work/native.txt"
    table <"$work/arm.log" >"$work/arm.txt"
    if ! cmp -s "$work/native.txt" "$work/arm.txt"; then
        echo "$subject on $cpu: the table differs from the native one:" >&2
        diff "$work/native.txt" "$work/arm.txt" >&2
        exit 1
    fi
    echo "$tables tables of $subject on $cpu: $* as native"
}

same "llama K mix" max scalar neon neon-dotprod
same "gemma3 bf16" max scalar neon neon-dotprod
same "llama f32" cortex-a57 scalar neon

if ! wait "$kernels"; then
    kernels=
    cat "$work/kernels.log" >&2
    exit 1
fi
kernels=
if grep 'not checked' "$work/kernels.log" >&2; then exit 1; fi
grep '^ok ' "$work/kernels.log"
