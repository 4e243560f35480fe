package dev.oxtsdb.writer;

import dev.oxtsdb.proto.common.v1.ItemError;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Acknowledged points to send again: those that a server rejected for now, and behind them all later points of their instants, which have
 * to win.
 */
final class Retry {
  private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);

  private final Batch points;
  private final Set<Map.Entry<Series, Long>> instants = new HashSet<>();
  private String cause = "points are rejected for now";
  /** The longest delay that the server asks for; 0: none. */
  private long delayNanos;

  Retry(long ordinal) {
    points = new Batch(ordinal);
  }

  /**
   * Adds a point.
   *
   * @param error why it was rejected; null if that is unknown, or if it was stored
   */
  void add(Batch batch, int at, ItemError error) {
    points.add(batch, at);
    instants.add(batch.instant(at));
    if (error != null) {
      cause = "points are rejected for now: " + error.getMessage();
      Duration delay = Duration.ofSeconds(error.getRetryDelay().getSeconds(), error.getRetryDelay().getNanos());
      delayNanos = Math.max(delayNanos, Backoff.nanos(delay));
    }
  }

  boolean hasInstant(Batch batch, int at) {
    return instants.contains(batch.instant(at));
  }

  Batch points() {
    return points;
  }

  String cause() {
    return cause;
  }

  long pauseNanos() {
    return delayNanos > 0 ? delayNanos : PAUSE_NANOS;
  }
}
