# Processes of the rig; sourced by rig.sh, which sets FOLDER. Each is a part, with a folder in FOLDER that has
# its settings, its address and its log.

# Time for a part to become ready, seconds.
PATIENCE=120
# Processes that this run of the script launched.
LAUNCHED=()

# Prints the process id of a part that runs. A stored id could belong to another process by now; this looks for the
# command line with the part's mark.
process_of() {
  local found
  found=$(grep -lzxF -s -f - /proc/[0-9]*/cmdline <<<"-Doxtsdb.rig=$FOLDER/$1" || true)
  [ -n "$found" ] || return 0
  found=${found%%$'\n'*}
  found=${found#/proc/}
  echo "${found%/cmdline}"
}

runs() { [ -n "$(process_of "$1")" ]; }

address_of() { cat "$FOLDER/$1/address"; }

# In the order of shutdown: a part before those that it uses.
parts() {
  local part
  for part in "$FOLDER"/opentsdb* "$FOLDER"/*; do
    [ -e "$part/address" ] || continue
    case "${part##*/}" in
      hbase | server-* | zookeeper) ;;
      *) echo "${part##*/}" ;;
    esac
  done | awk '!seen[$0]++'
  for part in "$FOLDER"/server-* "$FOLDER/hbase" "$FOLDER/zookeeper"; do
    [ ! -e "$part/address" ] || echo "${part##*/}"
  done
}

has_part() {
  [ -e "$FOLDER/$1/address" ] && return
  echo "rig: $FOLDER has no part \`$1\`, it has: $(parts | tr '\n' ' ')" >&2
  return 1
}

# launch PART CLASS_PATH JAVA_ARGUMENT...
launch() {
  local part="$1" class_path="$2" flags=() package
  shift 2
  if runs "$part"; then
    echo "rig: $part runs already" >&2
    return 1
  fi
  for package in java.lang java.lang.reflect java.net java.nio java.util java.util.concurrent sun.nio.ch; do
    flags+=(--add-opens "java.base/$package=ALL-UNNAMED")
  done
  if [ -e "$FOLDER/kdc" ]; then
    flags+=(--add-opens java.security.jgss/sun.security.krb5=ALL-UNNAMED)
    flags+=("-Djava.security.krb5.conf=$FOLDER/kdc/krb5.conf")
    class_path="$FOLDER/kdc:$class_path"
  fi
  java "-Doxtsdb.rig=$FOLDER/$part" -Djava.net.preferIPv4Stack=true "${flags[@]}" \
    -cp "$class_path" "$@" </dev/null >>"$FOLDER/$part/log" 2>&1 &
  LAUNCHED+=("$!")
  # Otherwise bash prints how it ended.
  disown
  while ! runs "$part" && kill -0 "$!" 2>/dev/null; do
    sleep 0.02
  done
}

# until_ready PART CHECK...: repeats the check until it succeeds.
until_ready() {
  local part="$1" end=$((SECONDS + PATIENCE)) reason=
  shift
  until "$@"; do
    if ! runs "$part"; then
      reason="ended"
    elif [ "$SECONDS" -gt "$end" ]; then
      reason="was not ready within $PATIENCE s"
    fi
    if [ -n "$reason" ]; then
      echo "rig: $part $reason; its log ends, without stack traces, with:" >&2
      grep -Ev '^\s*at ' "$FOLDER/$part/log" | tail -n 20 >&2
      return 1
    fi
    sleep 0.2
  done
}

# end_part PART SIGNAL: sends SIGKILL if it has not exited after 30 seconds.
end_part() {
  local part="$1" signal="$2" end=$((SECONDS + 30)) process
  process=$(process_of "$part")
  [ -n "$process" ] || return 0
  kill "-$signal" "$process" 2>/dev/null || true
  # A paused process handles no signal but SIGKILL.
  kill -CONT "$process" 2>/dev/null || true
  while runs "$part"; do
    [ "$SECONDS" -le "$end" ] || kill -KILL "$process" 2>/dev/null || true
    sleep 0.05
  done
}

end_all() {
  local part
  for part in $(parts); do
    end_part "$part" "$1"
  done
}

# Prints a free port below the range of outgoing connections.
free_port() {
  local port
  while :; do
    port=$((12000 + (RANDOM * 32768 + RANDOM) % 20000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
}
