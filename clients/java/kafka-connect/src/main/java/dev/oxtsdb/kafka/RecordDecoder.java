package dev.oxtsdb.kafka;

import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;

/** Returns the points of records of one form. */
@FunctionalInterface
interface RecordDecoder {
  /**
   * Returns the points of a record, at least one. A record whose value is null, which deletes a key of a compacted topic, does not get
   * here.
   *
   * @throws InvalidRecordException for a record with a point that is not valid: none of its points is written
   */
  List<Point> points(SinkRecord record);
}
