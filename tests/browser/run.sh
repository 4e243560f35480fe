#!/usr/bin/env bash
# The page at `/` in Chromium, against two live servers; the second one requires tokens. Before that, the unit tests of its modules.
#
#   run.sh [--screenshots FOLDER] [TEST...]    all tests unless parts of their names are given
#   run.sh --times                             measures how long the page and pictures take
#
# Screenshots are in FOLDER (target/browser unless given), those of failed tests too.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")"
source ../../.ci/tools.sh
screenshots="$TARGET_DIR/browser"
if [ "${1:-}" = --screenshots ]; then
  screenshots=$(cd "$here" && realpath -m "${2:?--screenshots needs a folder}")
  shift 2
fi
tests=()
for test in "$@"; do
  tests+=(-k "$test")
done
command=(python3 -m unittest "${tests[@]}" test_page)
[ "${1:-}" != --times ] || command=(python3 times.py)

command -v node >/dev/null || missing node "install Node.js 20 or newer"
need_chromium
need_tsdb
node --test --test-reporter=dot ../../crates/opentsdb-front/src/http/page/tests/

folder=$(mktemp -d)
first= second= python=
end_all() {
  if [ -n "$python" ]; then
    kill -TERM "$python" 2>/dev/null || true
    wait "$python" 2>/dev/null || true
  fi
  for SERVER in $first $second; do
    end_server
  done
}
trap 'end_all; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# No client waits for a drain here. The characters are those of markup, which names on the page must not become.
start_server "$folder/open" --lame-duck-seconds 0 --extra-name-characters " <>\"'\`()=&;:{}" --enable-realtime-ts --enable-tree-processing
first=$SERVER
export OXTSDB_BROWSER_URL="http://127.0.0.1:$HTTP_PORT"
python3 tokens.py "$folder"
start_server "$folder/guarded" --lame-duck-seconds 0 --access-policy policy.toml --jwks "$folder/jwks.json" --token-audience oxtsdb
second=$SERVER
export OXTSDB_BROWSER_GUARDED_URL="http://127.0.0.1:$HTTP_PORT"
OXTSDB_BROWSER_TOKEN=$(cat "$folder/token")
export OXTSDB_BROWSER_TOKEN
export OXTSDB_BROWSER_SCREENSHOTS="$screenshots"
mkdir -p "$screenshots"
# Beside the shell, which executes its traps only when no program is in front.
"${command[@]}" &
python=$!
wait "$python"
python=
