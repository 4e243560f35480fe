package dev.oxtsdb.writer;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** Pauses before retries. They double, with jitter, until something is stored. */
final class Backoff {
  private static final long FIRST_NANOS = TimeUnit.MILLISECONDS.toNanos(50);
  private static final long LONGEST_NANOS = TimeUnit.SECONDS.toNanos(2);
  /** A server's own delay counts up to here. */
  private static final Duration LONGEST_DELAY = Duration.ofSeconds(30);

  private long nanos = FIRST_NANOS;

  /** Returns the next pause, in nanoseconds; at least the delay that a server asks for. */
  long next(Duration delay) {
    long pause = ThreadLocalRandom.current().nextLong(nanos / 2, nanos + 1);
    nanos = Math.min(2 * nanos, LONGEST_NANOS);
    return Math.max(pause, nanos(delay));
  }

  void reset() {
    nanos = FIRST_NANOS;
  }

  /** Returns a delay that a server asks for, in nanoseconds and within bounds. */
  static long nanos(Duration delay) {
    return Math.max(0, TimeUnit.NANOSECONDS.convert(delay.compareTo(LONGEST_DELAY) < 0 ? delay : LONGEST_DELAY));
  }
}
