#!/usr/bin/env bash
# Tests the writers, and runs the examples of their READMEs, against live servers.
#
#   test.sh [LANGUAGE...]    python, go; both unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../.ci/tools.sh
[ $# -gt 0 ] || set -- python go

need_tsdb
export OXTSDB_TSDB="$TSDB"
for language in "$@"; do
  ../tests/stubs/generate.sh "$language"
  case "$language" in
    python)
      need_python ../tests/stubs/python/requirements.txt
      (cd python && PYTHONPATH="$PWD/../../tests/stubs/python/gen" timeout 120 "$PYTHON" -m unittest test_writer)
      ;;
    go) (cd go && go vet . && timeout 120 go test -count=1 .) ;;
  esac
done
