#!/usr/bin/env bash
# OxTSDB beside OpenTSDB on one HBase, and behind Envoy: all tests that need these.
#
#   interop.sh [--quick] [ARGUMENT...]    --quick: fewer tests, and smaller ones; other arguments are for the test program: a
#                                         test's name, --nocapture, …
#
# OXTSDB_INTEROP_POINTS (100,000), OXTSDB_INTEROP_NAMES (20,000), OXTSDB_INTEROP_KILLS (50), OXTSDB_INTEROP_COPY_CELLS (300,000),
# OXTSDB_INTEROP_FORMAT_QUERIES (300), OXTSDB_INTEROP_HISTOGRAMS (1,000), OXTSDB_INTEROP_HISTOGRAM_QUERIES (300),
# OXTSDB_INTEROP_ROLLUPS (1,000), OXTSDB_INTEROP_ROLLUP_QUERIES (200), OXTSDB_DIFFERENTIAL_QUERIES (10,000)
# OXTSDB_DIFFERENTIAL_EXPRESSIONS (1,000 of each kind), OXTSDB_INTEROP_FSCK_CORRUPTIONS (2,000) and OXTSDB_ENVOY_RESTARTS (100)
# set their sizes. OxTSDB reaches HBase over its own RPC, or, with OXTSDB_TEST_HBASE_WAY=thrift, through the Thrift server; tests of
# gateways use these in any case.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh

# The stores and the UID service on HBase, then OxTSDB beside OpenTSDB. `--workspace` for the features of all other builds.
cargo=(cargo test --workspace --locked)
stores=(--test stores --test uids)
opentsdb=(--test beside_opentsdb)

if [ "${1:-}" = run ]; then
  shift
  status=0
  case "${1:-}" in
    "" | --skip) "${cargo[@]}" "${stores[@]}" --no-fail-fast -- --ignored --test-threads=3 --skip hbase_kerberos hbase || status=$? ;;
  esac
  # Three at a time on two cores, as each waits for servers; each starts an OpenTSDB or two. `cluster.sh` runs the tests of
  # several region servers.
  "${cargo[@]}" "${opentsdb[@]}" -- --test-threads=3 --skip cluster:: "$@" || status=$?
  exit "$status"
fi

if [ "${1:-}" = --quick ]; then
  shift
  export OXTSDB_INTEROP_POINTS="${OXTSDB_INTEROP_POINTS:-10000}" OXTSDB_INTEROP_NAMES="${OXTSDB_INTEROP_NAMES:-2000}"
  export OXTSDB_DIFFERENTIAL_QUERIES="${OXTSDB_DIFFERENTIAL_QUERIES:-600}"
  export OXTSDB_DIFFERENTIAL_EXPRESSIONS="${OXTSDB_DIFFERENTIAL_EXPRESSIONS:-60}"
  export OXTSDB_INTEROP_FSCK_CORRUPTIONS="${OXTSDB_INTEROP_FSCK_CORRUPTIONS:-100}"
  export OXTSDB_INTEROP_COPY_CELLS="${OXTSDB_INTEROP_COPY_CELLS:-100000}" OXTSDB_INTEROP_KILLS="${OXTSDB_INTEROP_KILLS:-5}"
  export OXTSDB_INTEROP_HISTOGRAMS="${OXTSDB_INTEROP_HISTOGRAMS:-300}" OXTSDB_INTEROP_HISTOGRAM_QUERIES="${OXTSDB_INTEROP_HISTOGRAM_QUERIES:-100}"
  # Each kind of cell, query and lock has one test here; the slow ones repeat them in other formats and layouts, and with failures.
  set -- "$@" --skip copies:: --skip formats:: --skip histories:: --skip outages:: --skip rollups:: --skip surfaces::placed:: \
    --skip metasync_of_one --skip salted_rows --skip salt_and_wide_uids --skip other_layouts --skip when_replicas_are_killed \
    --skip points_that_were_not_deleted --skip graphs:: --skip salt_and_the_index --skip framed_gateway --skip names_renamed \
    --skip rolling_restarts
  export OXTSDB_RIG_SHORT_LIVED="${OXTSDB_RIG_SHORT_LIVED:-all}"
fi
export OXTSDB_RIG_SHORT_LIVED="${OXTSDB_RIG_SHORT_LIVED:-opentsdb}"
need_envoy
need_gnuplot
export OXTSDB_ENVOY="$ENVOY"
# Before the JVMs take their share of the machine.
"${cargo[@]}" "${stores[@]}" "${opentsdb[@]}" "${PROGRAMS[@]}" --no-run
exec tests/hbase/rig.sh run --no-opentsdb tests/hbase/interop.sh run "$@"
