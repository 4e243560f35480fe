#!/usr/bin/env bash
# OpenTelemetry's SDKs, configured by their variables: over gRPC and HTTP, cumulative and delta, compressed. Each data point that was
# exported is found by /api/query (check.py).
#
#   run.sh SERVER DATA_SERVICE [LANGUAGE...]    URLs; go, java, python and javascript unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../../.ci/tools.sh
server="$1" data_service="$2"
shift 2
[ $# -gt 0 ] || set -- go java python javascript

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

prepare() {
  case "$1" in
    go)
      command -v go >/dev/null || missing go "install Go 1.26 or newer"
      (cd go && go build -o "$folder/send" .)
      ;;
    java)
      need_java
      need_jars "$PWD/java/pom.xml"
      javac -cp "$JARS/*" -d "$folder" java/Send.java
      ;;
    python) need_python "$PWD/../pipelines.txt" ;;
    javascript) need_node_modules "$PWD/javascript" ;;
    *)
      echo "no sender in '$1'" >&2
      exit 2
      ;;
  esac
}

# The sender of a language, with the prefix of its metrics.
send() {
  case "$1" in
    go) "$folder/send" "$2" ;;
    java) java -cp "$folder:$JARS/*" Send "$2" ;;
    python) "$PYTHON" send.py "$2" ;;
    javascript) node javascript/send.mjs "$2" ;;
  esac
}

protocols_of() {
  case "$1" in
    javascript) echo http/json ;;
    *) echo http/protobuf grpc ;;
  esac
}

export OTEL_SERVICE_NAME=sender OTEL_RESOURCE_ATTRIBUTES=service.namespace=real,host.name=here,deployment=test
export OTEL_EXPORTER_OTLP_METRICS_COMPRESSION=gzip OTEL_METRICS_EXPORTER=otlp OTEL_TRACES_EXPORTER=none OTEL_LOGS_EXPORTER=none
# Flushes and the shutdown export, the timer never does.
export OTEL_METRIC_EXPORT_INTERVAL=3600000

for language in "$@"; do
  prepare "$language"
  for protocol in $(protocols_of "$language"); do
    for temporality in cumulative delta; do
      export OTEL_EXPORTER_OTLP_METRICS_PROTOCOL="$protocol"
      export OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="$temporality"
      if [ "$protocol" = grpc ]; then
        export OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="$data_service"
      else
        export OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="$server/v1/metrics"
      fi
      # One of the two also names the attributes of the resource that are tags.
      if [ "$temporality" = delta ]; then
        resource=service.name,deployment
        export OTEL_EXPORTER_OTLP_METRICS_HEADERS="oxtsdb-resource=${resource/,/%2C}"
      else
        resource=service.namespace,service.name,service.instance.id,host.name
        unset OTEL_EXPORTER_OTLP_METRICS_HEADERS
      fi
      name="$language.${protocol%/*}.$temporality"
      send "$language" "$name" >"$folder/$name"
      python3 check.py "$server" "$name" "$temporality" "$resource" <"$folder/$name"
    done
  done
done
