#!/usr/bin/env bash
# A real HBase with its Thrift server, and a real OpenTSDB on it, for tests and experiments.
#
#   rig.sh run [OPTIONS] COMMAND...      starts, runs the command, and stops everything in any case
#   rig.sh start FOLDER [OPTIONS]        starts and leaves it running; data and logs are in FOLDER
#   rig.sh stop FOLDER [PART]            stops everything, or one part
#   rig.sh status FOLDER                 each part: its process or `ended`, and its address
#
#   --gateways N      Thrift servers (default 1; 0: none)        --no-opentsdb   HBase alone
#   --region-servers N   ZooKeeper (`zookeeper`), the master (`hbase`) and N region servers (`server-1`, …) as processes of
#                     their own; without it one process (`hbase`) is all of them
#   --folder FOLDER   of `run`: kept; without it data and logs are temporary
#   --tls server|mutual   HBase's RPC over TLS only; mutual: clients need a certificate. Not for OpenTSDB, which has no TLS
#   --kerberos authentication|integrity|privacy   a KDC (`kdc`), and HBase with Kerberos and this hbase.rpc.protection;
#                     ZooKeeper stays without SASL. Not for OpenTSDB, whose client would need a JAAS file
#
# For what runs beside it; PART is a folder in FOLDER (hbase, thrift-1, thrift-2, opentsdb, …):
#   rig.sh kill|pause|resume FOLDER PART             SIGKILL, SIGSTOP, SIGCONT
#   rig.sh again FOLDER PART                         restarts a part that has exited
#   rig.sh gateway FOLDER PART [FLAG...]             one more Thrift server with flags of its own (-f: framed)
#   rig.sh opentsdb FOLDER PART [KEY=VALUE...]       one more OpenTSDB, with settings (tsd.…)
#   rig.sh tool FOLDER PART CLASS [ARGUMENT...]      a tool of OpenTSDB (UidManager, Fsck…) with PART's settings
#   rig.sh tables FOLDER [DATA UID TREE META]        creates OpenTSDB's tables
#   rig.sh describe FOLDER TABLE                     a table's settings and regions, as HBase's shell prints them
#   rig.sh compact FOLDER TABLE                      HBase's major compaction of a table
#   rig.sh regions FOLDER move|split|merge TABLE [KEY]   changes regions of a table; prints how many there are then
#   rig.sh dump FOLDER TABLE...                      all cells: table, row, family, qualifier, value, between tabs
# `gateway`, `opentsdb` and `again` print the address.
#
# `run` sets, and `start` prints: OXTSDB_TEST_HBASE=HOST:PORT[,HOST:PORT…] (the gateways),
# OXTSDB_TEST_HBASE_QUORUM=HOST:PORT (ZooKeeper), OXTSDB_TEST_HBASE_MASTERS=HOST:PORT,
# OXTSDB_TEST_OPENTSDB=HOST:PORT, OXTSDB_TEST_HBASE_FOLDER=FOLDER and, with --tls, OXTSDB_TEST_HBASE_TLS=FOLDER with ca.pem
# and, if clients need a certificate, client.pem and client.key; with --kerberos, OXTSDB_TEST_HBASE_KERBEROS=FOLDER with
# krb5.conf, and keytabs of principals of realm RIG.TEST: oxtsdb, sha2 (an AES-SHA2 key only), brief (tickets of 10 seconds),
# other (an old key), gone (deleted). All of it listens on 127.0.0.1, on
# ports that were free. OXTSDB_RIG_HBASE_HEAP sets HBase's memory (3g), OXTSDB_RIG_SHORT_LIVED=opentsdb says that each
# OpenTSDB ends within seconds, all: the other servers within minutes. OXTSDB_RIG_HBASE_VERSION is another version of HBase than
# 2.6.1; it needs --gateways 0 and --no-opentsdb, since Maven Central lacks Thrift servers of most versions, and programs of the rig (`tables`,
# `regions`, …) are for HBase 2 and 3.
# Needed: Linux, a JDK of 11 or newer, and Maven for the first run; openssl for --tls; MIT's KDC for --kerberos.
set -euo pipefail
RIG="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RIG/../../.ci/tools.sh"
source "$RIG/parts.sh"
source "$RIG/servers.sh"

