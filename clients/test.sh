#!/usr/bin/env bash
# Tests the writers, readers and connectors, and runs the examples of their READMEs, against live servers.
#
#   test.sh [LANGUAGE...]    python, go, java; all unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../.ci/tools.sh
[ $# -gt 0 ] || set -- python go java

need_tsdb
export OXTSDB_TSDB="$TSDB"
for language in "$@"; do
  case "$language" in
    python)
      ../tests/stubs/generate.sh python
      need_python ../tests/stubs/python/requirements.txt
      (cd python && PYTHONPATH="$PWD/../../tests/stubs/python/gen" timeout 120 "$PYTHON" -m unittest test_writer test_reader)
      ;;
    go)
      ../tests/stubs/generate.sh go
      (cd go && go vet . && timeout 120 go test -count=1 .)
      ;;
    java)
      need_java
      timeout 300 mvn --batch-mode --quiet --file java/pom.xml --projects writer,reader,kafka-connect --also-make test
      ;;
    *)
      echo "no writer for '$language'" >&2
      exit 2
      ;;
  esac
done
