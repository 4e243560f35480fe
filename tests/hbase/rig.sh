#!/usr/bin/env bash
# A real HBase with its Thrift server, and a real OpenTSDB on it, for tests and for trying things out.
#
#   rig.sh run [OPTIONS] COMMAND...      starts, runs the command, ends everything, whatever happened
#   rig.sh start FOLDER [OPTIONS]        starts and leaves it running; data and logs are in FOLDER
#   rig.sh stop FOLDER [PART]            ends everything, or one part
#   rig.sh status FOLDER                 each part: its process or `ended`, and its address
#
#   --gateways N      Thrift servers (default 1)        --no-opentsdb   HBase alone
#   --folder FOLDER   of `run`: kept; without it data and logs are temporary
#
# For what runs beside it; PART is a folder in FOLDER (hbase, thrift-1, thrift-2, opentsdb, …):
#   rig.sh kill|pause|resume FOLDER PART             SIGKILL, SIGSTOP, SIGCONT
#   rig.sh again FOLDER PART                         starts a part that has ended, as it was
#   rig.sh gateway FOLDER PART [FLAG...]             one more Thrift server with flags of its own (-f: framed)
#   rig.sh opentsdb FOLDER PART [KEY=VALUE...]       one more OpenTSDB, with settings (tsd.…)
#   rig.sh tool FOLDER PART CLASS [ARGUMENT...]      a tool of OpenTSDB (UidManager, Fsck…) with PART's settings
#   rig.sh tables FOLDER [DATA UID TREE META]        makes OpenTSDB's tables
# `gateway`, `opentsdb` and `again` print the address.
#
# `run` sets, and `start` prints: OXTSDB_TEST_HBASE=HOST:PORT[,HOST:PORT…] (the gateways),
# OXTSDB_TEST_OPENTSDB=HOST:PORT, OXTSDB_TEST_HBASE_FOLDER=FOLDER. All of it listens on 127.0.0.1, on
# ports that were free. Needed: Linux, a JDK of 11 or newer, and Maven for the first run.
set -euo pipefail
RIG="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RIG/../../.ci/tools.sh"

# How long a part may take until it answers, seconds.
PATIENCE=120

usage() {
  sed -n '2,/^set/{s/^# \{0,1\}//p}' "$RIG/rig.sh" >&2
  exit 2
}

# --- parts: each has a folder in FOLDER, with its settings, its address and its log

# The process of a part, or nothing. A number kept in a file could be another's by now; this asks who
# runs with the part's mark.
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

# In the order in which they are ended: who uses another one first.
parts() {
  local part
  for part in "$FOLDER"/opentsdb* "$FOLDER"/*; do
    part=${part##*/}
    if [ -e "$FOLDER/$part/address" ] && [ "$part" != hbase ]; then echo "$part"; fi
  done | awk '!seen[$0]++'
  [ ! -e "$FOLDER/hbase/address" ] || echo hbase
}

known() {
  [ -e "$FOLDER/$1/address" ] && return
  echo "rig: $FOLDER has no part \`$1\`, it has: $(parts | tr '\n' ' ')" >&2
  return 1
}

# launch PART CLASS_PATH JAVA_ARGUMENT...
launch() {
  local part="$1" class_path="$2" opens=() package
  shift 2
  if runs "$part"; then
    echo "rig: $part runs already" >&2
    return 1
  fi
  for package in java.lang java.lang.reflect java.net java.nio java.util java.util.concurrent sun.nio.ch; do
    opens+=(--add-opens "java.base/$package=ALL-UNNAMED")
  done
  java "-Doxtsdb.rig=$FOLDER/$part" -Djava.net.preferIPv4Stack=true "${opens[@]}" \
    -cp "$class_path" "$@" </dev/null >>"$FOLDER/$part/log" 2>&1 &
  LAUNCHED+=("$!")
  # Bash would tell how it ended.
  disown
  while ! runs "$part" && kill -0 "$!" 2>/dev/null; do
    sleep 0.02
  done
}

