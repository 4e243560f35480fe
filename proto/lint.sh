#!/usr/bin/env bash
# Checks the contract: buf's lint rules (buf.yaml), its format, that it is compatible with the released one, and that
# reference.py can print it.
#
#   lint.sh                    checks
#   lint.sh --write            formats the files, then checks
#   lint.sh --reference FILE   writes the contract as one page of Markdown
#   lint.sh --release          checks, then makes the files the released contract: when a release is cut
set -euo pipefail
folder=$PWD
cd "$(dirname "$0")"
source ../.ci/tools.sh
need_buf
command -v python3 >/dev/null || missing python3 "install Python 3.10 or newer"
# An image and not .proto files, which every tool that compiles this folder would take in.
released=released/v1.txtpb

generate_reference() {
  "$BUF" build --output -#format=json | python3 reference.py
}

case "${1:-}" in
  "" | --release) ;;
  --write) "$BUF" format --write ;;
  --reference)
    [ $# = 2 ] || {
      echo "lint.sh --reference FILE" >&2
      exit 2
    }
    # From the folder of the caller.
    file=$(cd "$folder" && realpath --canonicalize-missing -- "$2")
    mkdir -p "$(dirname "$file")"
    generate_reference >"$file"
    exit
    ;;
  *)
    echo "lint.sh [--write | --reference FILE | --release]" >&2
    exit 2
    ;;
esac
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
generate_reference >/dev/null
if [ "${1:-}" = --release ]; then
  "$BUF" build --exclude-source-info --output "$released"
fi
echo "proto: lint and format are clean, no breaking changes"
