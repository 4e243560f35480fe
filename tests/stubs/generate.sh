#!/usr/bin/env bash
# Generates stubs with the commands of proto/README.md, exactly as they stand there, into the folder
# `gen` of each language (Java: target/generated-sources) and of clients/go, none of which is in git.
#
#   generate.sh [LANGUAGE...]    python, go, java, typescript, rust; all unless given
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
[ $# -gt 0 ] || set -- python go java typescript rust
PROTO=$(cd ../../proto && pwd)
export PROTO

# Prints the block of shell under README's heading of a language.
command_of() {
  sed -n "/^### $1\$/,/^##/{/^\`\`\`sh\$/,/^\`\`\`\$/{/^\`\`\`/!p}}" "$PROTO/README.md"
}

# Runs it in a folder.
generate() {
  local command
  command=$(command_of "$1")
  [ -n "$command" ] || missing "the command for $1" "proto/README.md has none"
  (cd "$2" && rm -rf gen target && bash -euo pipefail -c "$command")
}

for language in "$@"; do
  case "$language" in
    python)
      need_python python/requirements.txt
      PATH="$(dirname "$PYTHON"):$PATH" generate Python python
      ;;
    go)
      need_buf
      need_go_plugins
      MODULE=oxtsdb.dev/stubs/gen generate Go go
      MODULE=oxtsdb.dev/writer/gen generate Go ../../clients/go
      ;;
    java)
      need_java
      generate Java java
      ;;
    typescript)
      need_buf
      need_node_modules typescript
      generate TypeScript typescript
      ;;
    rust)
      # An empty package: that the crate builds is shown by its own tests.
      package=$(mktemp -d)
      cargo init --quiet --vcs none --name generated "$package"
      generate Rust "$package"
      rm -rf "$package"
      ;;
    *)
      echo "no stubs for '$language'" >&2
      exit 2
      ;;
  esac
done
