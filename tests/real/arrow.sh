#!/usr/bin/env bash
# Results in Arrow's format in pyarrow, pandas, DuckDB, Polars and nanoarrow, over HTTP and from `tsdb query`; the examples of
# docs/guide/query.md in Python; and the tests of the reader for Python, with pandas.
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh

need_tsdb
../stubs/generate.sh python
need_python "$PWD/arrow.txt"
folder=$(mktemp -d)
trap 'end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

start_server "$folder/data"
"$PYTHON" check_arrow.py "http://127.0.0.1:$HTTP_PORT" "$TSDB" "http://127.0.0.1:$DATA_PORT"
cd ../../clients/python
OXTSDB_TSDB="$TSDB" PYTHONPATH="$PWD/../../tests/stubs/python/gen" "$PYTHON" -m unittest test_reader
