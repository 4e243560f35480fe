package dev.oxtsdb.kafka;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;

/** Hands records that are not stored to Connect's dead-letter queue. */
final class Rejections {
  private final ErrantRecordReporter reporter;
  private final boolean isTolerant;
  private final List<Future<Void>> reports = new ArrayList<>();

  /**
   * Rejections.
   *
   * @param reporter null if the connector has neither a dead-letter queue nor logs errors
   * @param isTolerant whether {@code errors.tolerance} is {@code all}; matters without a reporter, which knows it
   */
  Rejections(ErrantRecordReporter reporter, boolean isTolerant) {
    this.reporter = reporter;
    this.isTolerant = isTolerant;
  }

  /**
   * Reports a record.
   *
   * @throws ConnectException if errors are not tolerated
   */
  void report(SinkRecord record, InvalidRecordException error) {
    if (reporter != null) {
      reports.add(reporter.report(record, error));
    } else if (!isTolerant) {
      throw new ConnectException(
          String.format(
              "record %s-%d at offset %d: %s; errors.tolerance=all with errors.deadletterqueue.topic.name sets such records aside",
              record.originalTopic(), record.originalKafkaPartition(), record.originalKafkaOffset(), error.getMessage()),
          error);
    }
  }

  /** Returns the number of reports that {@link #await} has not waited for. */
  int pending() {
    return reports.size();
  }

  /** Returns when the dead-letter queue has all records that were reported. */
  void await() throws InterruptedException {
    for (Future<Void> report : reports) {
      try {
        report.get();
      } catch (ExecutionException error) {
        throw new ConnectException("dead-letter queue has not taken a record: " + error.getCause().getMessage(), error.getCause());
      }
    }
    reports.clear();
  }
}
