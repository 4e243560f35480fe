#!/usr/bin/env bash
# Checks the contract: buf's lint rules (buf.yaml) and its format.
set -euo pipefail
cd "$(dirname "$0")"
source ../.ci/tools.sh

need_buf
"$BUF" lint
"$BUF" format --diff --exit-code
echo "proto: lint and format are clean"
