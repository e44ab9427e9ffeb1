#!/bin/sh
# Fails if an object that bears results holds a fused multiply-add: numeric contract nc1 rounds every product and every sum.
# Usage: tools/check_fma.sh OBJECT_OR_ARCHIVE ...
# OBJDUMP names the disassembler of another machine's objects.
set -eu
[ $# -gt 0 ] || { echo "usage: $0 OBJECT_OR_ARCHIVE ..." >&2; exit 2; }
bad=0
for object; do
    listing=$("${OBJDUMP:-objdump}" -d --no-show-raw-insn "$object")
    case $listing in
    *'<'*'>:'*) ;;
    *) echo "$object: no code to check" >&2; bad=1; continue ;;
    esac
    # x86: vfmadd132ps, vfnmsub231sd, vfmaddsub..., vfmaddcph, v4fmaddps, FMA4; aarch64: fmadd, fmla, fmls, fnmsub, bfmlal, frecps ...
    fused=$(printf '%s\n' "$listing" | grep -E '[[:space:]](v4?fn?m(add|sub)[a-z0-9]*|fn?m(add|sub)|b?fml[as][a-z0-9]*|fn?m(ad|sb)|fnml[as]|fcmla|frecps|frsqrts|bfdot|bfmmla|vdpbf16ps)[[:space:]]' || true)
    if [ -n "$fused" ]; then
        echo "$object: fused multiply-add:" >&2
        printf '%s\n' "$fused" | head -5 >&2
        bad=1
    fi
done
[ $bad = 0 ] && echo "no fused multiply-add in $# objects"
exit $bad
