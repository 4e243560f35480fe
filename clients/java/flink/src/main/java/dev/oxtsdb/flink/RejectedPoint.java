package dev.oxtsdb.flink;

import dev.oxtsdb.proto.common.v1.ItemError;
import java.util.Map;
import java.util.Optional;

/** A point that is not stored and would be rejected again. */
public final class RejectedPoint {
  private final String metric;
  private final Map<String, String> tags;
  private final long timestamp;
  private final Number value;
  private final String message;
  private final ItemError error;

  RejectedPoint(String metric, Map<String, String> tags, long timestamp, Number value, String message, ItemError error) {
    this.metric = metric;
    this.tags = tags;
    this.timestamp = timestamp;
    this.value = value;
    this.message = message;
    this.error = error;
  }

  /**
   * Returns the name of the metric.
   *
   * @return the metric
   */
  public String metric() {
    return metric;
  }

  /**
   * Returns the tags.
   *
   * @return tag keys with their values
   */
  public Map<String, String> tags() {
    return tags;
  }

  /**
   * Returns the timestamp.
   *
   * @return in the unit of the options
   */
  public long timestamp() {
    return timestamp;
  }

  /**
   * Returns the value.
   *
   * @return a {@link Long} or a {@link Double}, as it was added
   */
  public Number value() {
    return value;
  }

  /**
   * Returns why the point was rejected, for people.
   *
   * @return a message in English; not stable
   */
  public String message() {
    return message;
  }

  /**
   * Returns the server's error, for programs.
   *
   * @return empty if the point was not sent because no server takes its names, and behind the first 10,000 errors of a batch
   */
  public Optional<ItemError> error() {
    return Optional.ofNullable(error);
  }

  /** Returns the point and the message, in one line. */
  @Override
  public String toString() {
    return metric + tags.toString().replace(", ", ",") + " at " + timestamp + " value " + value + ": " + message;
  }
}
