#!/usr/bin/env bash
# Runs one of README's two commands, read from README, as a newcomer does: in the clone, with its target folder,
# and without a variable of ours.
#
#   readme.sh serve    builds and starts the server, waits until it serves, stops it
#   readme.sh test     builds and runs all tests
set -euo pipefail
cd "$(dirname "$0")/.."

# What the caller may have set for other commands.
for variable in "${!CARGO_BUILD_@}" "${!CARGO_PROFILE_@}" "${!OXTSDB_@}" "${!PROPTEST_@}" \
  CARGO_INCREMENTAL CARGO_TARGET_DIR RUSTFLAGS RUST_BACKTRACE RUST_LIB_BACKTRACE; do
  unset "$variable"
done

# readme_command PATTERN: the line of README that begins with it, without its comment.
readme_command() {
  local command
  command=$(sed -n "s/^\($1\) *#.*/\1/p" README.md)
  [ "$(wc -l <<<"$command")" = 1 ] && [ -n "$command" ] || {
    echo "README.md has no command \`$1\`, or several" >&2
    exit 1
  }
  echo "$command"
}

case "${1:-}" in
  serve) command=$(readme_command 'cargo run --release -- serve') ;;
  test)
    command=$(readme_command 'cargo test --workspace')
    echo "$command"
    exec bash -c "exec $command"
    ;;
  *)
    echo "readme.sh serve|test" >&2
    exit 2
    ;;
esac

had_data=
[ ! -e oxtsdb-data ] || had_data=yes
log=$(mktemp)
server=
finish() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  rm -f "$log"
  # The data of a server that this script started, and nobody else's.
  [ -n "$had_data" ] || rm -rf oxtsdb-data
}
trap finish EXIT
trap 'exit 130' INT TERM

echo "$command"
# cargo replaces itself by the program that it has built, so that this is the server's process too.
bash -c "exec $command" >"$log" 2>&1 &
server=$!
# The ready line, not only a response: another server may listen on the port while this one is built.
until grep -q '^ready ' "$log"; do
  if ! kill -0 "$server" 2>/dev/null; then
    server=
    tail -n 40 "$log" >&2
    echo "the server exited before it was ready" >&2
    exit 1
  fi
  sleep 1
done
curl --silent --show-error --fail http://localhost:4242/api/version
echo
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
if [ "$status" != 0 ]; then
  tail -n 40 "$log" >&2
  echo "the server exited with $status after SIGTERM" >&2
  exit 1
fi
