package dev.oxtsdb.kafka;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/** How far the records of each partition are appended, and how far they are durable. Offsets are of the next record. */
final class Positions {
  private final Map<TopicPartition, Long> appended = new HashMap<>();
  private final Map<TopicPartition, Long> durable = new HashMap<>();

  /** Returns the partition of a record in Kafka, which transformations do not change. */
  static TopicPartition partition(SinkRecord record) {
    return new TopicPartition(record.originalTopic(), record.originalKafkaPartition());
  }

  /** Whether a record was appended before: Connect repeats a batch of which a part was. */
  boolean isAppended(SinkRecord record) {
    return record.originalKafkaOffset() < appended.getOrDefault(partition(record), 0L);
  }

  void append(SinkRecord record) {
    appended.put(partition(record), record.originalKafkaOffset() + 1);
  }

  /** Everything that is appended is durable. */
  void flush() {
    durable.putAll(appended);
  }

  /** Returns the offsets up to which records are both consumed and durable. */
  Map<TopicPartition, OffsetAndMetadata> durable(Map<TopicPartition, OffsetAndMetadata> consumed) {
    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    consumed.forEach((partition, end) -> {
      Long offset = durable.get(partition);
      if (offset != null) {
        offsets.put(partition, offset < end.offset() ? new OffsetAndMetadata(offset) : end);
      }
    });
    return offsets;
  }

  void remove(Collection<TopicPartition> partitions) {
    appended.keySet().removeAll(partitions);
    durable.keySet().removeAll(partitions);
  }
}
