#!/usr/bin/env bash
# Writes the SBOM of each shipped program, CycloneDX 1.5 in JSON, and checks it: PROGRAM.cdx.json for tsdb, data-service, uid-service.
#
#   sbom.sh FOLDER [--features parquet]… [--target aarch64-unknown-linux-gnu]    as the programs are built
#
# The same sources give the same bytes: the time is that of the commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
folder=$(mkdir -p "${1:?a folder for the files}" && cd "$1" && pwd)
shift
cd "$(dirname "$0")/../.."
target=x86_64-unknown-linux-gnu
features=()
while [ $# -gt 0 ]; do
  case "$1" in
    --target) target="${2:?--target needs a triple}" ;;
    --features) features+=("${2:?--features needs a name}") ;;
    *) echo "unknown option $1" >&2 && exit 2 ;;
  esac
  shift 2
done

source .ci/tools.sh
need_cargo_cyclonedx
need_python deploy/release/requirements.txt
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

# cargo-cyclonedx writes beside each Cargo.toml, so it gets a copy of what cargo reads of the sources.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z -- '*.toml' Cargo.lock '*.rs' | xargs -0 cp --parents --target-directory "$copy"
for program in tsdb data-service uid-service; do
  manifest=$(find "$copy" -path "*/$program/Cargo.toml")
  # Of the features, those that this program has.
  of_program=()
  for feature in "${features[@]}"; do
    ! grep -q "^$feature = \[" "$manifest" || of_program+=(--features "$feature")
  done
  "$CARGO_CYCLONEDX" cyclonedx --quiet --manifest-path "$manifest" --format json --spec-version 1.5 --describe binaries \
    --no-build-deps --target "$target" "${of_program[@]}"
  # Identifiers of the workspace's crates are paths.
  sed "s|file://$copy|file:///oxtsdb|g" "$(dirname "$manifest")/${program}_bin.cdx.json" >"$folder/$program.cdx.json"
  cargo tree --locked --package "$program" --edges normal --target "$target" "${of_program[@]}" --prefix none --format '{p}' |
    "$PYTHON" deploy/release/check_sbom.py "$folder/$program.cdx.json"
done
