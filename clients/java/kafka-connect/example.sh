#!/usr/bin/env bash
# A server, a Kafka broker and a Connect worker on free ports; some records of OpenTSDB's senders; a query.
#
#   example.sh
set -euo pipefail
cd "$(dirname "$0")"
source ../../../.ci/tools.sh
source rig.sh

need_tsdb
need_connector
folder=$(mktemp -d)
trap 'end_kafka; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

start_server "$folder/data"
start_broker "$folder"
start_worker "$folder" worker
start_connector metrics <<CONFIG
{
  "connector.class": "dev.oxtsdb.kafka.OxtsdbSinkConnector",
  "topics": "metrics",
  "oxtsdb.endpoints": "127.0.0.1:$DATA_PORT",
  "record.format": "opentsdb",
  "value.converter": "org.apache.kafka.connect.storage.StringConverter",
  "errors.tolerance": "all",
  "errors.deadletterqueue.topic.name": "metrics-rejected",
  "errors.deadletterqueue.topic.replication.factor": "1",
  "errors.deadletterqueue.context.headers.enable": "true"
}
CONFIG
"${KAFKA[@]}" org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$BROKER" --topic metrics <<'RECORDS'
put sys.cpu.user 1700000000 42.5 host=web01
put sys.cpu.user 1700000010 43 host=web01
{"metric": "sys.cpu.user", "timestamp": 1700000020, "value": 44, "tags": {"host": "web01"}}
[{"metric": "sys.cpu.user", "timestamp": 1700000000, "value": 1, "tags": {"host": "web02"}}, {"metric": "sys.cpu.user", "timestamp": 1700000010, "value": 2, "tags": {"host": "web02"}}]
put sys.cpu.user yesterday 44 host=web01
RECORDS

query() {
  curl -sf "http://127.0.0.1:$HTTP_PORT/api/query?start=1699999000&end=1700001000&m=none:sys.cpu.user%7Bhost=*%7D"
}
has_all_points() {
  [ "$(query | grep -o '"17000000[0-9]*":' | wc -l)" = 5 ]
}
wait_for 90 "points of the records" has_all_points || {
  tail -n 20 "$folder"/*.log >&2
  exit 1
}
echo "stored:"
query
printf '\n\nrejected:\n'
"${KAFKA[@]}" org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$BROKER" --topic metrics-rejected --from-beginning \
  --max-messages 1 --timeout-ms 60000 --formatter-property print.headers=true 2>/dev/null | tr ',' '\n' |
  sed -n 's/^__connect.errors.exception.message:/  /p; s/^.*\t\(put .*\)/  \1/p'
