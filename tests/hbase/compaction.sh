#!/usr/bin/env bash
# Queries of one metric before and after `tsdb compact`, of OpenTSDB and of OxTSDB on one HBase.
#
#   compaction.sh [SERIES [HOURS [STEP_SECONDS]]]     default: 300 series, 24 hours, a point a minute
#
# HBase's major compaction runs before each series of queries, so that deleted cells do not count; OpenTSDB's own
# compaction is off. Results have to agree. Needs Python 3.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh
if [ -z "${OXTSDB_TEST_HBASE_FOLDER:-}" ]; then
  [ -n "${TSDB:-}" ] || cargo build --release --locked -p tsdb
  export OXTSDB_RIG_HBASE_HEAP="${OXTSDB_RIG_HBASE_HEAP:-4g}"
  exec tests/hbase/rig.sh run --no-opentsdb tests/hbase/compaction.sh "$@"
fi
TSDB="${TSDB:-$TARGET_DIR/release/tsdb}"
rig=tests/hbase/rig.sh
"$rig" tables "$OXTSDB_TEST_HBASE_FOLDER"
opentsdb=$("$rig" opentsdb "$OXTSDB_TEST_HBASE_FOLDER" opentsdb-compaction tsd.storage.enable_compaction=false)
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
python3 - "$folder/ports" <<'PORTS'
import socket
import sys

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(s.getsockname()[1] for s in sockets), file=open(sys.argv[1], "w"))
PORTS
read -r http data uid <"$folder/ports"
"$TSDB" serve --data-dir "$folder/data" --store hbase --hbase-thrift "$OXTSDB_TEST_HBASE" --write-form cells \
  --http-listen "127.0.0.1:$http" --data-listen "127.0.0.1:$data" --uid-listen "127.0.0.1:$uid" --admin-listen none \
  2>"$folder/log" &
server=$!
export OXTSDB_TARGET="http://127.0.0.1:$data"
for _ in $(seq 100); do
  "$TSDB" health >/dev/null 2>&1 && break
  sleep 0.2
done

python3 tests/hbase/compaction.py points "$@" | "$TSDB" import - 2>&1 | tail -n 3
queries() {
  "$rig" compact "$OXTSDB_TEST_HBASE_FOLDER" tsdb
  python3 tests/hbase/compaction.py queries "$1" "$folder/results" "$opentsdb" "127.0.0.1:$http"
}
queries "single cells"
# The least age of the cells.
sleep 6
time "$TSDB" compact --min-age 5
queries "compacted"
