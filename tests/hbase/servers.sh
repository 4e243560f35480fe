# Start and readiness check of each program of the rig. Sourced by rig.sh, which
# sets RIG, FOLDER, HBASE_JARS and OPENTSDB_JARS.

# Flags of Java programs that end soon: optimizing their code takes longer than it saves. Tests of five minutes took 211 s of
# HBase's processor time without them, 120 s with them.
SHORT_LIVED=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC)

HBASE_FLAGS=() OPENTSDB_FLAGS=()
case "${OXTSDB_RIG_SHORT_LIVED:-}" in
  "") ;;
  opentsdb) OPENTSDB_FLAGS=("${SHORT_LIVED[@]}") ;;
  all) HBASE_FLAGS=("${SHORT_LIVED[@]}") OPENTSDB_FLAGS=("${SHORT_LIVED[@]}") ;;
  *)
    echo "rig: OXTSDB_RIG_SHORT_LIVED=$OXTSDB_RIG_SHORT_LIVED, expected opentsdb or all" >&2
    exit 2
    ;;
esac

# --- HBase: ZooKeeper, master and region server in one process; with region servers of their own a process each

# start_hbase [REGION_SERVERS]: the number of the first start counts.
start_hbase() {
  local count="${1:-0}" number
  if [ ! -e "$FOLDER/hbase/address" ]; then
    mkdir -p "$FOLDER/hbase"
    echo "127.0.0.1:$(free_port)" >"$FOLDER/hbase/address"
    hbase_site "$count" >"$FOLDER/hbase/hbase-site.xml"
    for number in $(seq "$count"); do
      new_region_server "server-$number"
    done
  fi
  if is_cluster; then
    start_zookeeper
    for number in "$FOLDER"/server-*; do
      start_region_server "${number##*/}"
    done
  fi
  launch_hbase hbase "-Xmx${OXTSDB_RIG_HBASE_HEAP:-3g}" org.apache.hadoop.hbase.master.HMaster start
}

is_cluster() { [ "$(setting_of_hbase hbase.cluster.distributed)" = true ]; }

# launch_hbase PART JAVA_ARGUMENT...: a program of HBase with the settings in the part's folder.
launch_hbase() {
  local part="$1"
  shift
  launch "$part" "$FOLDER/$part:$RIG/hbase:$HBASE_JARS/*" "${HBASE_FLAGS[@]}" "$@"
}

# On a local disk HBase's log does not survive a loss of power; with the raw file system it survives at least
# `kill -9`, because the checksummed one buffers the last bytes.
hbase_site() {
  local folder="$FOLDER/hbase" count="$1" key value
  echo '<configuration>'
  {
    cat <<SETTINGS
hbase.rootdir file://$folder/data
hbase.tmp.dir $folder/tmp
fs.file.impl org.apache.hadoop.fs.RawLocalFileSystem
hbase.unsafe.stream.capability.enforce false
hbase.wal.provider filesystem
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
    tls_site
    kerberos_site
    # A cluster has to notice a region server's death within seconds, one process must not end for a long pause.
    if [ "$count" = 0 ]; then
      cat <<SETTINGS
hbase.cluster.distributed false
hbase.zookeeper.property.tickTime 15000
zookeeper.session.timeout.localHBaseCluster 300000
SETTINGS
    else
      cat <<SETTINGS
hbase.cluster.distributed true
hbase.zookeeper.property.tickTime 1000
zookeeper.session.timeout 6000
hbase.master.wait.on.regionservers.mintostart $count
SETTINGS
    fi
  } | while read -r key value; do
    echo "  <property><name>$key</name><value>$value</value></property>"
  done
  echo '</configuration>'
}

# The settings of TLS. Java's clients, as the Thrift server, use the server's certificate.
tls_site() {
  [ -n "$TLS" ] || return 0
  cat <<SETTINGS
hbase.server.netty.tls.enabled true
hbase.server.netty.tls.supportplaintext false
hbase.server.netty.tls.client.auth.mode $([ "$TLS" = mutual ] && echo NEED || echo NONE)
hbase.client.netty.tls.enabled true
hbase.client.netty.tls.handshaketimeout 60000
hbase.rpc.tls.keystore.location $FOLDER/tls/server.p12
hbase.rpc.tls.keystore.password $STORE_PASSWORD
hbase.rpc.tls.truststore.location $FOLDER/tls/trusted.p12
hbase.rpc.tls.truststore.password $STORE_PASSWORD
SETTINGS
}