usage() {
  sed -n '2,/^set/{s/^# \{0,1\}//p}' "$RIG/rig.sh" >&2
  exit 2
}

# Sets what `run` and `start` have in common; REST has the remaining arguments.
options() {
  GATEWAYS=1 REGION_SERVERS=0 WITH_OPENTSDB=yes TLS='' KERBEROS='' REST=()
  while [ "$#" != 0 ]; do
    case "$1" in
      --gateways) GATEWAYS="${2:?--gateways needs a number}" && shift ;;
      --region-servers) REGION_SERVERS="${2:?--region-servers needs a number}" && shift ;;
      --no-opentsdb) WITH_OPENTSDB=no ;;
      --tls)
        [[ "${2:-}" =~ ^(server|mutual)$ ]] || usage
        TLS="$2"
        shift
        ;;
      --kerberos)
        [[ "${2:-}" =~ ^(authentication|integrity|privacy)$ ]] || usage
        KERBEROS="$2"
        shift
        ;;
      --folder) FOLDER="${2:?--folder needs a folder}" && shift ;;
      -*) usage ;;
      *) break ;;
    esac
    shift
  done
  if [ -n "$TLS$KERBEROS" ] && [ "$WITH_OPENTSDB" = yes ]; then
    echo "rig: --tls and --kerberos need --no-opentsdb: this OpenTSDB has neither towards HBase" >&2
    return 1
  fi
  if [ -n "${OXTSDB_RIG_HBASE_VERSION:-}" ] && { [ "$GATEWAYS" != 0 ] || [ "$WITH_OPENTSDB" = yes ]; }; then
    echo "rig: OXTSDB_RIG_HBASE_VERSION needs --gateways 0 --no-opentsdb" >&2
    return 1
  fi
  REST=("$@")
}

start_all() {
  local number logged
  logged=$(stat -c %s "$FOLDER/hbase/log" 2>/dev/null || echo 0)
  [ -z "$TLS" ] || make_certificates
  [ -z "$KERBEROS" ] || start_kdc
  start_hbase "$REGION_SERVERS"
  until_ready hbase hbase_is_ready "$logged"
  for number in $(seq "$GATEWAYS"); do
    start_gateway "thrift-$number"
  done
  for number in $(seq "$GATEWAYS"); do
    until_ready "thrift-$number" gateway_is_ready "thrift-$number"
  done
  if [ "$WITH_OPENTSDB" = yes ]; then
    create_tables tsdb tsdb-uid tsdb-tree tsdb-meta
    start_opentsdb opentsdb
    until_ready opentsdb opentsdb_is_ready opentsdb
  fi
}

environment() {
  [ "$GATEWAYS" = 0 ] || echo "OXTSDB_TEST_HBASE=$(cat "$FOLDER"/thrift-*/address | paste -sd,)"
  echo "OXTSDB_TEST_HBASE_QUORUM=$(address_of hbase)"
  # Kerberos knows servers by the name of the host.
  echo "OXTSDB_TEST_HBASE_MASTERS=$([ -e "$FOLDER/kdc" ] && echo localhost || echo 127.0.0.1):$(setting_of_hbase hbase.master.port)"
  [ ! -e "$FOLDER/opentsdb/address" ] || echo "OXTSDB_TEST_OPENTSDB=$(address_of opentsdb)"
  [ ! -e "$FOLDER/tls" ] || echo "OXTSDB_TEST_HBASE_TLS=$FOLDER/tls"
  [ ! -e "$FOLDER/kdc" ] || echo "OXTSDB_TEST_HBASE_KERBEROS=$FOLDER/kdc"
  echo "OXTSDB_TEST_HBASE_FOLDER=$FOLDER"
}