# until_ready PART QUESTION...: asks until the answer is yes.
until_ready() {
  local part="$1" end=$((SECONDS + PATIENCE)) reason=
  shift
  until "$@"; do
    if ! runs "$part"; then
      reason="ended"
    elif [ "$SECONDS" -gt "$end" ]; then
      reason="did not answer within $PATIENCE s"
    fi
    if [ -n "$reason" ]; then
      echo "rig: $part $reason; its log ends, without stack traces, with:" >&2
      grep -Ev '^\s*at ' "$FOLDER/$part/log" | tail -n 20 >&2
      return 1
    fi
    sleep 0.2
  done
}

# end_part PART SIGNAL: and SIGKILL if it has not ended after 30 seconds.
end_part() {
  local part="$1" signal="$2" end=$((SECONDS + 30)) process
  process=$(process_of "$part")
  [ -n "$process" ] || return 0
  kill "-$signal" "$process" 2>/dev/null || true
  # While it is paused it heeds nothing but SIGKILL.
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

# A port that nobody listens on, below the range of outgoing connections.
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

# --- HBase: ZooKeeper, master and region server in one process

start_hbase() {
  local folder="$FOLDER/hbase"
  mkdir -p "$folder"
  if [ ! -e "$folder/address" ]; then
    echo "127.0.0.1:$(free_port)" >"$folder/address"
    hbase_site "$folder" >"$folder/hbase-site.xml"
  fi
  launch hbase "$folder:$RIG/hbase:$HBASE_JARS/*" -Xmx1g org.apache.hadoop.hbase.master.HMaster start
}

# On a local disk HBase cannot promise that its log is there after a loss of power; with the raw file
# system it is at least there after `kill -9`, as the other one keeps the last bytes to itself.
hbase_site() {
  local folder="$1" key value
  echo '<configuration>'
  while read -r key value; do
    echo "  <property><name>$key</name><value>$value</value></property>"
  done <<SETTINGS
hbase.rootdir file://$folder/data
hbase.tmp.dir $folder/tmp
fs.file.impl org.apache.hadoop.fs.RawLocalFileSystem
hbase.unsafe.stream.capability.enforce false
hbase.wal.provider filesystem
hbase.cluster.distributed false
hbase.zookeeper.quorum 127.0.0.1
hbase.zookeeper.property.clientPort $(sed 's/.*://' "$folder/address")
hbase.zookeeper.property.dataDir $folder/zookeeper
hbase.master.hostname localhost
hbase.master.ipc.address 127.0.0.1
hbase.master.port $(free_port)
hbase.master.info.port -1
hbase.regionserver.hostname localhost
hbase.regionserver.ipc.address 127.0.0.1
hbase.regionserver.port $(free_port)
hbase.regionserver.info.port -1
SETTINGS
  echo '</configuration>'
}

# start_gateway PART [FLAG...]: without flags as it was, or as HBase has it.
start_gateway() {
  local part="$1" folder="$FOLDER/$1" flags
  shift
  mkdir -p "$folder"
  if [ ! -e "$folder/address" ]; then
    echo "127.0.0.1:$(free_port)" >"$folder/address"
    echo "$*" >"$folder/flags"
  fi
  read -r -a flags <"$folder/flags"
  launch "$part" "$FOLDER/hbase:$RIG/hbase:$HBASE_JARS/*" -Xmx512m \
    org.apache.hadoop.hbase.thrift.ThriftServer start -b 127.0.0.1 -p "$(sed 's/.*://' "$folder/address")" \
    --infoport -1 "${flags[@]}"
}

# Asks a gateway for the names of the tables, which it asks the master for: one call in Thrift's binary
# protocol. A gateway with flags may speak another one; it has to listen.
gateway_answers() {
  local address answer
  address=$(address_of "$1")
  if grep -q . "$FOLDER/$1/flags"; then
    (exec 3<>"/dev/tcp/${address/://}") 2>/dev/null
    return
  fi
  answer=$(
    exec 2>/dev/null 3<>"/dev/tcp/${address/://}" || exit
    printf '\x80\x01\x00\x01\x00\x00\x00\x0dgetTableNames\x00\x00\x00\x01\x00' >&3
    timeout 5 head -c 28 <&3 | od -An -v -tx1 | tr -d ' \n'
  ) || return 1
  # A reply whose first field is the result, a list; an error would be another field.
  [[ "$answer" == 80010002*0f0000 ]]
}

# --- OpenTSDB

# start_opentsdb PART [KEY=VALUE...]
start_opentsdb() {
  local part="$1" folder="$FOLDER/$1"
  shift
  mkdir -p "$folder/static" "$folder/cache"
  if [ ! -e "$folder/address" ]; then
    echo "127.0.0.1:$(free_port)" >"$folder/address"
    {
      echo "tsd.network.bind=127.0.0.1"
      echo "tsd.network.port=$(sed 's/.*://' "$folder/address")"
      echo "tsd.http.staticroot=$folder/static"
      echo "tsd.http.cachedir=$folder/cache"
      echo "tsd.storage.hbase.zk_quorum=$(address_of hbase)"
      echo "tsd.core.auto_create_metrics=true"
      # What is asked for comes last, and so it counts.
      [ "$#" = 0 ] || printf '%s\n' "$@"
    } >"$folder/opentsdb.conf"
  fi
  launch "$part" "$RIG/opentsdb:$OPENTSDB_JARS/*" -Xmx512m \
    net.opentsdb.tools.TSDMain "--config=$folder/opentsdb.conf"
}

opentsdb_answers() {
  local address line
  address=$(address_of "$1")
  (
    exec 2>/dev/null 3<>"/dev/tcp/${address/://}" || exit
    printf 'GET /api/version HTTP/1.0\r\n\r\n' >&3
    read -r -t 5 line <&3 && [[ "$line" == *" 200 "* ]]
  )
}

# create_tables DATA UID TREE META
create_tables() {
  local log="$FOLDER/hbase/tables.log"
  if ! java -Djava.net.preferIPv4Stack=true -cp "$FOLDER/hbase:$RIG/hbase:$HBASE_JARS/*" \
    "$RIG/CreateTables.java" "$@" >"$log" 2>&1; then
    echo "rig: the tables $* could not be made:" >&2
    tail -n 20 "$log" >&2
    return 1
  fi
}

# --- all of it

# Sets what `run` and `start` have in common; what is left of the arguments is in REST.
options() {
  GATEWAYS=1 WITH_OPENTSDB=yes REST=()
  while [ "$#" != 0 ]; do
    case "$1" in
      --gateways) GATEWAYS="${2:?--gateways needs a number}" && shift ;;
      --no-opentsdb) WITH_OPENTSDB=no ;;
      --folder) FOLDER="${2:?--folder needs a folder}" && shift ;;
      -*) usage ;;
      *) break ;;
    esac
    shift
  done
  REST=("$@")
}

