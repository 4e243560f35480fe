#!/usr/bin/env bash
# Records the responses of a real OpenTSDB to scripted requests, which `tests/recorded.rs` compares with ours.
#
#   record.sh [FILE...]    uid, annotation, tree, search, small; all of them without arguments
#
# Writes tests/testdata/recorded. Inside `rig.sh run` it uses that HBase, otherwise it starts one.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
if [ -z "${OXTSDB_TEST_HBASE_FOLDER:-}" ]; then
  exec "$here/rig.sh" run --no-opentsdb "$here/record.sh" "$@"
fi
target="$here/../testdata/recorded"
mkdir -p "$target"
PYTHONDONTWRITEBYTECODE=1 python3 "$here/record/record.py" "$here/rig.sh" "$OXTSDB_TEST_HBASE_FOLDER" "$target" "$@"
