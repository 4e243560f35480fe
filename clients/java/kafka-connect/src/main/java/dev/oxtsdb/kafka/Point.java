package dev.oxtsdb.kafka;

import dev.oxtsdb.writer.Series;
import dev.oxtsdb.writer.WriteException;
import dev.oxtsdb.writer.Writer;
import java.util.Objects;

/** A point of a record. */
final class Point {
  private final Series series;
  private final long timestampMs;
  /** A {@link Long} or a {@link Double}. */
  private final Number value;

  Point(Series series, long timestampMs, Number value) {
    this.series = series;
    this.timestampMs = timestampMs;
    this.value = value;
  }

  void appendTo(Writer writer) throws WriteException, InterruptedException {
    if (value instanceof Long) {
      writer.append(series, timestampMs, value.longValue());
    } else {
      writer.append(series, timestampMs, value.doubleValue());
    }
  }

  @Override
  public boolean equals(Object other) {
    if (!(other instanceof Point)) {
      return false;
    }
    Point point = (Point) other;
    return timestampMs == point.timestampMs && value.equals(point.value) && series.equals(point.series);
  }

  @Override
  public int hashCode() {
    return Objects.hash(series, timestampMs, value);
  }

  /** Returns the point as OpenTSDB's telnet protocol has it. */
  @Override
  public String toString() {
    StringBuilder line = new StringBuilder(series.metric()).append(' ').append(timestampMs).append(' ').append(value);
    series.tags().forEach((key, tag) -> line.append(' ').append(key).append('=').append(tag));
    return line.toString();
  }
}