start_all() {
  local number
  start_hbase
  for number in $(seq "$GATEWAYS"); do
    start_gateway "thrift-$number"
  done
  for number in $(seq "$GATEWAYS"); do
    until_ready "thrift-$number" gateway_answers "thrift-$number"
  done
  if [ "$WITH_OPENTSDB" = yes ]; then
    create_tables tsdb tsdb-uid tsdb-tree tsdb-meta
    start_opentsdb opentsdb
    until_ready opentsdb opentsdb_answers opentsdb
  fi
}

start_again() {
  case "$1" in
    hbase)
      start_hbase
      # Any gateway that runs can tell.
      local part
      for part in $(parts); do
        if [[ "$part" == thrift-* ]] && runs "$part"; then
          until_ready hbase gateway_answers "$part"
          return
        fi
      done
      ;;
    *)
      if [ -e "$FOLDER/$1/opentsdb.conf" ]; then
        start_opentsdb "$1"
        until_ready "$1" opentsdb_answers "$1"
      else
        start_gateway "$1"
        until_ready "$1" gateway_answers "$1"
      fi
      ;;
  esac
}

environment() {
  local gateways
  gateways=$(cat "$FOLDER"/thrift-*/address | paste -sd,)
  echo "OXTSDB_TEST_HBASE=$gateways"
  [ ! -e "$FOLDER/opentsdb/address" ] || echo "OXTSDB_TEST_OPENTSDB=$(address_of opentsdb)"
  echo "OXTSDB_TEST_HBASE_FOLDER=$FOLDER"
}

# Sets FOLDER to a full path; its name goes into settings of three programs.
in_folder() {
  FOLDER=$(mkdir -p "$1" && cd "$1" && pwd -P)
  if [[ "$FOLDER" =~ [^A-Za-z0-9/._-] ]]; then
    echo "rig: \`$FOLDER\` has other characters than letters, digits and / . _ -" >&2
    return 1
  fi
}

