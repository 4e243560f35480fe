#!/usr/bin/env bash
# Real host metrics: collectd sends to the telnet port, and every value that its csv plug-in logged
# is found by /api/query.
#
#   collectd.sh [SECONDS]    how long collectd runs; 120 unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
seconds="${1:-120}"
host=collectd.test

need_collectd
need_tsdb
folder=$(mktemp -d)
collectd=
end_collectd() {
  [ -n "$collectd" ] || return 0
  kill -TERM "$collectd" 2>/dev/null || true
  wait "$collectd" 2>/dev/null || true
  collectd=
}
trap 'end_collectd; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# Seconds are all that write_tsdb sends, and an interval of a second can fall into one second twice;
# OpenTSDB rejects such a query unless this is set.
start_server "$folder/data" --fix-duplicates
sed -e "s|@HOST@|$host|; s|@FOLDER@|$folder|; s|@PORT@|$HTTP_PORT|" collectd.conf.in >"$folder/collectd.conf"
echo "collectd runs for $seconds s"
timeout --preserve-status "$seconds" collectd -f -C "$folder/collectd.conf" >"$folder/collectd.out" 2>&1 &
collectd=$!
wait "$collectd" || true
collectd=
# The server has read everything that collectd flushed at its end when it responds on a new connection.
if grep -i 'write_tsdb.*fail' "$folder/collectd.log"; then
  echo "collectd could not send" >&2
  exit 1
fi
python3 check_collectd.py "$folder/csv/$host" "$host" "http://127.0.0.1:$HTTP_PORT"
