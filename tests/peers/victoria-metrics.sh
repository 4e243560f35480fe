#!/usr/bin/env bash
# OxTSDB beside VictoriaMetrics in one run (crates/bench).
#
#   victoria-metrics.sh [--cores COUNT] [FLAG...]   flags of `oxtsdb-bench peers`, such as
#                                                   --hosts 1000 --front-ends telnet --orders time,series,shuffled
#
# Both servers and the load generator run on the first COUNT cores (2). VictoriaMetrics is installed at the version in
# .ci/tools.sh. OXTSDB_VICTORIA_METRICS: a program to use instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh

cores=2
if [ "${1:-}" = --cores ]; then
  cores=${2:?--cores needs a count}
  shift 2
fi
cargo build --release --locked -p tsdb -p oxtsdb-bench
if [ -z "${OXTSDB_VICTORIA_METRICS:-}" ]; then
  need_victoria_metrics
  OXTSDB_VICTORIA_METRICS=$VICTORIA_METRICS
fi
exec taskset --cpu-list "0-$((cores - 1))" "$TARGET_DIR/release/oxtsdb-bench" peers \
  --victoria-metrics "$OXTSDB_VICTORIA_METRICS" "$@"
