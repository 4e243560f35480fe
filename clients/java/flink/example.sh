#!/usr/bin/env bash
# A server and a Kafka broker on free ports; quotes in a topic; a job of Flink that writes them; a query.
#
#   example.sh
set -euo pipefail
cd "$(dirname "$0")"
source ../../../.ci/tools.sh
source ../kafka-connect/rig.sh

need_tsdb
need_kafka
mvn --quiet --batch-mode -Dstyle.color=never --file ../pom.xml -pl flink -am test-compile "$MAVEN_DEPENDENCY_PLUGIN:build-classpath" \
  -Dmdep.outputFile=target/classpath
folder=$(mktemp -d)
trap 'end_kafka; end_server; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

start_server "$folder/data"
start_broker "$folder"
kafka_topics --create --topic quotes >/dev/null
"${KAFKA[@]}" org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$BROKER" --topic quotes <<'QUOTES'
ACME,101.25,300,1700000000000
INIT,55.5,120,1700000000250
ACME,101.5,100,1700000001000
ACME,101,250,1700000002500
INIT,55.75,80,1700000002750
QUOTES
java --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED \
  -cp "target/test-classes:target/classes:$(cat target/classpath)" \
  dev.oxtsdb.flink.example.QuotesToOxtsdb "$BROKER" quotes "127.0.0.1:$DATA_PORT"
"$TSDB" query --target "http://127.0.0.1:$DATA_PORT" --utc 1700000000000 1700000003000 \
  'none:quote.price{symbol=*}' 'none:quote.size{symbol=*}'
