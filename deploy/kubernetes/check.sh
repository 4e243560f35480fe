#!/usr/bin/env bash
# Renders the overlays, alone and with each component, and checks the objects: unknown fields, wrong types, and names, ports and
# labels that do not fit each other. No cluster is needed, and none checks more than this here.
set -euo pipefail
cd "$(dirname "$0")"
source ../../.ci/tools.sh
need_kustomize
need_service_monitor
need_python ../requirements.txt

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# render OVERLAY NAME [COMPONENT]
render() {
  mkdir -p "$folder/source"
  cp -r . "$folder/source/$2"
  mkdir "$folder/source/$2/rendered"
  {
    echo "resources: [../$1]"
    [ $# -lt 3 ] || echo "components: [../components/$3]"
  } >"$folder/source/$2/rendered/kustomization.yaml"
  "$KUSTOMIZE" build "$folder/source/$2/rendered" >"$folder/$2.yaml"
}

check() {
  "$PYTHON" check.py "$SERVICE_MONITOR" "$@"
}

rendered=()
for overlay in embedded hbase; do
  render "$overlay" "$overlay"
  rendered+=("$folder/$overlay.yaml")
  for component in components/*/; do
    component=$(basename "$component")
    render "$overlay" "$overlay+$component" "$component"
    rendered+=("$folder/$overlay+$component.yaml")
  done
done
check "${rendered[@]}"

# The check itself: each of these mistakes has to be found. OVERLAY, what to replace, what the error has to contain.
while read -r overlay mistake expected; do
  sed "$mistake" "$folder/$overlay.yaml" >"$folder/wrong.yaml"
  if cmp -s "$folder/$overlay.yaml" "$folder/wrong.yaml"; then
    echo "$mistake changes nothing in $overlay" >&2
    exit 1
  fi
  if found=$(check "$folder/wrong.yaml" 2>&1) || ! grep --quiet --fixed-strings -- "$expected" <<<"$found"; then
    echo "$mistake in $overlay: expected an error with \`$expected\`, got: $found" >&2
    exit 1
  fi
done <<'END'
embedded s/readOnlyRootFilesystem/readOnlyRootFileSystem/ readOnlyRootFileSystem
embedded s/replicas:.1/replicas:\x20one/ spec.replicas
embedded s/maxUnavailable/maxUnavailible/ maxUnavailible
embedded s/drop:/add:/ more rights
embedded s/targetPort:.grpc/targetPort:\x20grcp/ `grcp`
embedded s/serviceName:.*/serviceName:\x20oxtsdb/ no headless Service
embedded s/port:.4242/port:\x204241/ 4241
embedded s/interval:/intervall:/ intervall
embedded s/port:.admin$/port:\x20metrics/ no such port
hbase s/averageUtilization/averageUtilisation/ averageUtilisation
hbase s/^\x20\{4\}name:.data-service$/\x20\x20\x20\x20name:\x20data/ its target has to exist
hbase s/kind:.HorizontalPodAutoscaler/kind:\x20PodAutoscaler/ find schema
hbase s/:4244/:4245x/ no headless Service http://uid-service
hbase s/namespaceSelector:/podSelector:/ namespace of monitoring
END
echo "all mistakes are found"
