#!/usr/bin/env bash
# Imports a file of 1,000,000 lines, some of them invalid, and runs queries whose results the
# generating script knows.
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh

need_tsdb
folder=$(mktemp -d)
trap 'end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

python3 import_file.py write "$folder/points.txt"
start_server "$folder/data"
status=0
time timeout 600 "$TSDB" import --target "http://127.0.0.1:$DATA_PORT" --errors "$folder/errors" \
  "$folder/points.txt" || status=$?
# Status 1: lines were rejected, and everything else is imported.
if [ "$status" != 1 ]; then
  echo "tsdb import ended with $status, expected 1" >&2
  exit 1
fi
python3 import_file.py check "http://127.0.0.1:$HTTP_PORT" "$folder/errors"
