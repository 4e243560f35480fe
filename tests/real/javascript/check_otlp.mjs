// Exports metrics of all instruments with OpenTelemetry's SDK for JavaScript, in JSON, twice, and finds them again.
//
//   node check_otlp.mjs SERVER

import assert from "node:assert/strict";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { AggregationType, MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";

const [server] = process.argv.slice(2);
const HOSTS = 200;

// The values of a metric, by its tags without those of the resource.
async function stored(metric) {
  const query = new URLSearchParams({ start: "10m-ago", ms: "true", m: `none:${metric}{}` });
  const response = await fetch(`${server}/api/query?${query}`);
  const found = {};
  for (const { tags, dps } of await response.json()) {
    assert.equal(tags["service.name"], "checker");
    delete tags["service.name"];
    found[JSON.stringify(tags)] = Object.values(dps);
  }
  return found;
}

// `forceFlush` and the shutdown export, the timer never does.
const exporter = new OTLPMetricExporter({ url: `${server}/v1/metrics` });
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
const provider = new MeterProvider({
  readers: [reader],
  resource: resourceFromAttributes({ "service.name": "checker", deployment: "test" }),
  views: [
    {
      instrumentName: "js.duration",
      aggregation: { type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM, options: { boundaries: [0.1, 1] } },
    },
    { instrumentName: "js.size", aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM } },
  ],
});
const meter = provider.getMeter("check");
const requests = meter.createCounter("js.requests", { unit: "1" });
const duration = meter.createHistogram("js.duration", { unit: "s" });
const size = meter.createHistogram("js.size", { unit: "By" });
meter.createObservableGauge("js.load").addCallback((result) => {
  for (let host = 0; host < HOSTS; host++) result.observe(host / 4, { host: `web ${host}` });
});
for (let round = 0; round < 2; round++) {
  requests.add(3, { route: "/a" });
  for (const value of [0.05, 0.5, 0.5, 5]) duration.record(value, { route: "/a" });
  size.record(4096);
  await provider.forceFlush();
}
await provider.shutdown();

// The flush at the end exports once more.
const twice = async (metric, tags) => (await stored(metric))[JSON.stringify(tags)].slice(0, 2);
assert.deepEqual(await twice("js.requests", { route: "/a" }), [3, 6]);
assert.deepEqual(await twice("js.duration_count", { route: "/a" }), [4, 8]);
for (const [le, values] of Object.entries({ 0.1: [1, 2], 1: [3, 6], _Inf: [4, 8] })) {
  assert.deepEqual(await twice("js.duration_bucket", { route: "/a", le }), values, `le=${le}`);
}
assert.equal((await twice("js.duration_sum", { route: "/a" }))[0], 6.05);
assert.deepEqual(await twice("js.size_count", {}), [1, 2]);
const load = await stored("js.load");
for (let host = 0; host < HOSTS; host++) {
  assert.equal(load[JSON.stringify({ host: `web_${host}` })][0], host / 4);
}
console.log(`OpenTelemetry, JSON: ${HOSTS} gauges, a counter and two histograms are stored`);
