"""Exports metrics of all instruments with OpenTelemetry's SDK for Python, twice, over HTTP and over gRPC, and finds them again.

    check_otlp.py SERVER HOST:PORT    the second is the data service's gRPC listener
"""

import json
import sys
import urllib.parse
import urllib.request

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

server, data_service = sys.argv[1:]
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


def check(name, exporter):
    """Metrics whose names begin with `name`."""
    # `force_flush` and the shutdown export, the timer never does.
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider(
        [reader],
        resource=Resource.create({"service.name": "checker", "deployment": "test"}),
        views=[
            View(instrument_name=f"{name}.duration", aggregation=ExplicitBucketHistogramAggregation([0.1, 1.0])),
            View(instrument_name=f"{name}.size", aggregation=ExponentialBucketHistogramAggregation()),
        ],
    )
    meter = provider.get_meter("check")
    requests = meter.create_counter(f"{name}.requests", unit="1")
    duration = meter.create_histogram(f"{name}.duration", unit="s")
    size = meter.create_histogram(f"{name}.size", unit="By")
    meter.create_observable_gauge(
        f"{name}.load", callbacks=[lambda _: (Observation(host / 4, {"host": f"web {host}"}) for host in range(HOSTS))]
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
    assert stored(f"{name}.requests")[(route,)][:2] == [3, 6], stored(f"{name}.requests")
    buckets = stored(f"{name}.duration_bucket")
    by_bound = {dict(tags)["le"]: values[:2] for tags, values in buckets.items()}
    assert by_bound == {"0.1": [1, 2], "1": [3, 6], "_Inf": [4, 8]}, by_bound
    assert stored(f"{name}.duration_count")[(route,)][:2] == [4, 8]
    assert stored(f"{name}.duration_sum")[(route,)][0] == 6.05
    assert stored(f"{name}.duration_max")[(route,)][0] == 5.0
    assert stored(f"{name}.size_count")[()][:2] == [1, 2]
    assert max(values[-1] for values in stored(f"{name}.size_bucket").values()) == 2
    load = stored(f"{name}.load")
    assert {key[0][1]: values[0] for key, values in load.items()} == {
        f"web_{host}": host / 4 for host in range(HOSTS)
    }, load
    print(f"OpenTelemetry, {name}: {HOSTS} gauges, a counter and two histograms are stored")


check("http", HttpExporter(f"{server}/v1/metrics", compression=Compression.Gzip))
check("grpc", GrpcExporter(data_service, insecure=True, compression=grpc.Compression.Gzip))
