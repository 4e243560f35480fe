package dev.oxtsdb.flink;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.Callable;

/** Waits for conditions. */
final class Wait {
  private Wait() {}

  /** Returns when a condition holds. An {@link IOException} counts as false: the server that it reads from may be away. */
  static void until(String what, Duration limit, Callable<Boolean> condition) throws Exception {
    long end = System.nanoTime() + limit.toNanos();
    while (!holds(condition)) {
      if (System.nanoTime() > end) {
        throw new AssertionError("not within " + limit + ": " + what);
      }
      Thread.sleep(20);
    }
  }

  private static boolean holds(Callable<Boolean> condition) throws Exception {
    try {
      return condition.call();
    } catch (IOException away) {
      return false;
    }
  }
}
