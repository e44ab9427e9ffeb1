#!/bin/sh
# Proof that the tests of the promises can fail: each patch of tests/mutants breaks a copy of the program on purpose, and the test
# that it names must fail on the copy. The same tests pass on the unbroken program first, or nothing is shown.
#     tools/mutants.sh BUILD_FOLDER [NAME…]      BUILD_FOLDER holds the built library; NAME: these patches only
#     tools/mutants.sh --check                   whether every patch applies to the program as it is; seconds, nothing is built
set -eu

root=$(pwd)
limit=300 # seconds a test may take

every() { (cd tests/mutants && ls -- *.patch | sed 's/\.patch$//'); }
field() { sed -n "s/^$1: //p" "tests/mutants/$2.patch"; }

# Without fuzz: with lines around it other than the patch's, a change may land in another function.
apply() # NAME FOLDER [OPTION]
{
    patch -d "$2" -p1 -F0 -s -f ${3:+"$3"} <"tests/mutants/$1.patch" 2>&1
}

if [ "$1" = --check ]; then
    bad=0
    for name in $(every); do
        for wanted in Promise Broken Test; do
            [ -n "$(field $wanted "$name")" ] || { echo "tests/mutants/$name.patch: no line \"$wanted: …\""; bad=1; }
        done
        apply "$name" . --dry-run || { echo "tests/mutants/$name.patch does not apply any more"; bad=1; }
    done
    exit $bad
fi

build=$1
shift
[ -f "$build/liblamina.a" ] || { echo "$build/liblamina.a is not built" >&2; exit 2; }
[ $# -gt 0 ] || set -- $(every)
case $build in /*) ;; *) build=$root/$build ;; esac
tree=$build/mutants

# A tree with the sources, links to the data, and the objects as they are, so that make builds what a patch touches and no more.
fresh_tree()
{
    rm -rf "$tree"
    mkdir -p "$tree/build/tests"
    cp -a src include cli wasm arm fuzz examples Makefile "$tree/"
    mkdir "$tree/tests"
    cp -a tests/*.c tests/*.h tests/faults "$tree/tests/"
    ln -s "$root/data" "$root/docs" "$root/tools" "$tree/"
    ln -s "$root/tests/golden" "$root/tests/data" "$tree/tests/"
    cp -a "$build/src" "$tree/build/"
    for object in support $tests; do cp -a "$build/tests/$object".[od] "$tree/build/tests/" 2>/dev/null || :; done
    find "$tree/build" -name '*.d' -exec sed -i "s#^$build/#build/#; s#^${build#"$root"/}/#build/#" {} +
}

# The program that a test command runs, if it is one of ours: test_x in 'SUBJECT="…" test_x'.
program_of() { echo "$1" | sed -n 's/.*\(test_[a-z_0-9]*\)$/\1/p'; }

build_for()
{
    program=$(program_of "$1")
    (cd "$tree" && make B=build "build/${program:+tests/}${program:-liblamina.a}" >build/make.log 2>&1)
}

run_test() # COMMAND → status; output in $tree/build/test.log
{
    command=$(echo "$1" | sed 's#\(test_[a-z_0-9]*\)$#build/tests/\1#')
    (cd "$tree" && timeout $limit sh -c "$command" >build/test.log 2>&1)
}

why() { grep -a -m1 -o 'ERROR.*\|fused multiply-add.*' "$tree/build/test.log" | cut -c1-90; }

list=$(mktemp)
trap 'rm -f "$list"' EXIT
for name; do field Test "$name"; done | sort -u >"$list"
tests=$(while read -r test; do program_of "$test"; done <"$list" | sort -u)

bad=0
fresh_tree
while read -r test; do
    build_for "$test" || { cat "$tree/build/make.log"; exit 1; }
    if run_test "$test"; then
        printf 'unbroken                       passes %s\n' "$test"
    else
        printf 'unbroken                       FAILS  %s\n' "$test"
        tail -20 "$tree/build/test.log"
        bad=1
    fi
done <"$list"
[ $bad = 0 ] || { echo "a test that fails on the unbroken program shows nothing of a broken one" >&2; exit 1; }
# What was built for the unbroken program serves the mutants, too.
rm -rf "$build/mutants-clean"
mv "$tree" "$build/mutants-clean"

for name; do
    test=$(field Test "$name")
    rm -rf "$tree"
    cp -a "$build/mutants-clean" "$tree"
    if ! apply "$name" "$tree" >"$tree/build/patch.log"; then
        printf '%-30s does not apply any more: ' "$name"
        head -3 "$tree/build/patch.log"
        bad=1
    elif ! build_for "$test"; then
        printf '%-30s does not compile\n' "$name"
        grep -m5 error "$tree/build/make.log" || :
        bad=1
    elif run_test "$test"; then
        printf '%-30s SURVIVES %s\n' "$name" "$test"
        bad=1
    else
        printf '%-30s fails  %s: %s\n' "$name" "$test" "$(why)"
    fi
done
rm -rf "$tree" "$build/mutants-clean"
[ $bad = 0 ] && echo "every mutant fails its test"
exit $bad
