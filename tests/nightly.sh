#!/usr/bin/env bash
# What is slow and seldom fails: everything that `.ci/run` leaves out. A release runs it after `.ci/run` of the same clone.
#
#   nightly.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/parts.sh
source .ci/tools.sh
fix_seeds

part "build" 1800 cargo test --workspace --locked --no-run
[ "$failed" != 0 ] || export OXTSDB_CI_BUILT=yes
export RUST_LIB_BACKTRACE=0
# These wait for servers and for time-outs, beside all that computes.
part_beside "beside OpenTSDB on HBase" 9000 3 tests/hbase/interop.sh
part_beside "limits" 5400 3 cargo test --workspace --locked --test limits --no-fail-fast -- --include-ignored
# More than README's second command runs: each fails any operation of the disk.
part "fault histories of cells" 1800 env OXTSDB_HISTORIES=2000 cargo test --workspace --lib --locked cells::histories
part "fault histories of points" 1800 env OXTSDB_FAULTS=2000 cargo test --workspace --locked --test parts faults
part "slow end-to-end tests" 1800 cargo test --workspace --locked --test end_to_end --no-fail-fast -- --ignored
part "kills, faults and corruptions" 3600 env OXTSDB_KILLS=50 OXTSDB_FSCK_CORRUPTIONS=10000 OXTSDB_LOST_FILES=200 \
  OXTSDB_FAULT_MOMENTS=20 OXTSDB_HISTORY_OPERATIONS=15000 \
  cargo test --workspace --locked --test end_to_end --no-fail-fast -- durability fsck lost_files disk_faults uid_histories
part "dependencies" 900 .ci/deny.sh
# A link that leads nowhere is a warning of rustdoc, which nothing else runs.
part "docs of the crates" 1800 env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
part "fuzzing" 300 .ci/fuzz.sh
part "SBOM" 900 deploy/release/sbom.sh "$OXTSDB_CACHE/sbom" --features parquet
part "stubs in Rust" 120 tests/stubs/generate.sh rust
part "alerts and dashboard" 120 deploy/alerts/check.sh
part "container image" 120 deploy/container/check.sh
part "Kubernetes manifests" 600 deploy/kubernetes/check.sh
part "collectd" 600 tests/real/collectd.sh 120
part "OpenTelemetry's SDKs and InfluxDB's clients" 900 tests/real/pipelines.sh
part "Prometheus and Telegraf" 1800 tests/real/senders.sh
part "Kafka Connect" 1800 tests/real/kafka.sh
part "Flink" 1800 tests/real/flink.sh
part "Arrow in pandas, DuckDB and Polars" 900 tests/real/arrow.sh
# Every front end, queries and a crash; the figures of such a run mean nothing.
# `--tests`, for the features of the other parts.
part "build of the benchmark" 600 cargo build --locked --workspace --tests --bin oxtsdb-bench
part "benchmark, quick" 900 "$TARGET_DIR/debug/oxtsdb-bench" --quick
part "import of 1,000,000 lines" 600 tests/real/import.sh
join_parts
part_beside "the same through Thrift" 3600 3 env OXTSDB_TEST_HBASE_WAY=thrift tests/hbase/interop.sh --quick
part_beside "HBase with TLS" 1800 3 tests/hbase/tls.sh
part_beside "HBase with Kerberos" 1800 3 tests/hbase/kerberos.sh
part "faults of region servers" 1800 tests/hbase/cluster.sh
join_parts
part "versions of HBase" 3600 tests/hbase/versions.sh
# Last, as the programs have other features then.
features=(--workspace --locked --features tsdb/parquet,tsdb/text-search)
part "build with Parquet and text search, with clippy" 2400 env OXTSDB_LINT_TESTS=yes \
  RUSTC_WRAPPER="$PWD/.ci/lint-rustc" cargo test "${features[@]}" --no-run
part "Parquet and text search" 1800 cargo test "${features[@]}" --no-fail-fast -- parquet search
end_parts
