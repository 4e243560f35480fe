#!/usr/bin/env bash
# Real senders of other pipelines: a Prometheus that scrapes itself, InfluxDB's clients, and OpenTelemetry's SDKs for Go, Java,
# Python and JavaScript. Every sample that Prometheus has, and every point that the others sent, is found
# by /api/query, and by PromQL in a second Prometheus, which has no points but reads the server's: Debian's reads samples, and
# remote_read, the client of Prometheus 3, reads streamed chunks.
#
#   pipelines.sh [SECONDS]    how long Prometheus runs; 20 unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
seconds="${1:-20}"

command -v prometheus >/dev/null || need_packages prometheus
command -v go >/dev/null || missing go "install Go 1.26 or newer"
need_python "$PWD/pipelines.txt"
need_tsdb
folder=$(mktemp -d)
running=()
end_prometheus() {
  local one
  for one in "${running[@]}"; do
    kill -TERM "$one" 2>/dev/null || true
    wait "$one" 2>/dev/null || true
  done
  running=()
}
# start_prometheus NAME PORT: with the configuration of the standard input.
start_prometheus() {
  cat >"$folder/$1.yml"
  prometheus --config.file="$folder/$1.yml" --storage.tsdb.path="$folder/$1" --web.listen-address="127.0.0.1:$2" \
    >"$folder/$1.log" 2>&1 &
  running+=("$!")
}
trap 'end_prometheus; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

go build -C remote_read -o "$folder/remote_read" .
start_server "$folder/data" --max-tags 20
"$PYTHON" check_influx.py "http://127.0.0.1:$HTTP_PORT"
otlp/run.sh "http://127.0.0.1:$HTTP_PORT" "http://127.0.0.1:$DATA_PORT"
port=$((HTTP_PORT + 7))
start_prometheus writer "$port" <<CONFIG
scrape_configs:
  - job_name: itself
    scrape_interval: 1s
    static_configs:
      - targets: ["127.0.0.1:$port"]
remote_write:
  - url: http://127.0.0.1:$HTTP_PORT/api/v1/write
CONFIG
start_prometheus reader $((port + 1)) <<CONFIG
remote_read:
  - url: http://127.0.0.1:$HTTP_PORT/api/v1/read
    read_recent: true
CONFIG
echo "Prometheus runs for $seconds s"
python3 check_prometheus.py "http://127.0.0.1:$port" "http://127.0.0.1:$HTTP_PORT" "http://127.0.0.1:$((port + 1))" \
  "$folder/remote_read" "$seconds" || {
  tail -n 20 "$folder"/{writer,reader}.log >&2
  exit 1
}
