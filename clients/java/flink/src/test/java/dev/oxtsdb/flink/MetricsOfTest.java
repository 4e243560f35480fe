package dev.oxtsdb.flink;

import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.metrics.MetricConfig;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.reporter.MetricReporter;
import org.apache.flink.metrics.reporter.MetricReporterFactory;

/** A reporter that keeps metrics for the test: their names with their scope, which names job, task and subtask. */
public final class MetricsOfTest implements MetricReporterFactory, MetricReporter {
  private static final Map<String, Metric> ALL = new ConcurrentHashMap<>();

  static void reset() {
    ALL.clear();
  }

  /** Returns the sum of a counter or a gauge over the subtasks of the sink. */
  static long ofSink(String name) {
    return ALL.entrySet().stream()
        .filter(metric -> metric.getKey().contains(".Sink: Writer.") && metric.getKey().endsWith("." + name))
        .mapToLong(metric -> value(metric.getValue()))
        .sum();
  }

  private static long value(Metric metric) {
    return metric instanceof Counter
        ? ((Counter) metric).getCount()
        : ((Number) ((Gauge<?>) metric).getValue()).longValue();
  }

  @Override
  public MetricReporter createMetricReporter(Properties properties) {
    return this;
  }

  @Override
  public void open(MetricConfig config) {}

  @Override
  public void close() {}

  @Override
  public void notifyOfAddedMetric(Metric metric, String name, MetricGroup group) {
    ALL.put(group.getMetricIdentifier(name), metric);
  }

  /** Metrics stay: a test reads them after its job. */
  @Override
  public void notifyOfRemovedMetric(Metric metric, String name, MetricGroup group) {}
}
