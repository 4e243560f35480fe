#!/usr/bin/env bash
# Real programs that send: Prometheus, which scrapes itself, with remote write 1.0 (Debian's) and 2.0 with native histograms (a current
# one), and Telegraf. Every sample and every point that they have is found by /api/query; Prometheus' samples also by PromQL in
# a second Prometheus of the same version, which has no points but reads the server's. Of Prometheus 3, its client of remote read requires
# streamed chunks, and its messages have native histograms of its client library (prometheus/).
#
#   senders.sh [SECONDS]    how long each runs; 20 unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
seconds="${1:-20}"

command -v prometheus >/dev/null || need_packages prometheus
command -v go >/dev/null || missing go "install Go 1.26 or newer"
need_prometheus
need_telegraf
need_tsdb
folder=$(mktemp -d)
running=()
end_running() {
  local one
  for one in "${running[@]}"; do
    kill -TERM "$one" 2>/dev/null || true
    wait "$one" 2>/dev/null || true
  done
  running=()
}
trap 'end_running; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# start_prometheus PROGRAM NAME PORT OPTION...: with the configuration of the standard input.
start_prometheus() {
  local program="$1" name="$2" port="$3"
  shift 3
  cat >"$folder/$name.yml"
  "$program" --config.file="$folder/$name.yml" --storage.tsdb.path="$folder/$name" --web.listen-address="127.0.0.1:$port" "$@" \
    >"$folder/$name.log" 2>&1 &
  running+=("$!")
}

# check_prometheus VERSION PROGRAM: VERSION is that of remote write.
check_prometheus() {
  local version="$1" program="$2" port scraping= writing= options=()
  if [ "$version" = 2.0 ]; then
    scraping=$'global:\n  scrape_native_histograms: true\n  always_scrape_classic_histograms: true'
    writing=$'    protobuf_message: io.prometheus.write.v2.Request\n    send_native_histograms: true'
    # Without it, 2.0 sends no metadata.
    options=(--enable-feature=metadata-wal-records)
  fi
  start_server "$folder/data-$version" --max-tags 20
  "$folder/native_histograms" "http://127.0.0.1:$HTTP_PORT"
  port=$((HTTP_PORT + 7))
  start_prometheus "$program" "writer-$version" "$port" "${options[@]}" <<CONFIG
$scraping
scrape_configs:
  - job_name: itself
    scrape_interval: 1s
    static_configs:
      - targets: ["127.0.0.1:$port"]
  - job_name: vanishing
    scrape_interval: 1s
    static_configs:
      - targets: ["127.0.0.1:$((port + 2))"]
remote_write:
  - url: http://127.0.0.1:$HTTP_PORT/api/v1/write
$writing
CONFIG
  start_prometheus "$program" "reader-$version" $((port + 1)) <<CONFIG
remote_read:
  - url: http://127.0.0.1:$HTTP_PORT/api/v1/read
    read_recent: true
CONFIG
  echo "Prometheus runs for $seconds s"
  python3 check_prometheus.py "$version" "http://127.0.0.1:$HTTP_PORT" "$port" "$folder/remote_read" "$seconds" || {
    tail -n 20 "$folder"/{writer,reader}-"$version".log >&2
    exit 1
  }
  end_running
  end_server
}
go build -C prometheus -o "$folder/" ./...
check_prometheus 1.0 prometheus
check_prometheus 2.0 "$PROMETHEUS"

start_server "$folder/data-telegraf"
python3 check_telegraf.py known >"$folder/known"
sed -e "s|@FOLDER@|$folder|; s|@HTTP_PORT@|$HTTP_PORT|; s|@DATA_PORT@|$DATA_PORT|" telegraf.conf.in >"$folder/telegraf.conf"
echo "Telegraf runs for $seconds s"
# It flushes when it is ended.
timeout --preserve-status "$seconds" "$TELEGRAF" --config "$folder/telegraf.conf" >"$folder/telegraf.log" 2>&1
if grep ' E! ' "$folder/telegraf.log"; then
  echo "Telegraf could not send" >&2
  exit 1
fi
python3 check_telegraf.py "http://127.0.0.1:$HTTP_PORT" "$folder/record"
