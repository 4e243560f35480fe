#!/usr/bin/env bash
# All fuzz targets, SECONDS each (4). They run side by side, one for each core.
#
#   fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
export OXTSDB_FUZZ_SECONDS="${1:-4}"
# With the features of the whole workspace, so that programs that `cargo test --workspace` has built are not built again.
cargo test --locked --workspace --test fuzz
cargo test --locked --workspace --lib fuzz