# The settings of Kerberos. The Thrift server logs in by the keytab of the servers.
kerberos_site() {
  [ -n "$KERBEROS" ] || return 0
  local server
  cat <<SETTINGS
hbase.security.authentication kerberos
hbase.rpc.protection $KERBEROS
SETTINGS
  for server in master regionserver thrift; do
    echo "hbase.$server.kerberos.principal hbase/localhost@$REALM"
    echo "hbase.$server.keytab.file $FOLDER/kdc/hbase.keytab"
  done
}

# --- KDC

REALM=RIG.TEST

# A realm with the principals of the servers and of clients, and their keytabs in FOLDER/kdc. Each protection has another
# encryption type for the tickets of servers and the keys of their sessions.
start_kdc() {
  local folder="$FOLDER/kdc" name encryption
  case "$KERBEROS" in
    integrity) encryption=aes128-cts-hmac-sha256-128 ;;
    privacy) encryption=aes256-cts-hmac-sha384-192 ;;
    *) encryption=aes256-cts-hmac-sha1-96 ;;
  esac
  # As programs of Kerberos, which kadmin.local and krb5kdc are.
  export KRB5_CONFIG="$folder/krb5.conf" KRB5_KDC_PROFILE="$folder/kdc.conf"
  if [ ! -e "$folder/address" ]; then
    mkdir -p "$folder"
    echo "127.0.0.1:$(free_port)" >"$folder/address"
    cat >"$folder/krb5.conf" <<SETTINGS
[libdefaults]
  default_realm = $REALM
  dns_lookup_kdc = false
  dns_lookup_realm = false
  # Java sends requests by UDP otherwise.
  udp_preference_limit = 1

[realms]
  $REALM = {
    kdc = $(cat "$folder/address")
  }

[logging]
  kdc = STDERR
SETTINGS
    cat >"$folder/kdc.conf" <<SETTINGS
[kdcdefaults]
  kdc_listen = $(cat "$folder/address")
  kdc_tcp_listen = $(cat "$folder/address")

[realms]
  $REALM = {
    database_name = $folder/principal
    key_stash_file = $folder/stash
    acl_file = $folder/acl
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes256-cts-hmac-sha384-192:normal aes128-cts-hmac-sha256-128:normal
  }
SETTINGS
    # Hadoop reads this by itself, in each program that has the folder in its class path.
    cat >"$folder/core-site.xml" <<SETTINGS
<configuration>
  <property><name>hadoop.security.authentication</name><value>kerberos</value></property>
</configuration>
SETTINGS
    {
      kdb5_util create -r "$REALM" -s -P "$STORE_PASSWORD"
      for name in oxtsdb other gone; do
        kadmin.local addprinc -randkey +requires_preauth "$name"
        kadmin.local ktadd -k "$folder/$name.keytab" "$name"
      done
      kadmin.local addprinc -randkey +requires_preauth sha2
      kadmin.local ktadd -k "$folder/sha2.keytab" -e aes256-cts-hmac-sha384-192:normal sha2
      # The keys of their keytabs are wrong then.
      kadmin.local cpw -randkey other
      kadmin.local delprinc -force gone
      kadmin.local addprinc -randkey +requires_preauth -maxlife 10seconds brief
      kadmin.local ktadd -k "$folder/brief.keytab" brief
      kadmin.local addprinc -randkey hbase/localhost
      kadmin.local ktadd -k "$folder/hbase.keytab" -e "$encryption:normal" hbase/localhost
      for name in hbase/localhost "krbtgt/$REALM"; do
        kadmin.local setstr "$name" session_enctypes "$encryption"
      done
    } >"$folder/make.log" 2>&1 || {
      echo "rig: the realm could not be made:" >&2
      tail -n 20 "$folder/make.log" >&2
      return 1
    }
  fi
  (exec -a "-Doxtsdb.rig=$folder" krb5kdc -n) </dev/null >>"$folder/log" 2>&1 &
  LAUNCHED+=("$!")
  disown
  until_ready kdc listens kdc
}

