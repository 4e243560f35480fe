#!/usr/bin/env bash
# The store over HBase's own RPC on an HBase with Kerberos, with each hbase.rpc.protection: the commands `tables` and `doctor`, points
# that are written and read before and after tickets have expired, and what is refused.
#
#   kerberos.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh

cargo=(cargo test --workspace --locked --test stores)

# fails TEXT COMMAND...: the command fails, and its output has the text.
fails() {
  local text="$1" output
  shift
  if output=$("$@" 2>&1); then
    echo "succeeded: $*" >&2
    return 1
  fi
  if [[ "$output" != *"$text"* ]]; then
    printf '%s\nexpected: %s\n' "$output" "$text" >&2
    return 1
  fi
  echo "refused: $text"
}

# point VALUE: writes a point of a time of its own, and reads it.
point() {
  local time=$((1700000000 + $1))
  curl -sSf "http://127.0.0.1:$HTTP_PORT/api/put?details" --json \
    "{\"metric\":\"kerberos\",\"timestamp\":$time,\"value\":$1,\"tags\":{\"host\":\"a\"}}" | grep -q '"success":1'
  curl -sSf "http://127.0.0.1:$HTTP_PORT/api/query?start=$time&end=$((time + 1))&m=sum:kerberos" | grep -q "\"$time\":$1"
}

logins() { grep -c "AS_REQ .*ISSUE.* brief@RIG.TEST" "$folder/log"; }

if [ "${1:-}" = run ]; then
  protection="$2" TSDB="$TARGET_DIR/debug/tsdb" folder="$OXTSDB_TEST_HBASE_KERBEROS"
  kdc=$(cat "$folder/address")
  hbase=(--hbase-quorum "$OXTSDB_TEST_HBASE_QUORUM")
  # as NAME: sets the flags of a client.
  as() { client=(--hbase-kerberos-principal "$1@RIG.TEST" --hbase-kerberos-keytab "$folder/$1.keytab"); }
  doctor=("$TSDB" doctor --only-hbase --all --hbase-request-timeout-ms 3000 "${hbase[@]}")

  "${cargo[@]}" -- --ignored --test-threads=2 hbase_native:: hbase_kerberos::

  as oxtsdb
  "$TSDB" tables create "${hbase[@]}" "${client[@]}" --hbase-kerberos-kdc "$kdc"
  # The KDC of krb5.conf.
  findings=$(KRB5_CONFIG="$folder/krb5.conf" "${doctor[@]}" "${client[@]}")
  echo "$findings"
  [[ "$findings" == *"the server is \`hbase/localhost@RIG.TEST\`; protection: $protection"* ]]
  [[ "$findings" == *"HBase knows the client as \`oxtsdb@RIG.TEST\`"* ]]
  fails "clocks of this machine and of the KDC differ" \
    faketime -f +1h "${doctor[@]}" "${client[@]}" --hbase-kerberos-kdc "$kdc"
  fails "set --hbase-kerberos-kdc" env KRB5_CONFIG=/dev/null "${doctor[@]}" "${client[@]}"

  # Tickets of 10 seconds expire; HBase restarts, so that all connections need new ones.
  as brief
  data=$(mktemp -d)
  trap 'end_server; rm -rf "$data" "$data.log"' EXIT
  start_server "$data" --store hbase "${hbase[@]}" "${client[@]}" --hbase-kerberos-kdc "$kdc"
  point 1
  before=$(logins) expired=$((SECONDS + 11))
  tests/hbase/rig.sh kill "$OXTSDB_TEST_HBASE_FOLDER" hbase
  tests/hbase/rig.sh again "$OXTSDB_TEST_HBASE_FOLDER" hbase
  until [ "$SECONDS" -ge "$expired" ]; do sleep 0.2; done
  point 2
  after=$(logins)
  echo "logins: $before, after the tickets expired: $after"
  [ "$after" -gt "$before" ]
  exit
fi

"${cargo[@]}" "${PROGRAMS[@]}" --no-run
for protection in authentication integrity privacy; do
  echo "HBase with Kerberos: $protection"
  tests/hbase/rig.sh run --kerberos "$protection" --no-opentsdb tests/hbase/kerberos.sh run "$protection"
done
