#!/bin/sh
# The command line's cases, tests/cli/*.t: what is typed, and exactly what must come out.
#     tests/cli.sh BUILD_FOLDER [CASE_FILE…]
set -eu
cd "$(dirname "$0")/.."
exec python3 tests/cli/run_cases.py "$@"