# Stops what this script launched, unless it has to stay; after `run` also the parts added since.
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
  case "$VERB" in
    run | start) mkdir -p "$1" ;;
    *) [ -e "$1/hbase/address" ] || { echo "rig: nothing was started in \`$1\`" >&2 && return 1; } ;;
  esac
  folder=$(cd "$1" && pwd -P)
  if [[ "$folder" =~ [^A-Za-z0-9/._-] ]]; then
    echo "rig: \`$folder\` has other characters than letters, digits and / . _ -" >&2
    return 1
  fi
  echo "$folder"
}

need_programs() {
  need_java
  if [ -n "${OXTSDB_RIG_HBASE_VERSION:-}" ]; then
    need_jars "$RIG/hbase/pom.xml" "-Dhbase.version=$OXTSDB_RIG_HBASE_VERSION"
  else
    need_jars "$RIG/hbase/pom.xml" -Pthrift
  fi
  HBASE_JARS="$JARS"
  need_jars "$RIG/opentsdb/pom.xml"
  OPENTSDB_JARS="$JARS"
  [ -z "$KERBEROS" ] || need_kdc
}

VERB="${1:-}" FOLDER='' TLS='' KERBEROS='' PART='' COMMAND='' STAYS='' TEMPORARY=''
[ "$#" = 0 ] || shift
case "$VERB" in
  run) options "$@" ;;
  start | stop | status | kill | pause | resume | again | gateway | opentsdb | tool | tables | describe | compact | regions | dump)
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
    # In a process group of its own, so that all of it can be stopped.
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
      has_part "$1"
      end_part "$1" TERM
    fi
    ;;
  status)
    for part in $(parts); do
      printf '%-12s %-8s %s\n' "$part" "$(process_of "$part" | grep . || echo ended)" "$(address_of "$part")"
    done
    ;;
  kill)
    has_part "$PART"
    end_part "$PART" KILL
    ;;
  pause | resume)
    has_part "$PART"
    process=$(process_of "$PART")
    if [ -z "$process" ]; then
      echo "rig: $PART does not run" >&2
      exit 1
    fi
    kill "$([ "$VERB" = pause ] && echo -STOP || echo -CONT)" "$process"
    ;;
  again)
    has_part "$PART"
    need_programs
    start_again "$PART"
    STAYS=yes
    address_of "$PART"
    ;;
  gateway)
    need_programs
    start_gateway "$PART" "$@"
    until_ready "$PART" gateway_is_ready "$PART"
    STAYS=yes
    address_of "$PART"
    ;;
  opentsdb)
    need_programs
    start_opentsdb "$PART" "$@"
    until_ready "$PART" opentsdb_is_ready "$PART"
    STAYS=yes
    address_of "$PART"
    ;;
  tool)
    has_part "$PART"
    [ "$#" != 0 ] || usage
    need_programs
    class="$1"
    shift
    java "${SHORT_LIVED[@]}" -Djava.net.preferIPv4Stack=true -Dfile.encoding=UTF-8 -cp "$RIG/opentsdb:$OPENTSDB_JARS/*" \
      "net.opentsdb.tools.$class" "--config=$FOLDER/$PART/opentsdb.conf" "$@"
    ;;
  tables)
    [ "$#" != 0 ] || set -- tsdb tsdb-uid tsdb-tree tsdb-meta
    [ "$#" = 4 ] || usage
    need_programs
    create_tables "$@"
    ;;
  describe)
    [ "$#" = 1 ] || usage
    need_programs
    describe_table "$1"
    ;;
  compact)
    [ "$#" = 1 ] || usage
    need_programs
    major_compact "$1"
    ;;
  regions)
    [ "$#" -ge 2 ] || usage
    need_programs
    change_regions "$@"
    ;;
  dump)
    [ "$#" != 0 ] || usage
    need_programs
    dump_tables "$@"
    ;;
esac
