#!/usr/bin/env bash
# Checks the contract: buf's lint rules (buf.yaml), its format, and that docs/contract.md is its reference.
#
#   lint.sh            checks
#   lint.sh --write    formats the files and writes docs/contract.md
set -euo pipefail
cd "$(dirname "$0")"
source ../.ci/tools.sh
need_buf
command -v python3 >/dev/null || missing python3 "install Python 3.10 or newer"
reference=../docs/contract.md

generate_reference() {
  "$BUF" build --output -#format=json | python3 reference.py
}

if [ "${1:-}" = --write ]; then
  "$BUF" format --write
  generate_reference >"$reference"
fi
"$BUF" lint
"$BUF" format --diff --exit-code
if ! generate_reference | diff --unified=0 "$reference" -; then
  echo "docs/contract.md is not what the files in proto/ say; run proto/lint.sh --write and commit it" >&2
  exit 1
fi
echo "proto: lint and format are clean, docs/contract.md is up to date"
