package dev.oxtsdb.writer;

import com.google.protobuf.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** Pauses before retries. They double, with jitter, until something is stored. */
final class Backoff {
  private static final long FIRST_NANOS = TimeUnit.MILLISECONDS.toNanos(50);
  private static final long LONGEST_NANOS = TimeUnit.SECONDS.toNanos(2);
  /** A server's own delay counts up to here. */
  private static final long LONGEST_DELAY_SECONDS = 30;

  private long nanos = FIRST_NANOS;

  /** Returns the next pause, in nanoseconds; at least {@code delay}. */
  long next(long delay) {
    long pause = ThreadLocalRandom.current().nextLong(nanos / 2, nanos + 1);
    nanos = Math.min(2 * nanos, LONGEST_NANOS);
    return Math.max(pause, delay);
  }

  void reset() {
    nanos = FIRST_NANOS;
  }

  /** Returns a delay that a server asks for, in nanoseconds. */
  static long nanos(Duration delay) {
    long seconds = Math.max(0, Math.min(delay.getSeconds(), LONGEST_DELAY_SECONDS));
    return TimeUnit.SECONDS.toNanos(seconds) + Math.max(0, delay.getNanos());
  }
}
