package dev.oxtsdb.kafka;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.writer.Series;
import dev.oxtsdb.writer.Writer;
import io.grpc.Status;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import javax.management.JMException;
import javax.management.ObjectName;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class OxtsdbSinkTaskTest {
  private static final TopicPartition FIRST = new TopicPartition("weather", 0);
  private static final TopicPartition SECOND = new TopicPartition("weather", 1);

  private static final long PATIENCE_MS = 30_000;
  /** The patience of tests in which calls fail because a server is away. */
  private static final long SHORT_MS = 2_000;

  private final OxtsdbSinkTask task = new OxtsdbSinkTask();
  private final List<String> reported = new ArrayList<>();
  private StubServer server;
  private long timeoutMs;

  /** The first connection loads gRPC's classes, which may take longer than {@link #SHORT_MS}. */
  @BeforeAll
  static void connect() throws IOException, InterruptedException {
    try (StubServer server = new StubServer();
        Writer writer = Writer.builder(server.endpoint()).build()) {
      writer.append(Series.of("a", Map.of("b", "c")), 1, 1L);
    }
  }

  @BeforeEach
  void startServer() throws IOException {
    server = new StubServer();
  }

  @AfterEach
  void stop() throws InterruptedException {
    task.stop();
    server.close();
  }

  private void start(long flushIntervalMs, long patienceMs, boolean hasReporter) {
    task.initialize(new Context(hasReporter ? this::report : null));
    task.start(
        Records.settings(
            "name", "test",
            SinkSettings.ENDPOINTS, server.endpoint(),
            SinkSettings.TOKEN, "secret",
            SinkSettings.PATIENCE_MS, String.valueOf(patienceMs),
            SinkSettings.FLUSH_INTERVAL_MS, String.valueOf(flushIntervalMs)));
    task.open(Set.of(FIRST, SECOND));
  }

  private CompletableFuture<Void> report(SinkRecord record, Throwable error) {
    reported.add(record.kafkaOffset() + ": " + error.getMessage());
    return CompletableFuture.completedFuture(null);
  }

  private static SinkRecord record(TopicPartition partition, long offset, Object value) {
    return new SinkRecord(
        partition.topic(), partition.partition(), null, null, null, value, offset, offset + 1, TimestampType.CREATE_TIME);
  }

  private static Map<String, Object> value(Object value) {
    return Map.of("value", value);
  }

  private Map<TopicPartition, OffsetAndMetadata> commit(long first, long second) {
    return task.preCommit(offsets(first, second));
  }

  private static Map<TopicPartition, OffsetAndMetadata> offsets(long first, long second) {
    return Map.of(FIRST, new OffsetAndMetadata(first), SECOND, new OffsetAndMetadata(second));
  }

  private static long counter(String name) throws JMException {
    ObjectName metrics = new ObjectName("dev.oxtsdb.kafka:type=sink-task,connector=\"test\",task=0");
    return (Long) ManagementFactory.getPlatformMBeanServer().getAttribute(metrics, name);
  }

  @Test
  void commitsStoredAndReportedRecords() throws JMException {
    start(60_000, PATIENCE_MS, true);
    task.put(
        List.of(
            record(FIRST, 0, value(1)),
            record(FIRST, 1, value("x")),
            record(FIRST, 2, value(-2)),
            record(FIRST, 3, null),
            record(SECOND, 0, value(0.5))));
    assertEquals(List.of("1: field `value`: `x` is not a number"), reported);
    assertTrue(timeoutMs > 0 && timeoutMs <= 60_000, "Connect calls again after " + timeoutMs);
    assertEquals(3, counter("PointsPending"));
    assertEquals(offsets(4, 1), commit(4, 1));
    assertEquals("2: server rejects weather 3 -2 source=kafka: value is negative", reported.get(1));
    assertEquals(2, reported.size());
    assertEquals(Set.of("weather 1 1", "weather 1 0.5"), Set.copyOf(server.stored()));
    assertEquals("Bearer secret", server.authorization());
    assertEquals(
        List.of(2L, 1L, 2L, 0L),
        List.of(counter("PointsWritten"), counter("PointsRejected"), counter("RecordsRejected"), counter("PointsPending")));
  }

  @Test
  void repeatsACallUntilTheServerIsBack() throws JMException {
    start(0, SHORT_MS, true);
    server.failWith(Status.UNAVAILABLE);
    List<SinkRecord> records = List.of(record(FIRST, 0, value(1)), record(SECOND, 0, value(2)));
    assertThrows(RetriableException.class, () -> task.put(records));
    assertEquals(500, timeoutMs);
    assertEquals(Map.of(), commit(0, 0));
    assertEquals(1, counter("CallsRetried"));
    server.failWith(null);
    task.put(records);
    assertEquals(List.of("weather 1 1", "weather 1 2"), server.stored(), "each is written once");
    server.failWith(Status.UNAVAILABLE);
    assertThrows(RetriableException.class, () -> task.put(List.of(record(FIRST, 1, value(3)))));
    assertEquals(offsets(1, 1), commit(2, 1), "the offsets of what was stored before");
  }

  @Test
  void dropsThePointsOfLostPartitions() {
    start(60_000, SHORT_MS, true);
    server.failWith(Status.UNAVAILABLE);
    task.put(List.of(record(FIRST, 0, value(1)), record(SECOND, 0, value(2)), record(SECOND, 1, value(3))));
    assertEquals(Map.of(), commit(1, 2));
    task.close(Set.of(FIRST));
    server.failWith(null);
    task.put(List.of());
    assertEquals(List.of("weather 1 2", "weather 2 3"), server.stored());
    task.open(Set.of(FIRST));
    task.put(List.of(record(FIRST, 0, value(4))));
    assertEquals(offsets(1, 2), commit(1, 2));
    assertEquals("weather 1 4", server.stored().get(2));
  }

  @Test
  void failsIfARetryIsOfNoUse() {
    start(0, PATIENCE_MS, true);
    server.failWith(Status.PERMISSION_DENIED.withDescription("no right to write"));
    ConnectException error = assertThrows(ConnectException.class, () -> task.put(List.of(record(FIRST, 0, value(1)))));
    assertFalse(error instanceof RetriableException);
    assertTrue(error.getMessage().contains("no right to write"), error.getMessage());
    assertEquals(Map.of(), commit(1, 0));
  }

  @Test
  void aRejectedPointFailsATaskWithoutTolerance() {
    start(0, PATIENCE_MS, false);
    ConnectException error = assertThrows(ConnectException.class, () -> task.put(List.of(record(FIRST, 7, value(-1)))));
    String message = "record weather-0 at offset 7: server rejects weather 8 -1 source=kafka: value is negative; ";
    assertTrue(error.getMessage().startsWith(message), error.getMessage());
    assertThrows(ConnectException.class, () -> commit(7, 0), "the record is not passed over");
  }

  private final class Context implements SinkTaskContext {
    private final ErrantRecordReporter reporter;

    private Context(ErrantRecordReporter reporter) {
      this.reporter = reporter;
    }

    @Override
    public Map<String, String> configs() {
      return Map.of();
    }

    @Override
    public void offset(Map<TopicPartition, Long> offsets) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void offset(TopicPartition partition, long offset) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void timeout(long milliseconds) {
      timeoutMs = milliseconds;
    }

    @Override
    public Set<TopicPartition> assignment() {
      return Set.of();
    }

    @Override
    public void pause(TopicPartition... partitions) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void resume(TopicPartition... partitions) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void requestCommit() {
      throw new UnsupportedOperationException();
    }

    @Override
    public ErrantRecordReporter errantRecordReporter() {
      return reporter;
    }
  }
}
