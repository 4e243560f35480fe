#!/usr/bin/env bash
# Lints the Containerfile, collects the image's files from the built programs by its own commands, and runs them as a container
# would: with these files only, read-only, as its user, with its variables. No image is built: that needs a container engine.
set -euo pipefail
cd "$(dirname "$0")/../.."
source .ci/tools.sh
need_python deploy/requirements.txt
need_tsdb
containerfile=deploy/container/Containerfile
"$(dirname "$PYTHON")/hadolint" "$containerfile"

folder=$(mktemp -d)
tsdb=
finish() {
  [ -z "$tsdb" ] || kill -KILL "$tsdb" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT

# instruction NAME [PATTERN]: its arguments, of those that match, with continued lines joined.
instruction() {
  sed --silent ":join; /\\\\$/{N; s/\\\\\\n/ /; b join}; s/^$1 //p" "$containerfile" | grep -- "${2:-}"
}

# The second RUN.
mkdir -p "$folder/source/target" "$folder/image"
ln -s "$PROFILE_DIR" "$folder/source/target/dist"
ln -s "$PWD/crates" "$folder/source/crates"
collect=$(instruction RUN /image | sed "s:\([ =]\)/image:\1$folder/image:g; s:\([ =]\)/volume:\1$folder/volume:g")
(cd "$folder/source" && bash -euo pipefail -c "$collect")
mkdir -p "$folder/image/var/lib" "$folder/image/proc"
cp -r "$folder/volume/." "$folder/image/var/lib"
(cd "$folder/image" && find . -type f | sort)

if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: running the image's files needs root, for chroot"
  exit 0
fi
user=$(instruction USER)
chown "$user" "$folder/image/var/lib/oxtsdb"
read -ra variables <<<"$(instruction ENV)"
read -ra health <<<"$(instruction HEALTHCHECK | sed 's/.*CMD //' | tr -d '[]",')"
read -ra command <<<"$(instruction ENTRYPOINT | tr -d '[]",') $(instruction CMD | tr -d '[]",')"
# Free ports.
read -ra ports <<<"$("$PYTHON" -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(socket.getsockname()[1] for socket in sockets))')"
variables+=("OXTSDB_HTTP_LISTEN=127.0.0.1:${ports[0]}" "OXTSDB_DATA_LISTEN=127.0.0.1:${ports[1]}"
  "OXTSDB_UID_LISTEN=127.0.0.1:${ports[2]}" "OXTSDB_ADMIN_LISTEN=127.0.0.1:${ports[3]}"
  "OXTSDB_TARGET=http://127.0.0.1:${ports[1]}")

# run COMMAND...: in a mount namespace of its own, in which only the volume can be written.
cat >"$folder/run" <<'END'
image=$1 user=$2
shift 2
mount --bind "$image" "$image"
mount --bind "$image/var/lib/oxtsdb" "$image/var/lib/oxtsdb"
mount -o remount,bind,ro "$image"
exec chroot --userspec="$user" "$image" /usr/local/bin/"$@"
END
run() {
  exec env --ignore-environment "${variables[@]}" /usr/bin/env PATH="$PATH" \
    unshare --mount bash -euo pipefail "$folder/run" "$folder/image" "$user" "$@"
}

run "${command[@]}" >"$folder/log" 2>&1 &
tsdb=$!
for _ in $(seq 300); do
  kill -0 "$tsdb" 2>/dev/null || break
  status=$( (run "${health[@]}") 2>&1) && break
  sleep 0.1
done
echo "${health[*]}: ${status:-}"
[ "${status:-}" = SERVING ] || { cat "$folder/log" >&2; exit 1; }
[ "$(stat --format %u:%g "$folder/image/var/lib/oxtsdb/data")" = "$user" ]
kill -TERM "$tsdb"
wait "$tsdb" || { cat "$folder/log" >&2; exit 1; }
tsdb=
