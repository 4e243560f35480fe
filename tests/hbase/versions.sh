#!/usr/bin/env bash
# The store over HBase's own RPC on several versions of HBase: the conformance suite and scans; then OxTSDB beside OpenTSDB.
#
#   versions.sh [VERSION...]    without it, those of the table in docs/guide/hbase.md
#
# Ends with a line for each version. The jars are from Maven Central, which has all parts of few versions.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh

cargo=(cargo test --workspace --locked)

if [ "${1:-}" = run ]; then
  # One test needs a Thrift server, to show what an error says of its address. HBase 1 is found by ZooKeeper only, and the rig's program
  # that creates tables, which the queries need, is not for it.
  stores=(--skip errors_name_the_server) opentsdb=(differential::)
  if [[ "$OXTSDB_RIG_HBASE_VERSION" = 1.* ]]; then
    stores+=(--skip masters_are_a_registry) opentsdb=()
  fi
  "${cargo[@]}" --test stores -- --ignored --test-threads=2 "${stores[@]}" hbase_native::
  # Points, names and queries of both servers.
  "${cargo[@]}" --test beside_opentsdb -- --test-threads=2 points:: uids:: "${opentsdb[@]}"
  exit
fi

[ "$#" != 0 ] || set -- 1.7.2 2.4.18 2.6.1 3.0.0-alpha-4
export OXTSDB_INTEROP_POINTS="${OXTSDB_INTEROP_POINTS:-10000}" OXTSDB_INTEROP_NAMES="${OXTSDB_INTEROP_NAMES:-2000}"
export OXTSDB_DIFFERENTIAL_QUERIES="${OXTSDB_DIFFERENTIAL_QUERIES:-200}" OXTSDB_RIG_SHORT_LIVED="${OXTSDB_RIG_SHORT_LIVED:-all}"
"${cargo[@]}" --test stores --test beside_opentsdb "${PROGRAMS[@]}" --no-run
results=() status=0
for version in "$@"; do
  echo "HBase $version"
  result=passed
  OXTSDB_RIG_HBASE_VERSION="$version" tests/hbase/rig.sh run --gateways 0 --no-opentsdb tests/hbase/versions.sh run || result=failed
  [ "$result" = passed ] || status=1
  results+=("HBase $version: $result")
done
printf '%s\n' "${results[@]}"
exit "$status"
