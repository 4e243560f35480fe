#!/usr/bin/env bash
# Checks the alerting rules and the dashboard: PromQL, severities, labels in messages. Then it checks the check.
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
need_python ../requirements.txt
"$PYTHON" check.py oxtsdb.yaml ../dashboards/oxtsdb.json

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Each of these mistakes has to be found.
while read -r mistake expected; do
  sed "$mistake" oxtsdb.yaml >"$folder/wrong.yaml"
  if cmp -s oxtsdb.yaml "$folder/wrong.yaml"; then
    echo "$mistake changes nothing" >&2
    exit 1
  fi
  if found=$("$PYTHON" check.py "$folder/wrong.yaml" 2>&1) || ! grep --quiet --fixed-strings -- "$expected" <<<"$found"; then
    echo "$mistake: expected an error with \`$expected\`, got: $found" >&2
    exit 1
  fi
done <<'END'
0,/rate(/s/rate(/rate/ OxtsdbRequestsFail
0,/by\x20(job,\x20protocol)/s/by\x20(job,\x20protocol)/by\x20(protocol)/ ['job']
0,/critical/s/critical/urgent/ severity
0,/for:.10m/s/for:.10m/for:\x20soon/ duration
0,/expr:/s/expr:/expresion:/ expresion
END
echo "all mistakes are found"
