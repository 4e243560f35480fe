#!/usr/bin/env bash
# The contract works outside Rust: generated stubs in Python and Go against a live server.
#
#   run.sh            both
#   run.sh python     one of them
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
[ $# -gt 0 ] || set -- python go

./generate.sh "$@"
need_python python/requirements.txt
need_tsdb
folder=$(mktemp -d)
trap 'end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

for language in "$@"; do
  start_server "$folder/$language"
  case "$language" in
    python) (cd python && timeout 120 "$PYTHON" check.py "127.0.0.1:$DATA_PORT" "127.0.0.1:$UID_PORT") ;;
    go) (cd go && go vet ./... && timeout 120 go run . "127.0.0.1:$DATA_PORT" "127.0.0.1:$UID_PORT") ;;
    *)
      echo "no stubs for '$language'" >&2
      exit 2
      ;;
  esac
  end_server
done
