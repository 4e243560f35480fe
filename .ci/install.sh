#!/usr/bin/env bash
# Installs what the parts of `.ci/run` need beside cargo. Each part installs its own; here it happens beside the builds, which have
# nothing to download.
set -euo pipefail
cd "$(dirname "$0")/.."
source .ci/tools.sh

need_buf
need_java
need_envoy
need_chromium
need_gnuplot
need_jars tests/hbase/hbase/pom.xml -Pthrift
for pom in tests/hbase/opentsdb tests/stubs/java; do
  need_jars "$pom/pom.xml"
done
# The tools of each language, and what its compiler fetches.
tests/stubs/generate.sh python go java typescript
for module in tests/stubs/go clients/go; do
  (cd "$module" && go mod download)
done
mvn --batch-mode --quiet --file clients/java/pom.xml --projects writer,reader,kafka-connect --also-make test-compile
