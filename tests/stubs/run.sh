#!/usr/bin/env bash
# The contract works outside Rust: generated stubs against two live servers. README.md lists the checks.
#
#   run.sh                 all languages
#   run.sh LANGUAGE...     python, go, java, connect-es, grpc-js
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
[ $# -gt 0 ] || set -- python go java connect-es grpc-js

folder=$(mktemp -d)
first= second=
end_servers() {
  for SERVER in $first $second; do
    end_server
  done
  first= second=
}
trap 'end_servers; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# Generates the stubs of a language and builds its program.
build() {
  case "$1" in
    python) ./generate.sh python && need_python python/requirements.txt ;;
    go) ./generate.sh go && (cd go && go vet ./... && go build -o gen/check .) ;;
    # Compiles the program with the stubs.
    java) ./generate.sh java && JARS= && need_jars java/pom.xml ;;
    connect-es | grpc-js) ./generate.sh typescript && (cd typescript && node_modules/.bin/tsc) ;;
    *)
      echo "no stubs for '$1'" >&2
      exit 2
      ;;
  esac
}

# Runs its program with the arguments of README.md.
run() {
  local language="$1"
  shift
  case "$language" in
    python) timeout 120 "$PYTHON" python/check.py "$@" ;;
    go) (cd go && timeout 120 gen/check "$@") ;;
    java) timeout 120 java -Doxtsdb.service_config=../../proto/service_config.json \
      -cp "java/target/classes:$JARS/*" dev.oxtsdb.stubs.Check "$@" ;;
    connect-es | grpc-js) timeout 120 node typescript/dist/src/check.js "$language" "$@" ../../proto/service_config.json ;;
  esac
}

need_tsdb
for language in "$@"; do
  build "$language"
  start_server "$folder/$language-1" --stream-grace-seconds 1
  first=$SERVER data=127.0.0.1:$DATA_PORT uid=127.0.0.1:$UID_PORT
  start_server "$folder/$language-2"
  second=$SERVER second_http=$HTTP_PORT
  run "$language" "$data" "$uid" "127.0.0.1:$DATA_PORT" "$first"
  SERVER=$first
  end_server
  start_server "$folder/$language-1"
  first=$SERVER
  python3 nothing_lost.py "$language.drain" "$HTTP_PORT" "$second_http"
  end_servers
done
