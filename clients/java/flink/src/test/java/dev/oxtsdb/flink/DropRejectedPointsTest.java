package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class DropRejectedPointsTest {
  private static final RejectedPoint POINT =
      new RejectedPoint("m", Map.of("host", "a"), 1_600_000_000_000L, 5L, "no such thing", null);

  @Test
  void logsAtMostOneLineInTenSeconds() {
    DropRejectedPoints handler = new DropRejectedPoints();
    // `System.nanoTime` may be negative and overflow.
    long start = Long.MAX_VALUE - 5;
    assertEquals(
        Optional.of("dropped 1 rejected point: m{host=a} at 1600000000000 value 5: no such thing"), handler.line(POINT, start));
    long next = start + Duration.ofSeconds(10).toNanos();
    assertEquals(Optional.empty(), handler.line(POINT, start));
    assertEquals(Optional.empty(), handler.line(POINT, next - 1));
    assertEquals(
        Optional.of("dropped 3 rejected points, the last one: m{host=a} at 1600000000000 value 5: no such thing"),
        handler.line(POINT, next));
    assertEquals(Optional.empty(), handler.line(POINT, next));
  }
}
