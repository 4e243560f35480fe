#!/usr/bin/env bash
# The Kafka connector with a real broker, two Connect workers and a server: records of all forms, some bad, while a worker and
# the server are killed (SIGKILL). Each good record is stored, exact, and each bad one is in the dead-letter queue. Then its example.
#
#   kafka.sh [RECORDS]    records of each form and phase; 6000 unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
source ../../clients/java/kafka-connect/rig.sh
records="${1:-6000}"

need_python "$PWD/kafka/requirements.txt"
need_tsdb
need_connector
need_jars "$PWD/kafka/pom.xml"
folder=$(mktemp -d)
registry= producer=
trap 'kill $registry $producer 2>/dev/null || true; end_kafka; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
failed() {
  echo "$1" >&2
  tail -n 30 "$folder"/*.log >&2
  exit 1
}
check=("$PYTHON" kafka/check.py)
# wait_stored POINTS
wait_stored() {
  wait_for 180 "$1 stored points" "${check[@]}" stored "$server" "$1" || failed "too few points"
}

# kill_server TEXT: until the second worker logs the text.
kill_server() {
  kill_now "$SERVER"
  : >"$folder/second.log"
  wait_for 90 "$1" grep -q "$1" "$folder/second.log" || failed "the worker has not noticed"
}
# produce PHASE: in the background; sets producer.
produce() {
  "${check[@]}" produce "$BROKER" "$((records * $1))" "$((records * ($1 + 1)))" &
  producer=$!
}
end_producer() {
  wait "$producer"
  producer=
}

# The converter of Avro, as a plugin with the manifest that its author left out, and the registry of its schema.
avro="$folder/plugins/avro"
mkdir -p "$avro/META-INF/services"
ln -s "$JARS"/*.jar "$avro"
echo io.apicurio.registry.utils.converter.AvroConverter >"$avro/META-INF/services/org.apache.kafka.connect.storage.Converter"
jar --create --file "$avro/manifest.jar" -C "$avro" META-INF
PLUGINS="$PLUGINS,$folder/plugins"
registry_port=$(free_port)
"${check[@]}" registry "$registry_port" >"$folder/registry.log" 2>&1 &
registry=$!

start_server "$folder/data"
server="http://127.0.0.1:$HTTP_PORT"
start_broker "$folder"
start_worker "$folder" first
first="$WORKER"
jmx_port=$(free_port)
start_worker "$folder" second "-Dcom.sun.management.jmxremote.port=$jmx_port" -Dcom.sun.management.jmxremote.authenticate=false \
  -Dcom.sun.management.jmxremote.ssl=false -Djava.rmi.server.hostname=127.0.0.1
second="$WORKER"
"${check[@]}" configure "$CONNECT" "127.0.0.1:$DATA_PORT" "http://127.0.0.1:$registry_port"

echo "a worker is killed"
produce 0
wait_stored "$((records * 2))"
kill_now "$first"
! "${check[@]}" stored "$server" "$((records * 10))" || failed "the worker was killed too late"
end_producer

echo "the server is killed"
produce 1
wait_stored "$((records * 14))"
kill_server 'RetriableException from SinkTask'
restart_server "$folder/data"
end_producer
wait_stored "$((records * 23))"
"${KAFKA[@]}" org.apache.kafka.tools.JmxTool --jmx-url "service:jmx:rmi:///jndi/rmi://127.0.0.1:$jmx_port/jmxrmi" \
  --object-name 'dev.oxtsdb.kafka:*' --one-time --report-format properties >"$folder/metrics"
for counter in PointsWritten PointsRejected RecordsRejected CallsRetried; do
  grep -q "$counter=[1-9]" "$folder/metrics" || failed "$counter is 0: $(cat "$folder/metrics")"
done

echo "the server is killed, then a worker that has offsets to commit; another one has joined"
start_worker "$folder" third
produce 2
wait_stored "$((records * 25))"
kill_server 'offsets are not committed'
end_producer
kill_now "$second"
restart_server "$folder/data"

"${check[@]}" check "$server" "$BROKER" "$((records * 3))" || failed "points or records are missing"
"${check[@]}" strict "$CONNECT" "127.0.0.1:$DATA_PORT" "$BROKER" || failed "no failed task"
end_kafka
end_server

echo "the example"
OXTSDB_TSDB="$TSDB" ../../clients/java/kafka-connect/example.sh
