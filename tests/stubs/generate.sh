#!/usr/bin/env bash
# Generates the stubs for Python and Go from proto/, into python/gen and go/gen (not in git).
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
proto=$(cd ../../proto && pwd)

need_python python/requirements.txt
rm -rf python/gen
mkdir -p python/gen
# shellcheck disable=SC2046 # The names have no blanks.
"$PYTHON" -m grpc_tools.protoc --proto_path="$proto" --python_out=python/gen --pyi_out=python/gen \
  --grpc_python_out=python/gen $(cd "$proto" && find oxtsdb -name '*.proto')

need_buf
need_go_plugins
rm -rf go/gen
(cd "$proto" && "$BUF" generate)
# The stubs name each other by the module that the contract gives them (go_package); go.mod beside
# this folder says which versions they are built with.
printf 'module oxtsdb.dev/proto\n\ngo 1.26.0\n' >go/gen/go.mod
echo "stubs are in tests/stubs/python/gen and tests/stubs/go/gen"
