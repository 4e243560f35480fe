#!/usr/bin/env bash
# OxTSDB beside OpenTSDB in one run (crates/bench).
#
#   bench.sh [FLAG...]            both on one HBase: writes in turn, then queries; flags of `oxtsdb-bench hbase`, such
#                                 as --rounds 1 --steps 90
#   bench.sh queries [FLAG...]    queries on the embedded store, and on OpenTSDB with HBase
#   bench.sh assign [FLAG...]     assignments of new names, both on one HBase
#
# OpenTSDB's compaction is off: the points are older than an hour, so it would begin immediately, which it
# does not do with current points. HTTP bodies may be as large as the load's. HBase has 4 GiB, so that it does not
# flush its memory continuously.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh

if [ -z "${OXTSDB_TEST_HBASE_FOLDER:-}" ]; then
  cargo build --release --locked -p tsdb -p oxtsdb-bench
  export OXTSDB_RIG_HBASE_HEAP="${OXTSDB_RIG_HBASE_HEAP:-4g}"
  exec tests/hbase/rig.sh run --no-opentsdb tests/hbase/bench.sh "$@"
fi
tests/hbase/rig.sh tables "$OXTSDB_TEST_HBASE_FOLDER"
OXTSDB_TEST_OPENTSDB=$(tests/hbase/rig.sh opentsdb "$OXTSDB_TEST_HBASE_FOLDER" opentsdb-bench \
  tsd.storage.enable_compaction=false tsd.http.request.enable_chunked=true tsd.http.request.max_chunk=4194304)
export OXTSDB_TEST_OPENTSDB
what=hbase
case "${1:-}" in
  queries | assign)
    what=$1
    shift
    ;;
esac
"$TARGET_DIR/release/oxtsdb-bench" "$what" "$@"
