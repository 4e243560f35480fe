package dev.oxtsdb.kafka;

import static dev.oxtsdb.proto.data.v1.TimeUnit.TIME_UNIT_MILLISECONDS;

import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import dev.oxtsdb.writer.Series;
import dev.oxtsdb.writer.WriteException;
import dev.oxtsdb.writer.Writer;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes the points of records.
 *
 * <pre>
 *   put ─► decode ─► writer ─► server          pending: records until their points are durable
 *             └ not valid ┴ rejected ─► dead-letter queue
 *   put after flush.interval.ms, preCommit ─► flush: all of it is durable, then offsets advance
 * </pre>
 */
public final class OxtsdbSinkTask extends SinkTask {
  private static final Logger LOG = LoggerFactory.getLogger(OxtsdbSinkTask.class);
  private static final int MAX_ERRORS = 10_000;
  /** Connect repeats a failed call after this time. */
  private static final long RETRY_PAUSE_MS = 500;

  private final Pending pending = new Pending();
  private final Positions positions = new Positions();
  private RecordDecoder decoder;
  private Rejections rejections;
  private SinkMetrics metrics;
  private Writer.Builder writers;
  /** Null before the first write, and after {@link #close} has aborted it. */
  private Writer writer;
  private long flushIntervalMs;
  private int flushPoints;
  /** Whether the last write has failed: the writer has points that go before all new ones. */
  private boolean isFailing;

  @Override
  public String version() {
    return Version.get();
  }

  @Override
  public void start(Map<String, String> properties) {
    SinkSettings settings = new SinkSettings(properties);
    decoder = settings.decoder();
    flushIntervalMs = settings.getLong(SinkSettings.FLUSH_INTERVAL_MS);
    flushPoints = settings.getInt(SinkSettings.FLUSH_POINTS);
    rejections = new Rejections(context.errantRecordReporter(), "all".equals(properties.get("errors.tolerance")));
    WriteOptions options =
        WriteOptions.newBuilder()
            .setTimeUnit(TIME_UNIT_MILLISECONDS)
            .setAllowAnyTime(settings.getBoolean(SinkSettings.TIMESTAMP_ALLOW_ANY))
            .setMaxErrors(MAX_ERRORS)
            .build();
    writers =
        Writer.builder(settings.endpoints())
            .channel(new Channels(settings))
            .options(options)
            .batchPoints(settings.getInt(SinkSettings.BATCH_POINTS))
            .patience(Duration.ofMillis(settings.getLong(SinkSettings.PATIENCE_MS)))
            .onFailed(this::reject);
    metrics = new SinkMetrics(properties.getOrDefault("name", "oxtsdb"), properties.getOrDefault(SinkSettings.TASK, "0"));
  }

  private void reject(Series series, long timestampMs, Number value, ItemError error) {
    String reason = error == null ? "not among the first " + MAX_ERRORS + " errors of a frame" : error.getMessage();
    pending.reject(new Point(series, timestampMs, value), reason);
  }

  /** The offsets of new partitions are those that were committed: all of their records are new. */
  @Override
  public void open(Collection<TopicPartition> partitions) {
    positions.remove(partitions);
  }

  @Override
  public void put(Collection<SinkRecord> records) {
    try {
      if (isFailing) {
        flush();
      }
      for (SinkRecord record : records) {
        if (!positions.isAppended(record)) {
          append(record);
          positions.append(record);
        }
      }
      long remainingMs = flushIntervalMs - pending.ageMs();
      if (remainingMs <= 0 || pending.points() + rejections.pending() >= flushPoints) {
        flush();
      } else if (!pending.isEmpty()) {
        // Connect calls again by then, if only with no records.
        context.timeout(remainingMs);
      }
    } catch (WriteException error) {
      isFailing = true;
      if (!error.isTransient()) {
        throw new ConnectException("server does not store points: " + error.getMessage(), error);
      }
      metrics.countRetriedCall();
      context.timeout(RETRY_PAUSE_MS);
      throw new RetriableException("points are not stored yet: " + error.getMessage(), error);
    } catch (InterruptedException error) {
      throw interrupted(error);
    } finally {
      addStatistics();
    }
  }

  private void append(SinkRecord record) throws WriteException, InterruptedException {
    if (record.value() == null) {
      return;
    }
    List<Point> points;
    try {
      points = decoder.points(record);
    } catch (InvalidRecordException error) {
      report(record, error);
      return;
    }
    for (Point point : points) {
      point.appendTo(writer());
    }
    pending.add(record, points);
  }

  /** Returns the writer, which has all pending points: a new one gets them again. */
  private Writer writer() throws WriteException, InterruptedException {
    if (writer == null) {
      Writer opened = writers.build();
      try {
        for (Point point : pending.all()) {
          point.appendTo(opened);
        }
      } catch (WriteException | InterruptedException error) {
        opened.abort();
        throw error;
      }
      writer = opened;
    }
    return writer;
  }

  private void report(SinkRecord record, InvalidRecordException error) {
    rejections.report(record, error);
    metrics.countRejectedRecord();
  }

  /** Returns when every appended record is durable, or in the dead-letter queue. */
  private void flush() throws WriteException, InterruptedException {
    if (!pending.isEmpty() || isFailing) {
      writer().flush();
      isFailing = false;
    }
    pending.forEachRejected(this::report);
    rejections.await();
    pending.clear();
    positions.flush();
  }

  /** Returns the offsets of records that are durable. A failure leaves the rest to the next commit, and is reported by {@code put}. */
  @Override
  public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> consumed) {
    try {
      flush();
      return consumed;
    } catch (WriteException error) {
      isFailing = true;
      LOG.warn("offsets are not committed, as points are not stored yet: {}", error.getMessage());
      return positions.durable(consumed);
    } catch (InterruptedException error) {
      throw interrupted(error);
    } finally {
      addStatistics();
    }
  }

  /**
   * Drops the points of partitions that another task reads from now on. It writes them too, and a late write of this task could replace
   * its newer values.
   */
  @Override
  public void close(Collection<TopicPartition> partitions) {
    if (!pending.isEmpty() || isFailing) {
      pending.remove(Set.copyOf(partitions));
      abort();
    }
    positions.remove(partitions);
  }

  @Override
  public void stop() {
    abort();
    if (metrics != null) {
      metrics.close();
    }
  }

  private void abort() {
    if (writer != null) {
      addStatistics();
      metrics.endWriter();
      writer.abort();
      writer = null;
    }
  }

  private void addStatistics() {
    if (writer != null) {
      metrics.add(writer.statistics());
    }
  }

  private static ConnectException interrupted(InterruptedException error) {
    Thread.currentThread().interrupt();
    return new ConnectException("task was interrupted while it waited for the server", error);
  }
}
