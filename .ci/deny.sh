#!/usr/bin/env bash
# Checks Cargo.lock by the rules of deny.toml: licences, banned crates, sources, known vulnerabilities.
#
#   deny.sh                 vulnerabilities only where RustSec's database can be fetched, from GitHub or git's mirror of it
#   deny.sh --advisories    fails where it cannot: before a release
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/tools.sh
need_cargo_deny
database=$(sed -n 's/^db-urls = \["\(.*\)"\]$/\1/p' deny.toml)

checks=(licenses bans sources)
if reason=$(GIT_TERMINAL_PROMPT=0 timeout 20 git ls-remote --quiet "$database" HEAD 2>&1 >/dev/null); then
  checks+=(advisories)
elif [ "${1:-}" = --advisories ]; then
  echo "dependencies: $database cannot be fetched: ${reason:-no response within 20 s}" >&2
  exit 1
fi
export CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}"
"$CARGO_DENY" --locked check "${checks[@]}"
if [ "${#checks[@]}" = 4 ]; then
  fetched=("$CARGO_HOME"/advisory-dbs/advisory-db-*/)
  echo "advisories: RustSec's database of $(git -C "${fetched[0]}" log -1 --format=%cs)"
else
  echo "advisories: SKIPPED, $database cannot be fetched; \`.ci/deny.sh --advisories\` checks them"
fi
