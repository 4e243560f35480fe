#!/usr/bin/env bash
# OxTSDB on an HBase of several processes: ZooKeeper, a master and three region servers, which fail under load.
#
#   cluster.sh [ARGUMENT...]    arguments are for the test program
#
# OXTSDB_CLUSTER_FAULTS (24) is the number of faults, OXTSDB_CLUSTER_POINTS (5,000 for each fault) the least number of points. OxTSDB
# reaches HBase over its own RPC, or, with OXTSDB_TEST_HBASE_WAY=thrift, through the Thrift server.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh
test=(cargo test --workspace --locked --test beside_opentsdb)
# Before the JVMs take their share of the machine.
"${test[@]}" "${PROGRAMS[@]}" --no-run
export OXTSDB_RIG_HBASE_HEAP="${OXTSDB_RIG_HBASE_HEAP:-1g}"
exec tests/hbase/rig.sh run --no-opentsdb --region-servers 3 "${test[@]}" -- --nocapture --test-threads=1 cluster:: "$@"
