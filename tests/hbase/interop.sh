#!/usr/bin/env bash
# OxTSDB beside OpenTSDB on one HBase, and behind Envoy: all tests that need these.
#
#   interop.sh [ARGUMENT...]    for the test programs: a test's name, --nocapture, …
#
# OXTSDB_INTEROP_POINTS (100,000), OXTSDB_INTEROP_NAMES (20,000), OXTSDB_INTEROP_KILLS (50), OXTSDB_INTEROP_COPY_CELLS (300,000),
# OXTSDB_INTEROP_FORMAT_QUERIES (300), OXTSDB_INTEROP_HISTOGRAMS (1,000), OXTSDB_INTEROP_HISTOGRAM_QUERIES (300),
# OXTSDB_INTEROP_ROLLUPS (1,000), OXTSDB_INTEROP_ROLLUP_QUERIES (200), OXTSDB_DIFFERENTIAL_QUERIES (10,000)
# OXTSDB_DIFFERENTIAL_EXPRESSIONS (1,000 of each kind), OXTSDB_INTEROP_FSCK_CORRUPTIONS (2,000) and OXTSDB_ENVOY_RESTARTS (100)
# set their sizes.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh
need_envoy
export OXTSDB_ENVOY="$ENVOY"
tests=(--workspace --locked --test hbase --test 'interop*' --test 'differential*' --test traces)
# Before the JVMs take their share of the machine.
[ -n "${OXTSDB_CI_BUILT:-}" ] || cargo build --workspace --locked --bins
cargo test "${tests[@]}" --no-run
# Two at a time: each starts an OpenTSDB or two.
exec tests/hbase/rig.sh run --no-opentsdb \
  cargo test "${tests[@]}" --no-fail-fast -- --test-threads=2 "$@"
