#!/usr/bin/env bash
# Real senders of other pipelines: a Prometheus that scrapes itself, InfluxDB's clients, and OpenTelemetry's SDKs for Python
# (protobuf, gRPC) and JavaScript (JSON). Every sample that Prometheus has, and every point that the others sent, is found
# by /api/query.
#
#   pipelines.sh [SECONDS]    how long Prometheus runs; 20 unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
seconds="${1:-20}"

command -v prometheus >/dev/null || need_packages prometheus
need_python "$PWD/pipelines.txt"
need_node_modules "$PWD/javascript"
need_tsdb
folder=$(mktemp -d)
prometheus=
end_prometheus() {
  [ -n "$prometheus" ] || return 0
  kill -TERM "$prometheus" 2>/dev/null || true
  wait "$prometheus" 2>/dev/null || true
  prometheus=
}
trap 'end_prometheus; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

start_server "$folder/data" --max-tags 20
"$PYTHON" check_influx.py "http://127.0.0.1:$HTTP_PORT"
"$PYTHON" check_otlp.py "http://127.0.0.1:$HTTP_PORT" "127.0.0.1:$DATA_PORT"
node javascript/check_otlp.mjs "http://127.0.0.1:$HTTP_PORT"
port=$((HTTP_PORT + 7))
cat >"$folder/prometheus.yml" <<CONFIG
scrape_configs:
  - job_name: itself
    scrape_interval: 1s
    static_configs:
      - targets: ["127.0.0.1:$port"]
remote_write:
  - url: http://127.0.0.1:$HTTP_PORT/api/v1/write
CONFIG
echo "Prometheus runs for $seconds s"
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/tsdb" --web.listen-address="127.0.0.1:$port" \
  >"$folder/prometheus.log" 2>&1 &
prometheus=$!
python3 check_prometheus.py "http://127.0.0.1:$port" "http://127.0.0.1:$HTTP_PORT" "$seconds" || {
  tail -n 20 "$folder/prometheus.log" >&2
  exit 1
}
