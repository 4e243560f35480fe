#!/usr/bin/env bash
# All fuzz targets, SECONDS each (4). They run side by side, one for each core.
#
#   fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
export OXTSDB_FUZZ_SECONDS="${1:-4}"
cargo test --locked -p oxtsdb-schema --test fuzz
cargo test --locked -p data-service --lib fuzz
cargo test --locked -p tsdb --bin tsdb fuzz
