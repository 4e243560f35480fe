"""Sends the metrics that check.py lists with OpenTelemetry's SDK for Python, and prints each data point that was exported.

    send.py NAME

The exporters read OTEL_EXPORTER_OTLP_METRICS_…; the protocol is the program's choice in Python.
"""

import json
import os
import sys

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ExponentialHistogram,
    Gauge,
    Histogram,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View

HOSTS = 200
EXPORTERS = {"grpc": GrpcExporter, "http/protobuf": HttpExporter}

name = sys.argv[1]


class Printing(EXPORTERS[os.environ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"]]):
    """Prints what it sends."""

    def export(self, metrics_data, *arguments, **options):
        for of_resource in metrics_data.resource_metrics:
            resource = dict(of_resource.resource.attributes)
            for scope in of_resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        fields = self.fields(metric.data, point)
                        print(json.dumps({"metric": metric.name, "resource": resource, **fields}))
        return super().export(metrics_data, *arguments, **options)

    @staticmethod
    def fields(data, point):
        shared = {"time": point.time_unix_nano, "attributes": dict(point.attributes)}
        if isinstance(data, Gauge):
            return {**shared, "kind": "gauge", "value": point.value}
        shared["temporality"] = data.aggregation_temporality.name.lower()
        if not isinstance(data, (Histogram, ExponentialHistogram)):
            return {**shared, "kind": "sum", "value": point.value}
        shared |= {"count": point.count, "sum": point.sum, "min": point.min, "max": point.max}
        if isinstance(data, Histogram):
            counts = {"bounds": list(point.explicit_bounds), "counts": list(point.bucket_counts)}
            return {**shared, **counts, "kind": "histogram"}
        return {
            **shared,
            "kind": "exponential histogram",
            "scale": point.scale,
            "zero_count": point.zero_count,
            **{
                sign: {"offset": buckets.offset, "counts": list(buckets.bucket_counts)}
                for sign, buckets in (("positive", point.positive), ("negative", point.negative))
            },
        }


reader = PeriodicExportingMetricReader(Printing())
size_view = View(instrument_name=f"{name}.size", aggregation=ExponentialBucketHistogramAggregation())
provider = MeterProvider([reader], views=[size_view])
meter = provider.get_meter("sender")
requests = meter.create_counter(f"{name}.requests")
queue = meter.create_up_down_counter(f"{name}.queue")
temperature = meter.create_gauge(f"{name}.temperature")
duration = meter.create_histogram(f"{name}.duration", explicit_bucket_boundaries_advisory=[0.1, 1.0])
size = meter.create_histogram(f"{name}.size")
meter.create_observable_gauge(
    f"{name}.load", callbacks=[lambda _: (Observation(host / 4, {"host": f"web {host}"}) for host in range(HOSTS))]
)
for _ in range(2):
    requests.add(3, {"route": "/a", "ok": True, "status": 200, "share": 0.5, "list": ["a", "b"]})
    queue.add(1.5)
    queue.add(-0.25)
    temperature.set(-9007199254740991)
    for value in (0.05, 0.5, 0.5, 5.0):
        duration.record(value, {"route": "/a"})
    for value in (0, 0.001, 1, 4096):
        size.record(value)
    assert provider.force_flush(), "an export failed"
provider.shutdown()