# Whether a part accepts connections.
listens() {
  local address
  address=$(address_of "$1")
  (exec 3<>"/dev/tcp/${address/://}") 2>/dev/null
}

STORE_PASSWORD=certificates

# Makes an authority, and certificates of HBase and of clients, in FOLDER/tls. HBase checks the host of a client as well.
make_certificates() {
  local folder="$FOLDER/tls" empty="$FOLDER/tls/openssl.cnf" names=server name
  mkdir -p "$folder"
  [ ! -e "$folder/trusted.p12" ] || return 0
  [ "$TLS" = server ] || names="server client"
  printf '[req]\ndistinguished_name=dn\n[dn]\n' >"$empty"
  {
    openssl req -x509 -config "$empty" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=rig \
      -addext basicConstraints=critical,CA:TRUE -keyout "$folder/ca.key" -out "$folder/ca.pem"
    for name in $names; do
      openssl req -x509 -config "$empty" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -newkey ec \
        -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$name" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
        -addext basicConstraints=critical,CA:FALSE -keyout "$folder/$name.key" -out "$folder/$name.pem"
    done
    openssl pkcs12 -export -in "$folder/server.pem" -inkey "$folder/server.key" -certfile "$folder/ca.pem" \
      -passout "pass:$STORE_PASSWORD" -out "$folder/server.p12"
    keytool -importcert -noprompt -alias rig -file "$folder/ca.pem" -keystore "$folder/trusted.p12" -storetype PKCS12 \
      -storepass "$STORE_PASSWORD"
  } >"$folder/log" 2>&1 || {
    echo "rig: certificates could not be made:" >&2
    tail -n 20 "$folder/log" >&2
    return 1
  }
}

# setting_of_hbase KEY: a value of hbase-site.xml
setting_of_hbase() {
  sed -n "s|.*<name>$1</name><value>\([^<]*\)</value>.*|\1|p" "$FOLDER/hbase/hbase-site.xml"
}

start_zookeeper() {
  mkdir -p "$FOLDER/zookeeper"
  cp "$FOLDER/hbase/hbase-site.xml" "$FOLDER/hbase/address" "$FOLDER/zookeeper"
  runs zookeeper || launch_hbase zookeeper -Xmx256m org.apache.hadoop.hbase.zookeeper.HQuorumPeer start
}

# new_region_server PART: its settings, with a port of its own.
new_region_server() {
  local folder="$FOLDER/$1" port
  mkdir -p "$folder"
  port=$(free_port)
  echo "127.0.0.1:$port" >"$folder/address"
  sed "s|\(<name>hbase.regionserver.port</name><value>\)[^<]*|\1$port|" "$FOLDER/hbase/hbase-site.xml" \
    >"$folder/hbase-site.xml"
}

start_region_server() {
  runs "$1" || launch_hbase "$1" "-Xmx${OXTSDB_RIG_HBASE_HEAP:-1g}" org.apache.hadoop.hbase.regionserver.HRegionServer start
}

# start_gateway PART [FLAG...]: without flags, with those of its first start.
start_gateway() {
  local part="$1" folder="$FOLDER/$1" flags
  shift
  mkdir -p "$folder"
  if [ ! -e "$folder/address" ]; then
    echo "127.0.0.1:$(free_port)" >"$folder/address"
    echo "$*" >"$folder/flags"
  fi
  read -r -a flags <"$folder/flags"
  launch "$part" "$FOLDER/hbase:$RIG/hbase:$HBASE_JARS/*" -Xmx512m "${HBASE_FLAGS[@]}" \
    org.apache.hadoop.hbase.thrift.ThriftServer start -b 127.0.0.1 -p "$(sed 's/.*://' "$folder/address")" \
    --infoport -1 "${flags[@]}"
}

# hbase_is_ready BYTES: each version logs it, after so many bytes of before. (Ports say nothing: HBase 1 in one process has others than
# its settings.)
hbase_is_ready() {
  tail -c "+$(($1 + 1))" "$FOLDER/hbase/log" | grep 'Master has completed initialization' >/dev/null
}