# Ends what this script launched, unless it is to stay; after `run` also all that came to it.
finish() {
  trap - EXIT HUP INT TERM
  if [ -n "$COMMAND" ]; then
    kill -KILL -- "-$COMMAND" 2>/dev/null || true
  fi
  if [ -z "$STAYS" ] && [ "${#LAUNCHED[@]}" != 0 ]; then
    kill -KILL "${LAUNCHED[@]}" 2>/dev/null || true
  fi
  if [ "$VERB" = run ]; then
    end_all KILL
    [ -z "$TEMPORARY" ] || rm -rf "$TEMPORARY"
  fi
}

# The folder that the first argument names, as a full path; it goes into settings of three programs.
folder() {
  local folder
  folder=$(mkdir -p "$1" && cd "$1" && pwd -P)
  if [[ "$folder" =~ [^A-Za-z0-9/._-] ]]; then
    echo "rig: \`$folder\` has other characters than letters, digits and / . _ -" >&2
    return 1
  fi
  echo "$folder"
}

need_programs() {
  need_java
  need_jars "$RIG/hbase/pom.xml"
  HBASE_JARS="$JARS"
  need_jars "$RIG/opentsdb/pom.xml"
  OPENTSDB_JARS="$JARS"
}

VERB="${1:-}" FOLDER='' PART='' COMMAND='' STAYS='' TEMPORARY='' LAUNCHED=()
[ "$#" = 0 ] || shift
case "$VERB" in
  run) options "$@" ;;
  start | stop | status | kill | pause | resume | again | gateway | opentsdb | tool | tables)
    [ "$#" != 0 ] || usage
    FOLDER="$1"
    shift
    ;;
  *) usage ;;
esac
case "$VERB" in
  kill | pause | resume | again | gateway | opentsdb | tool)
    [ "$#" != 0 ] || usage
    PART="$1"
    shift
    ;;
esac
if [ -z "$FOLDER" ]; then
  FOLDER=$(mktemp -d)
  TEMPORARY="$FOLDER"
fi
FOLDER=$(folder "$FOLDER")
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

case "$VERB" in
  run)
    [ "${#REST[@]}" != 0 ] || usage
    need_programs
    start_all
    # In a process group of its own, so that all of it can be ended.
    env $(environment) setsid --wait "${REST[@]}" &
    COMMAND=$!
    wait "$COMMAND"
    ;;
  start)
    options "$@"
    [ "${#REST[@]}" = 0 ] || usage
    need_programs
    start_all
    STAYS=yes
    environment
    ;;
  stop)
    if [ "$#" = 0 ]; then
      end_all TERM
    else
      known "$1"
      end_part "$1" TERM
    fi
    ;;
  status)
    for part in $(parts); do
      printf '%-12s %-8s %s\n' "$part" "$(process_of "$part" | grep . || echo ended)" "$(address_of "$part")"
    done
    ;;
  kill)
    known "$PART"
    end_part "$PART" KILL
    ;;
  pause | resume)
    known "$PART"
    kill "$([ "$VERB" = pause ] && echo -STOP || echo -CONT)" "$(process_of "$PART")"
    ;;
  again)
    known "$PART"
    need_programs
    start_again "$PART"
    STAYS=yes
    address_of "$PART"
    ;;
  gateway)
    need_programs
    start_gateway "$PART" "$@"
    until_ready "$PART" gateway_answers "$PART"
    STAYS=yes
    address_of "$PART"
    ;;
  opentsdb)
    need_programs
    start_opentsdb "$PART" "$@"
    until_ready "$PART" opentsdb_answers "$PART"
    STAYS=yes
    address_of "$PART"
    ;;
  tool)
    known "$PART"
    [ "$#" != 0 ] || usage
    need_programs
    class="$1"
    shift
    java -Djava.net.preferIPv4Stack=true -cp "$RIG/opentsdb:$OPENTSDB_JARS/*" \
      "net.opentsdb.tools.$class" "--config=$FOLDER/$PART/opentsdb.conf" "$@"
    ;;
  tables)
    [ "$#" != 0 ] || set -- tsdb tsdb-uid tsdb-tree tsdb-meta
    [ "$#" = 4 ] || usage
    need_programs
    create_tables "$@"
    ;;
esac
