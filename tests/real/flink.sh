#!/usr/bin/env bash
# The sink for Flink: jobs in a MiniCluster that read from a generator and from a real Kafka broker, and write to a real server, while
# tasks fail and the server is killed (SIGKILL). Each record is stored, once. On Flink 2.x, then the same classes on 1.20. Then
# the example.
#
#   flink.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh
source clients/java/kafka-connect/rig.sh

need_tsdb
need_kafka
folder=$(mktemp -d)
trap 'end_kafka; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
start_broker "$folder"
export OXTSDB_TSDB="$TSDB" OXTSDB_KAFKA_BROKER="$BROKER"
rm -rf clients/java/flink/target/surefire-reports
for profile in '' -Pflink-1.20; do
  mvn --quiet --batch-mode -Dstyle.color=never --file clients/java/pom.xml -pl flink -am test $profile \
    -Dtest='dev.oxtsdb.flink.*Test,dev.oxtsdb.flink.*IT' -Dsurefire.failIfNoSpecifiedTests=false
  echo "$(cat clients/java/flink/target/surefire-reports/*.xml | grep -c '<testcase ') tests passed${profile:+ with $profile}"
done
clients/java/flink/example.sh
