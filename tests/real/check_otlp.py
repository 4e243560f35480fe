"""Exports metrics of all instruments with OpenTelemetry's SDK for Python, twice, and finds them again.

    check_otlp.py SERVER
"""

import json
import sys
import urllib.parse
import urllib.request

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

server = sys.argv[1]
HOSTS = 200


def stored(metric):
    """The values of a metric, by its tags without those of the resource."""
    query = urllib.parse.urlencode({"start": "10m-ago", "ms": "true", "m": f"none:{metric}{{}}"})
    with urllib.request.urlopen(f"{server}/api/query?{query}") as response:
        found = {}
        for series in json.load(response):
            assert series["tags"].pop("service.name") == "checker", series
            assert len(series["tags"].pop("service.instance.id")) == 36, series
            assert "telemetry.sdk.name" not in series["tags"], series
            found[tuple(sorted(series["tags"].items()))] = list(series["dps"].values())
        return found


exporter = OTLPMetricExporter(f"{server}/v1/metrics", compression=Compression.Gzip)
# `force_flush` and the shutdown export, the timer never does.
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
provider = MeterProvider(
    [reader],
    resource=Resource.create({"service.name": "checker", "deployment": "test"}),
    views=[
        View(instrument_name="otel.duration", aggregation=ExplicitBucketHistogramAggregation([0.1, 1.0])),
        View(instrument_name="otel.size", aggregation=ExponentialBucketHistogramAggregation()),
    ],
)
meter = provider.get_meter("check")
requests = meter.create_counter("otel.requests", unit="1")
duration = meter.create_histogram("otel.duration", unit="s")
size = meter.create_histogram("otel.size", unit="By")
meter.create_observable_gauge(
    "otel.load", callbacks=[lambda _: (Observation(host / 4, {"host": f"web {host}"}) for host in range(HOSTS))]
)
for _ in range(2):
    requests.add(3, {"route": "/a"})
    for value in (0.05, 0.5, 0.5, 5.0):
        duration.record(value, {"route": "/a"})
    size.record(4096)
    assert provider.force_flush(), "an export failed"
provider.shutdown()

# The flush at the end exports once more.
route = ("route", "/a")
assert stored("otel.requests")[(route,)][:2] == [3, 6], stored("otel.requests")
buckets = stored("otel.duration_bucket")
by_bound = {dict(tags)["le"]: values[:2] for tags, values in buckets.items()}
assert by_bound == {"0.1": [1, 2], "1": [3, 6], "_Inf": [4, 8]}, by_bound
assert stored("otel.duration_count")[(route,)][:2] == [4, 8]
assert stored("otel.duration_sum")[(route,)][0] == 6.05
assert stored("otel.duration_max")[(route,)][0] == 5.0
assert stored("otel.size_count")[()][:2] == [1, 2]
assert max(values[-1] for values in stored("otel.size_bucket").values()) == 2
load = stored("otel.load")
assert {key[0][1]: values[0] for key, values in load.items()} == {
    f"web_{host}": host / 4 for host in range(HOSTS)
}, load
print(f"OpenTelemetry: {HOSTS} gauges, a counter and two histograms are stored")
