#!/usr/bin/env bash
# Everything with real parts, in order, a line each: the tests with their known example, the stubs and
# writers in other languages, collectd for two minutes, an import of a million lines, OpenTSDB on the same HBase.
#
#   run-all.sh [FOLDER]    FOLDER keeps what each part wrote; a temporary one unless given
#
# COLLECTD_SECONDS sets how long collectd runs.
set -uo pipefail
cd "$(dirname "$0")"
source ../.ci/tools.sh
logs="${1:-$(mktemp -d)}"
mkdir -p "$logs"
passed=0
failed=0

part() {
  local name="$1" began=$SECONDS log
  shift
  log="$logs/${name// /-}.log"
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "ok      $name ($((SECONDS - began)) s): $(grep -E 'checks passed|^Ran |^ok|values of|[0-9]+ passed|test result' "$log" | tail -n 1)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name ($((SECONDS - began)) s), see $log:"
    tail -n 20 "$log" | sed 's/^/        /'
  fi
}

part "build" cargo build --workspace --bins
export OXTSDB_CI_BUILT=yes
for test in known_example durability one_uid bad_input front_ends_agree contract two_processes disk_full disk_faults lost_files big_messages expressions uid_histories uid_fsck; do
  part "$test" timeout 900 cargo test --workspace --test "$test"
done
part "stubs in Python" timeout 600 stubs/run.sh python
part "stubs in Go" timeout 600 stubs/run.sh go
part "stubs in Java" timeout 600 stubs/run.sh java
part "stubs in TypeScript" timeout 600 stubs/run.sh connect-es grpc-js
part "writers in Python and Go" timeout 600 ../clients/test.sh
part "collectd" timeout 600 real/collectd.sh "${COLLECTD_SECONDS:-120}"
part "alerts and dashboard" timeout 300 ../deploy/alerts/check.sh
part "container image" timeout 300 ../deploy/container/check.sh
part "Kubernetes manifests" timeout 600 ../deploy/kubernetes/check.sh
part "import of 1,000,000 lines" timeout 900 real/import.sh
part "interop on HBase" timeout 1800 hbase/interop.sh
echo "logs are in $logs"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
