import com.google.gson.Gson;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.DoubleUpDownCounter;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.LongGauge;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.common.export.MemoryMode;
import io.opentelemetry.sdk.metrics.Aggregation;
import io.opentelemetry.sdk.metrics.InstrumentSelector;
import io.opentelemetry.sdk.metrics.InstrumentType;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.View;
import io.opentelemetry.sdk.metrics.data.AggregationTemporality;
import io.opentelemetry.sdk.metrics.data.DoublePointData;
import io.opentelemetry.sdk.metrics.data.ExponentialHistogramBuckets;
import io.opentelemetry.sdk.metrics.data.ExponentialHistogramPointData;
import io.opentelemetry.sdk.metrics.data.HistogramPointData;
import io.opentelemetry.sdk.metrics.data.LongPointData;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.metrics.data.PointData;
import io.opentelemetry.sdk.metrics.export.MetricExporter;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Sends the metrics that ../check.py lists with OpenTelemetry's SDK for Java, and prints each data point that was exported.
 *
 * <p>Argument: NAME. The variables OTEL_… configure the SDK.
 */
public final class Send {
  private static final int HOSTS = 200;

  private Send() {}

  /** Prints what its exporter sends. */
  private record Printing(MetricExporter exporter) implements MetricExporter {
    private static final Gson GSON = new Gson();

    @Override
    public CompletableResultCode export(Collection<MetricData> metrics) {
      for (MetricData metric : metrics) {
        for (PointData point : metric.getData().getPoints()) {
          System.out.println(GSON.toJson(fields(metric, point)));
        }
      }
      return exporter.export(metrics);
    }

    private static Map<String, Object> fields(MetricData metric, PointData point) {
      Map<String, Object> fields = new TreeMap<>();
      fields.put("metric", metric.getName());
      fields.put("resource", values(metric.getResource().getAttributes()));
      fields.put("attributes", values(point.getAttributes()));
      fields.put("time", point.getEpochNanos());
      switch (metric.getType()) {
        case LONG_GAUGE, DOUBLE_GAUGE -> fields.put("kind", "gauge");
        case LONG_SUM -> sum(fields, metric.getLongSumData().getAggregationTemporality());
        case DOUBLE_SUM -> sum(fields, metric.getDoubleSumData().getAggregationTemporality());
        case HISTOGRAM -> histogram(fields, (HistogramPointData) point, metric.getHistogramData().getAggregationTemporality());
        case EXPONENTIAL_HISTOGRAM ->
            exponential(
                fields,
                (ExponentialHistogramPointData) point,
                metric.getExponentialHistogramData().getAggregationTemporality());
        default -> throw new IllegalStateException(metric.getType() + " is not expected");
      }
      if (point instanceof LongPointData number) {
        fields.put("value", number.getValue());
      } else if (point instanceof DoublePointData number) {
        fields.put("value", number.getValue());
      }
      return fields;
    }

    private static Map<String, Object> values(Attributes attributes) {
      Map<String, Object> values = new TreeMap<>();
      attributes.forEach((key, value) -> values.put(key.getKey(), value));
      return values;
    }

    private static void sum(Map<String, Object> fields, AggregationTemporality temporality) {
      fields.put("kind", "sum");
      fields.put("temporality", temporality.name().toLowerCase());
    }

    private static void histogram(
        Map<String, Object> fields, HistogramPointData point, AggregationTemporality temporality) {
      fields.put("kind", "histogram");
      fields.put("temporality", temporality.name().toLowerCase());
      fields.put("count", point.getCount());
      fields.put("sum", point.getSum());
      fields.put("min", point.hasMin() ? point.getMin() : null);
      fields.put("max", point.hasMax() ? point.getMax() : null);
      fields.put("bounds", point.getBoundaries());
      fields.put("counts", point.getCounts());
    }

    private static void exponential(
        Map<String, Object> fields, ExponentialHistogramPointData point, AggregationTemporality temporality) {
      fields.put("kind", "exponential histogram");
      fields.put("temporality", temporality.name().toLowerCase());
      fields.put("count", point.getCount());
      fields.put("sum", point.getSum());
      fields.put("min", point.hasMin() ? point.getMin() : null);
      fields.put("max", point.hasMax() ? point.getMax() : null);
      fields.put("scale", point.getScale());
      fields.put("zero_count", point.getZeroCount());
      fields.put("positive", side(point.getPositiveBuckets()));
      fields.put("negative", side(point.getNegativeBuckets()));
    }

    private static Map<String, Object> side(ExponentialHistogramBuckets buckets) {
      return Map.of("offset", buckets.getOffset(), "counts", buckets.getBucketCounts());
    }

    @Override
    public CompletableResultCode flush() {
      return exporter.flush();
    }

    @Override
    public CompletableResultCode shutdown() {
      return exporter.shutdown();
    }

    @Override
    public AggregationTemporality getAggregationTemporality(InstrumentType type) {
      return exporter.getAggregationTemporality(type);
    }

    @Override
    public Aggregation getDefaultAggregation(InstrumentType type) {
      return exporter.getDefaultAggregation(type);
    }

    @Override
    public MemoryMode getMemoryMode() {
      return exporter.getMemoryMode();
    }
  }

  private static void complete(String what, CompletableResultCode result) {
    if (!result.join(30, TimeUnit.SECONDS).isSuccess()) {
      throw new IllegalStateException("a " + what + " failed");
    }
  }

  public static void main(String[] arguments) {
    String name = arguments[0];
    SdkMeterProvider provider =
        AutoConfiguredOpenTelemetrySdk.builder()
            .disableShutdownHook()
            .addMetricExporterCustomizer((exporter, config) -> new Printing(exporter))
            .addMeterProviderCustomizer(
                (builder, config) ->
                    builder.registerView(
                        InstrumentSelector.builder().setName(name + ".size").build(),
                        View.builder().setAggregation(Aggregation.base2ExponentialBucketHistogram()).build()))
            .build()
            .getOpenTelemetrySdk()
            .getSdkMeterProvider();
    Meter meter = provider.get("sender");
    LongCounter requests = meter.counterBuilder(name + ".requests").build();
    DoubleUpDownCounter queue = meter.upDownCounterBuilder(name + ".queue").ofDoubles().build();
    LongGauge temperature = meter.gaugeBuilder(name + ".temperature").ofLongs().build();
    DoubleHistogram duration =
        meter.histogramBuilder(name + ".duration").setExplicitBucketBoundariesAdvice(List.of(0.1, 1.0)).build();
    DoubleHistogram size = meter.histogramBuilder(name + ".size").build();
    meter
        .gaugeBuilder(name + ".load")
        .buildWithCallback(
            measurement -> {
              for (int host = 0; host < HOSTS; host++) {
                measurement.record(host / 4.0, Attributes.of(AttributeKey.stringKey("host"), "web " + host));
              }
            });
    Attributes route = Attributes.of(AttributeKey.stringKey("route"), "/a");
    Attributes all =
        route.toBuilder().put("ok", true).put("status", 200).put("share", 0.5).put("list", "a", "b").build();
    for (int round = 0; round < 2; round++) {
      requests.add(3, all);
      queue.add(1.5);
      queue.add(-0.25);
      temperature.set(-9007199254740991L);
      for (double value : List.of(0.05, 0.5, 0.5, 5.0)) {
        duration.record(value, route);
      }
      for (double value : List.of(0.0, 0.001, 1.0, 4096.0)) {
        size.record(value);
      }
      complete("flush", provider.forceFlush());
    }
    complete("shutdown", provider.shutdown());
  }
}
