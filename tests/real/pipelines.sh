#!/usr/bin/env bash
# Real clients of other pipelines: InfluxDB's for Python, and OpenTelemetry's SDKs for Go, Java, Python and JavaScript. Every point that
# they sent is found by /api/query. The programs that send are in senders.sh.
#
#   pipelines.sh
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh

need_python "$PWD/pipelines.txt"
need_tsdb
folder=$(mktemp -d)
trap 'end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

start_server "$folder/data" --max-tags 20
"$PYTHON" check_influx.py "http://127.0.0.1:$HTTP_PORT"
otlp/run.sh "http://127.0.0.1:$HTTP_PORT" "http://127.0.0.1:$DATA_PORT"
