package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.Records.record;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.writer.Series;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

/** Positions, pending records and rejections. */
class DeliveryTest {
  private static final TopicPartition PARTITION = new TopicPartition(Records.TOPIC, 0);
  private static final Series SERIES = Series.of("a", Map.of("b", "c"));

  private static Map<TopicPartition, OffsetAndMetadata> offset(long offset) {
    return Map.of(PARTITION, new OffsetAndMetadata(offset));
  }

  @Test
  void offsetsAreDurableAfterAFlush() {
    Positions positions = new Positions();
    positions.append(record("x", 6));
    assertTrue(positions.isAppended(record("x", 6)));
    assertFalse(positions.isAppended(record("x", 7)));
    assertEquals(Map.of(), positions.durable(offset(7)));
    positions.flush();
    positions.append(record("x", 7));
    assertEquals(offset(7), positions.durable(offset(8)));
    assertEquals(offset(5), positions.durable(offset(5)), "not beyond what Connect has delivered");
    positions.remove(Set.of(PARTITION));
    assertEquals(Map.of(), positions.durable(offset(8)));
    assertFalse(positions.isAppended(record("x", 0)));
  }

  @Test
  void aRecordIsRejectedOnceForAllOfItsPoints() {
    Pending pending = new Pending();
    SinkRecord good = record("good", 0);
    SinkRecord bad = record("bad", 1);
    pending.add(good, List.of(new Point(SERIES, 1, 1L), new Point(SERIES, 2, 0.5)));
    pending.add(bad, List.of(new Point(SERIES, 1, 2L), new Point(SERIES, 2, 1.0), new Point(SERIES, 3, 3L)));
    pending.reject(new Point(SERIES, 2, 1.0), "too early");
    pending.reject(new Point(SERIES, 3, 3L), "too early");
    List<String> rejected = new ArrayList<>();
    pending.forEachRejected((record, error) -> rejected.add(record.value() + ": " + error.getMessage()));
    assertEquals(List.of("bad: server rejects a 2 1.0 b=c: too early"), rejected);
    assertEquals(5, pending.points());
    pending.remove(Set.of(new TopicPartition(Records.TOPIC, 1)));
    assertEquals(5, pending.points());
    pending.remove(Set.of(PARTITION));
    assertTrue(pending.isEmpty());
    assertEquals(0, pending.points());
  }

  @Test
  void aRejectionFailsTheTaskUnlessErrorsAreTolerated() throws InterruptedException {
    InvalidRecordException error = new InvalidRecordException("field `value` is missing");
    ConnectException thrown = assertThrows(ConnectException.class, () -> new Rejections(null, false).report(record("x", 9), error));
    assertEquals(
        "record weather-0 at offset 9: field `value` is missing; errors.tolerance=all with errors.deadletterqueue.topic.name"
            + " sets such records aside",
        thrown.getMessage());
    new Rejections(null, true).report(record("x", 9), error);

    CompletableFuture<Void> report = new CompletableFuture<>();
    Rejections rejections = new Rejections((record, cause) -> report, false);
    rejections.report(record("x", 9), error);
    assertEquals(1, rejections.pending());
    report.completeExceptionally(new IllegalStateException("no leader"));
    assertEquals(
        "dead-letter queue has not taken a record: no leader", assertThrows(ConnectException.class, rejections::await).getMessage());
  }
}
