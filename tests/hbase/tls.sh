#!/usr/bin/env bash
# The store over HBase's own RPC on an HBase with TLS, without and with certificates of clients; then the commands `tables` and `doctor`.
#
#   tls.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh

cargo=(cargo test --workspace --locked --test stores)

if [ "${1:-}" = run ]; then
  "${cargo[@]}" -- --ignored --test-threads=2 hbase_native::
  flags=(--hbase-quorum "$OXTSDB_TEST_HBASE_QUORUM" --hbase-tls --hbase-tls-ca "$OXTSDB_TEST_HBASE_TLS/ca.pem")
  if [ -e "$OXTSDB_TEST_HBASE_TLS/client.pem" ]; then
    flags+=(--hbase-tls-certificate "$OXTSDB_TEST_HBASE_TLS/client.pem" --hbase-tls-key "$OXTSDB_TEST_HBASE_TLS/client.key")
  fi
  "$TARGET_DIR/debug/tsdb" tables create "${flags[@]}"
  findings=$("$TARGET_DIR/debug/tsdb" doctor --only-hbase --all "${flags[@]}")
  echo "$findings"
  [[ "$findings" == *"certificate of CN=server, issued by CN=rig"* ]]
  exit
fi

"${cargo[@]}" "${PROGRAMS[@]}" --no-run
for mode in server mutual; do
  echo "HBase with TLS: $mode"
  tests/hbase/rig.sh run --tls "$mode" --no-opentsdb tests/hbase/tls.sh run
done
