// Sends the metrics that ../check.py lists with OpenTelemetry's SDK for JavaScript, in JSON, and prints each data point that was
// exported.
//
//   node send.mjs NAME
//
// The exporter reads OTEL_EXPORTER_OTLP_METRICS_…

import { ExportResultCode } from "@opentelemetry/core";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
import { defaultResource, detectResources, envDetector } from "@opentelemetry/resources";
import {
  AggregationTemporality,
  AggregationType,
  DataPointType,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";

const [name] = process.argv.slice(2);
const HOSTS = 200;
const TEMPORALITY = { [AggregationTemporality.DELTA]: "delta", [AggregationTemporality.CUMULATIVE]: "cumulative" };

function fields(metric, { value, attributes, endTime }) {
  // A text, as nanoseconds since 1970 are beyond the integers that numbers hold exactly.
  const time = String(BigInt(endTime[0]) * 1_000_000_000n + BigInt(endTime[1]));
  const shared = { metric: metric.descriptor.name, attributes, time };
  if (metric.dataPointType === DataPointType.GAUGE) return { ...shared, kind: "gauge", value };
  shared.temporality = TEMPORALITY[metric.aggregationTemporality];
  if (metric.dataPointType === DataPointType.SUM) return { ...shared, kind: "sum", value };
  const { count, sum, min, max } = value;
  Object.assign(shared, { count, sum, min, max });
  if (metric.dataPointType === DataPointType.HISTOGRAM) {
    return { ...shared, kind: "histogram", bounds: value.buckets.boundaries, counts: value.buckets.counts };
  }
  const side = ({ offset, bucketCounts }) => ({ offset, counts: bucketCounts });
  const sides = { positive: side(value.positive), negative: side(value.negative) };
  return { ...shared, kind: "exponential histogram", scale: value.scale, zero_count: value.zeroCount, ...sides };
}

class Printing extends OTLPMetricExporter {
  export(metrics, callback) {
    const resource = metrics.resource.attributes;
    for (const metric of metrics.scopeMetrics.flatMap((scope) => scope.metrics)) {
      for (const point of metric.dataPoints) console.log(JSON.stringify({ ...fields(metric, point), resource }));
    }
    super.export(metrics, (result) => {
      if (result.code !== ExportResultCode.SUCCESS) throw result.error;
      callback(result);
    });
  }
}

// `forceFlush` and the shutdown export, the timer never does.
const reader = new PeriodicExportingMetricReader({ exporter: new Printing(), exportIntervalMillis: 3_600_000 });
const provider = new MeterProvider({
  readers: [reader],
  resource: defaultResource().merge(detectResources({ detectors: [envDetector] })),
  views: [{ instrumentName: `${name}.size`, aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM } }],
});
const meter = provider.getMeter("sender");
const requests = meter.createCounter(`${name}.requests`);
const queue = meter.createUpDownCounter(`${name}.queue`);
const temperature = meter.createGauge(`${name}.temperature`);
const duration = meter.createHistogram(`${name}.duration`, { advice: { explicitBucketBoundaries: [0.1, 1] } });
const size = meter.createHistogram(`${name}.size`);
meter.createObservableGauge(`${name}.load`).addCallback((result) => {
  for (let host = 0; host < HOSTS; host++) result.observe(host / 4, { host: `web ${host}` });
});
for (let round = 0; round < 2; round++) {
  requests.add(3, { route: "/a", ok: true, status: 200, share: 0.5, list: ["a", "b"] });
  queue.add(1.5);
  queue.add(-0.25);
  temperature.record(-9007199254740991);
  for (const value of [0.05, 0.5, 0.5, 5]) duration.record(value, { route: "/a" });
  for (const value of [0, 0.001, 1, 4096]) size.record(value);
  await provider.forceFlush();
}
await provider.shutdown();