# Requests the names of the tables from a gateway, which gets them from the master: one call in Thrift's binary
# protocol. A gateway with flags may use another protocol; it only has to listen.
gateway_is_ready() {
  local address reply
  address=$(address_of "$1")
  if grep -q . "$FOLDER/$1/flags"; then
    listens "$1"
    return
  fi
  reply=$(
    exec 2>/dev/null 3<>"/dev/tcp/${address/://}" || exit
    printf '\x80\x01\x00\x01\x00\x00\x00\x0dgetTableNames\x00\x00\x00\x01\x00' >&3
    timeout 5 head -c 28 <&3 | od -An -v -tx1 | tr -d ' \n'
  ) || return 1
  # A reply whose first field is the result, a list; an error would be another field.
  [[ "$reply" == 80010002*0f0000 ]]
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
      # Without it requests of more than some kilobytes are rejected.
      echo "tsd.http.request.enable_chunked=true"
      echo "tsd.http.request.max_chunk=16777216"
      # The last value of a key counts.
      [ "$#" = 0 ] || printf '%s\n' "$@"
    } >"$folder/opentsdb.conf"
  fi
  launch "$part" "$RIG/opentsdb:$OPENTSDB_JARS/*" -Xmx512m "${OPENTSDB_FLAGS[@]}" \
    net.opentsdb.tools.TSDMain "--config=$folder/opentsdb.conf"
}

opentsdb_is_ready() {
  local address line
  address=$(address_of "$1")
  (
    exec 2>/dev/null 3<>"/dev/tcp/${address/://}" || exit
    printf 'GET /api/version HTTP/1.0\r\n\r\n' >&3
    read -r -t 5 line <&3 && [[ "$line" == *" 200 "* ]]
  )
}

# Sets CLASSES to the rig's own Java programs: compiled once, which takes longer than any of them runs.
need_classes() {
  local sources=("$RIG"/*.java "$RIG"/record/*.java) sum
  sum=$({ cat "${sources[@]}" && echo "$HBASE_JARS"; } | sha256sum | cut -c1-12)
  CLASSES="$OXTSDB_TOOLS/rig-$sum"
  [ -e "$CLASSES/complete" ] && return
  rm -rf "$CLASSES"
  javac -cp "$HBASE_JARS/*" -d "$CLASSES" "${sources[@]}"
  touch "$CLASSES/complete"
}

# rig_java CLASS [ARGUMENT...]: runs one of the rig's own programs, without the log that the servers' configuration would print.
rig_java() {
  need_classes
  java "${SHORT_LIVED[@]}" -Djava.net.preferIPv4Stack=true -cp "$CLASSES:$FOLDER/hbase:$HBASE_JARS/*" "$@"
}

# create_tables DATA UID TREE META
create_tables() {
  local log="$FOLDER/hbase/tables.log"
  if ! rig_java CreateTables "$@" >"$log" 2>&1; then
    echo "rig: the tables $* could not be created:" >&2
    tail -n 20 "$log" >&2
    return 1
  fi
}

# describe_table TABLE: its description.
describe_table() {
  rig_java DescribeTable "$1"
}

# major_compact TABLE
major_compact() {
  rig_java Compact "$1" >/dev/null
}

# change_regions move|split|merge TABLE [KEY]
change_regions() {
  rig_java Regions "$@"
}

# dump_tables TABLE...
dump_tables() {
  rig_java DumpTables "$@"
}

start_again() {
  case "$1" in
    kdc) start_kdc ;;
    zookeeper) start_zookeeper ;;
    server-*) start_region_server "$1" ;;
    hbase)
      start_hbase
      # Any running gateway can check this.
      local part
      for part in $(parts); do
        if [[ "$part" == thrift-* ]] && runs "$part"; then
          until_ready hbase gateway_is_ready "$part"
          return
        fi
      done
      ;;
    *)
      if [ -e "$FOLDER/$1/opentsdb.conf" ]; then
        start_opentsdb "$1"
        until_ready "$1" opentsdb_is_ready "$1"
      else
        start_gateway "$1"
        until_ready "$1" gateway_is_ready "$1"
      fi
      ;;
  esac
}
