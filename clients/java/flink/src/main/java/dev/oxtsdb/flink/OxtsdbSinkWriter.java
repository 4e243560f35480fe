package dev.oxtsdb.flink;

import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.writer.Series;
import dev.oxtsdb.writer.Writer;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Map;
import java.util.Queue;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;

/**
 * The writer of a subtask. All methods and the timer run in the thread of the task, and so do the calls of the writer's listener.
 *
 * <p>It has no state: before a checkpoint completes, Flink calls {@code flush}, which returns when a server has acknowledged all points.
 */
final class OxtsdbSinkWriter<T> implements SinkWriter<T>, PointCollector {
  private final Writer writer;
  private final PointConverter<T> converter;
  private final RejectedPointHandler onRejected;
  private final Counter sent;
  private final Counter errors;
  private final ProcessingTimeService timers;
  private final long maxDelayMs;
  /** Points that the writer reported in its last call; at most as many as the server's window takes. */
  private final Queue<RejectedPoint> failed = new ArrayDeque<>();
  private volatile long flushMs;

  OxtsdbSinkWriter(
      Writer.Builder settings,
      PointConverter<T> converter,
      RejectedPointHandler onRejected,
      Duration maxDelay,
      SinkWriterMetricGroup metrics,
      ProcessingTimeService timers) {
    writer = settings.onFailed(this::failed).build();
    this.converter = converter;
    this.onRejected = onRejected;
    this.timers = timers;
    maxDelayMs = maxDelay.toMillis();
    sent = metrics.getNumRecordsSendCounter();
    errors = metrics.getNumRecordsSendErrorsCounter();
    metrics.setCurrentSendTimeGauge(() -> flushMs);
    metrics.gauge("pointsAcknowledged", () -> writer.statistics().acknowledged());
    metrics.gauge("pointsRetried", () -> writer.statistics().retries());
    metrics.gauge("streamsOpened", () -> writer.statistics().streams());
    scheduleFlush();
  }

  @Override
  public void write(T element, Context context) throws IOException, InterruptedException {
    converter.convert(element, context, this);
  }

  @Override
  public void flush(boolean endOfInput) throws IOException, InterruptedException {
    long began = System.nanoTime();
    writer.flush();
    rejectFailed();
    onRejected.flush();
    flushMs = Duration.ofNanos(System.nanoTime() - began).toMillis();
  }

  /** Sends an incomplete batch, which a slow stream would otherwise keep until the next checkpoint. */
  private void scheduleFlush() {
    timers.registerTimer(
        timers.getCurrentProcessingTime() + maxDelayMs,
        time -> {
          writer.flush();
          rejectFailed();
          scheduleFlush();
        });
  }

  /** After the end of the input all is flushed; after a failure or a cancellation, Flink repeats what is not acknowledged. */
  @Override
  public void close() throws IOException {
    writer.abort();
    onRejected.close();
  }

  @Override
  public void add(Series series, long timestamp, double value) throws IOException, InterruptedException {
    writer.append(series, timestamp, value);
    sent.inc();
    rejectFailed();
  }

  @Override
  public void add(Series series, long timestamp, long value) throws IOException, InterruptedException {
    writer.append(series, timestamp, value);
    sent.inc();
    rejectFailed();
  }

  @Override
  public void add(String metric, Map<String, String> tags, long timestamp, double value)
      throws IOException, InterruptedException {
    Series series = series(metric, tags, timestamp, value);
    if (series != null) {
      add(series, timestamp, value);
    }
  }

  @Override
  public void add(String metric, Map<String, String> tags, long timestamp, long value)
      throws IOException, InterruptedException {
    Series series = series(metric, tags, timestamp, value);
    if (series != null) {
      add(series, timestamp, value);
    }
  }

  /** Returns the series of a point, or null if its names make it a rejected point. */
  private Series series(String metric, Map<String, String> tags, long timestamp, Number value) throws IOException {
    try {
      return Series.of(metric, tags);
    } catch (IllegalArgumentException invalid) {
      reject(new RejectedPoint(metric, tags, timestamp, value, invalid.getMessage(), null));
      return null;
    }
  }

  /** Listens to the writer, which is locked meanwhile: keeps the point until the call of the writer returns. */
  private void failed(Series series, long timestamp, Number value, ItemError error) {
    String message = error == null ? "further errors of its batch were left out" : error.getMessage();
    failed.add(new RejectedPoint(series.metric(), series.tags(), timestamp, value, message, error));
  }

  private void rejectFailed() throws IOException {
    for (RejectedPoint point = failed.poll(); point != null; point = failed.poll()) {
      reject(point);
    }
  }

  private void reject(RejectedPoint point) throws IOException {
    errors.inc();
    onRejected.rejected(point);
  }
}
