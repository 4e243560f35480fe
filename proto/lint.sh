#!/usr/bin/env bash
# Checks the contract: buf's lint rules (buf.yaml), its format, that it is compatible with the released one, and that
# docs/contract.md is its reference.
#
#   lint.sh              checks
#   lint.sh --write      formats the files and writes docs/contract.md
#   lint.sh --release    checks, then makes the files the released contract: when a release is cut
set -euo pipefail
cd "$(dirname "$0")"
source ../.ci/tools.sh
need_buf
command -v python3 >/dev/null || missing python3 "install Python 3.10 or newer"
reference=../docs/contract.md
# An image and not .proto files, which every tool that compiles this folder would take in.
released=released/v1.txtpb

generate_reference() {
  "$BUF" build --output -#format=json | python3 reference.py
}

if [ "${1:-}" = --write ]; then
  "$BUF" format --write
  generate_reference >"$reference"
fi
"$BUF" lint
"$BUF" format --diff --exit-code
if ! "$BUF" breaking --against "$released"; then
  cat >&2 <<'MESSAGE'
proto: the changes above break clients of the released contract (proto/released/v1.txtpb).
  - Additions (a new field, enum value, message, method or file) pass this check without further steps.
  - Keep removed or renamed fields and values; mark them `[deprecated = true]` and add the new one beside them.
  - A change that cannot be compatible belongs in a new package, for example oxtsdb.data.v2.
When a release is cut, `proto/lint.sh --release` writes the released contract anew; commit it with the release.
MESSAGE
  exit 1
fi
if ! generate_reference | diff --unified=0 "$reference" -; then
  echo "docs/contract.md is not what the files in proto/ say; run proto/lint.sh --write and commit it" >&2
  exit 1
fi
if [ "${1:-}" = --release ]; then
  "$BUF" build --exclude-source-info --output "$released"
fi
echo "proto: lint and format are clean, no breaking changes, docs/contract.md is up to date"
