#!/bin/sh
# Runs test programs and the checks that need no program of their own, and counts:
#     tools/run_tests.sh BUILD_FOLDER PROGRAM…
# Prints a line a program, the whole output of one that fails, and last "N passed, N failed".
set -u

build=$1
shift
passed=0 failed=0 skipped=0
log=$build/test.log
failures=

# The tests that the log calls so; cmocka names each again in its summary.
named() { grep -a "^\[  $1 *\] [^0-9]" "$log" | sort -u; }

# one NAME COMMAND…: a program that counts its own tests as cmocka does, or one check.
one()
{
    name=$1
    shift
    start=$(date +%s)
    "$@" >"$log" 2>&1
    status=$?
    seconds=$(($(date +%s) - start))
    ok=$(grep -a -c '^\[       OK \]' "$log")
    bad=$(named FAILED | wc -l)
    skips=$(named SKIPPED | wc -l)
    if [ "$ok" -eq 0 ] && [ "$bad" -eq 0 ]; then
        [ $status -eq 0 ] && ok=1 || bad=1
    elif [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1 # died between tests, or a sanitizer spoke at the end
    fi
    passed=$((passed + ok)) skipped=$((skipped + skips))
    if [ "$bad" -ne 0 ]; then
        failed=$((failed + bad))
        failures="$failures $name"
        cat "$log"
        printf 'FAILED  %-28s %4s s\n' "$name" "$seconds"
    else
        printf 'ok      %-28s %4s tests %4s s\n' "$name" "$ok" "$seconds"
        named SKIPPED | sed "s/^/        /"
    fi
}

# Sanitizers make test_invariance some twenty times slower: one base of its five is enough for them.
case $build in *asan | *tsan) export SUBJECT="llama K mix" ;; esac

# Beside a program, the arguments that it wants, if any: a mutate_X has its seeds there.
for program; do one "${program##*/}" "$program" $(cat "$program.seeds" 2>/dev/null); done

case $build in
*asan | *tsan) ;; # the checks below do not depend on the sanitizer
*)
    one layers python3 tools/check_layers.py
    one error-codes python3 tools/check_codes.py
    one docs python3 tools/check_docs.py "$build"
    one mutants-apply tools/mutants.sh --check
    one no-fma tools/check_fma.sh "$build/liblamina.a"
    one no-fma-arm env OBJDUMP=aarch64-linux-gnu-objdump tools/check_fma.sh "$build/arm/liblamina.a"
    one arm tests/arm.sh "$build"
    one wasm-kernels tests/wasm_kernels.sh "$build"
    one wasm-digests tests/wasm_digests.sh "$build"
    one wasm-memory tests/wasm_memory.sh "$build"
    one command-line tests/cli.sh "$build"
    one models tests/models.sh "$build"
    one pull python3 tests/net/pull.py "$build"
    one registry python3 tests/net/registry.py "$build"
    one install tests/install.sh "$build"
    ;;
esac

[ -z "$failures" ] || echo "failed:$failures"
echo "$passed passed, $failed failed${skipped:+, $skipped skipped}"
[ "$failed" -eq 0 ]
