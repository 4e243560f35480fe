# A Kafka broker and Connect workers from Maven's jars, with this connector; sourced by example.sh and tests/real/kafka.sh, and for the
# broker by ../flink/example.sh and tests/real/flink.sh, after .ci/tools.sh. The caller ends what it starts: end_kafka in a trap.

CONNECTOR_FOLDER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KAFKA_RUNNING=()

# Sets KAFKA to the command that runs a class of Kafka.
need_kafka() {
  need_java
  need_jars "$CONNECTOR_FOLDER/kafka/pom.xml"
  KAFKA=(java -Xmx384m -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn
    -Dorg.slf4j.simpleLogger.log.dev.oxtsdb=info -cp "$JARS/*")
}

# Builds the connector; sets PLUGINS to the folder for plugin.path, and KAFKA.
need_connector() {
  need_kafka
  local log
  log=$(mvn --quiet --batch-mode --file "$CONNECTOR_FOLDER/../pom.xml" -pl kafka-connect -am package -DskipTests 2>&1) || {
    echo "$log" >&2
    return 1
  }
  PLUGINS=$(echo "$CONNECTOR_FOLDER"/target/oxtsdb-kafka-connect-*/)
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -gt "$end" ]; then
      echo "$what: not within the time" >&2
      return 1
    fi
    sleep 0.2
  done
}

# start_broker FOLDER: a broker with its own controller (KRaft); sets BROKER to its address.
start_broker() {
  local folder="$1" port controller
  port=$(free_port)
  controller=$(free_port)
  BROKER="127.0.0.1:$port"
  mkdir -p "$folder"
  cat >"$folder/broker.properties" <<CONFIG
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://$BROKER,CONTROLLER://127.0.0.1:$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$folder/log
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
num.partitions=2
CONFIG
  "${KAFKA[@]}" kafka.tools.StorageTool format --cluster-id oxtsdb-kafka-test-00000 --config "$folder/broker.properties" \
    >"$folder/broker.log" 2>&1
  "${KAFKA[@]}" kafka.Kafka "$folder/broker.properties" >>"$folder/broker.log" 2>&1 &
  KAFKA_RUNNING+=("$!")
  wait_for 90 "start of the broker" kafka_topics --list || {
    tail -n 20 "$folder/broker.log" >&2
    return 1
  }
}

kafka_topics() {
  "${KAFKA[@]}" org.apache.kafka.tools.TopicCommand --bootstrap-server "$BROKER" "$@"
}

# start_worker FOLDER NAME FLAG...: a worker of one cluster, with flags for its JVM; sets WORKER (its process) and CONNECT (its URL).
start_worker() {
  local folder="$1" name="$2"
  shift 2
  CONNECT="http://127.0.0.1:$(free_port)"
  cat >"$folder/$name.properties" <<CONFIG
bootstrap.servers=$BROKER
listeners=$CONNECT
group.id=connect
config.storage.topic=connect-configs
config.storage.replication.factor=1
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
offset.flush.interval.ms=2000
plugin.path=$PLUGINS
plugin.discovery=service_load
session.timeout.ms=6000
heartbeat.interval.ms=1500
scheduled.rebalance.max.delay.ms=0
consumer.session.timeout.ms=6000
consumer.heartbeat.interval.ms=1500
CONFIG
  "${KAFKA[@]}" "$@" org.apache.kafka.connect.cli.ConnectDistributed "$folder/$name.properties" >>"$folder/$name.log" 2>&1 &
  WORKER=$!
  KAFKA_RUNNING+=("$WORKER")
  wait_for 120 "start of worker $name" curl -sf "$CONNECT/connectors" || {
    tail -n 20 "$folder/$name.log" >&2
    return 1
  }
}

# start_connector NAME: with the configuration (JSON) of the standard input.
start_connector() {
  curl -sSf -X PUT -H 'Content-Type: application/json' --data-binary @- "$CONNECT/connectors/$1/config" >/dev/null
}

# kill_now PROCESS: of a worker or of the server.
kill_now() {
  kill -KILL "$1"
  wait "$1" 2>/dev/null || true
}

# Ends workers, then the broker.
end_kafka() {
  local at
  for ((at = ${#KAFKA_RUNNING[@]} - 1; at >= 0; at--)); do
    # A worker that still commits offsets has no use for them.
    end_process "${KAFKA_RUNNING[at]}" 10
  done
  KAFKA_RUNNING=()
}
