package dev.oxtsdb.kafka;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.sink.SinkRecord;

/** The records whose points are appended and not known to be durable, and the points of them that the server has rejected. */
final class Pending {
  private List<Entry> entries = new ArrayList<>();
  private final Map<Point, String> rejected = new HashMap<>();
  private int points;
  private long oldestNanos;

  private static final class Entry {
    private final SinkRecord record;
    private final List<Point> points;

    private Entry(SinkRecord record, List<Point> points) {
      this.record = record;
      this.points = points;
    }
  }

  /** Receives a record with rejected points. */
  @FunctionalInterface
  interface Action {
    void accept(SinkRecord record, InvalidRecordException error);
  }

  void add(SinkRecord record, List<Point> itsPoints) {
    if (entries.isEmpty()) {
      oldestNanos = System.nanoTime();
    }
    entries.add(new Entry(record, itsPoints));
    points += itsPoints.size();
  }

  /** Adds a point that the server has rejected for good. */
  void reject(Point point, String reason) {
    rejected.put(point, reason);
  }

  boolean isEmpty() {
    return entries.isEmpty();
  }

  int points() {
    return points;
  }

  /** Returns for how long the oldest record has been here. */
  long ageMs() {
    return entries.isEmpty() ? 0 : (System.nanoTime() - oldestNanos) / 1_000_000;
  }

  /** Returns all points, in the order in which they were appended. */
  Iterable<Point> all() {
    return () -> entries.stream().flatMap(entry -> entry.points.stream()).iterator();
  }

  /** Calls {@code action} for each record that has rejected points. */
  void forEachRejected(Action action) {
    if (rejected.isEmpty()) {
      return;
    }
    for (Entry entry : entries) {
      for (Point point : entry.points) {
        String reason = rejected.get(point);
        if (reason != null) {
          action.accept(entry.record, new InvalidRecordException("server rejects " + point + ": " + reason));
          break;
        }
      }
    }
  }

  /** Removes the records of partitions. */
  void remove(Set<TopicPartition> partitions) {
    List<Entry> kept = new ArrayList<>();
    points = 0;
    for (Entry entry : entries) {
      if (!partitions.contains(Positions.partition(entry.record))) {
        kept.add(entry);
        points += entry.points.size();
      }
    }
    entries = kept;
  }

  void clear() {
    entries = new ArrayList<>();
    rejected.clear();
    points = 0;
  }
}
