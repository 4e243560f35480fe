#!/usr/bin/env bash
# The contract, stubs in other languages against a live server, writers, and the page in a browser. Needs the programs of the build
# in `dev` and runs no cargo, so that it can run beside tests.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
run() {
  local began=$SECONDS result=ok
  "$@" || {
    status=1
    result=FAILED
  }
  echo "--- $((SECONDS - began)) s  $*: $result"
}
run proto/lint.sh
run tests/stubs/run.sh python
run tests/stubs/run.sh go
run tests/stubs/run.sh java
run tests/stubs/run.sh connect-es grpc-js
run clients/test.sh
run tests/browser/run.sh
exit "$status"
