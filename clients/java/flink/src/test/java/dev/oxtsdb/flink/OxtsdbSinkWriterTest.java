package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.writer.WriteException;
import dev.oxtsdb.writer.Writer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ScheduledFuture;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.junit.jupiter.api.Test;

/** The writer of a subtask without a server: what it rejects itself, and how it fails. */
class OxtsdbSinkWriterTest {
  /** No server listens on this port. */
  private static final String AWAY = "127.0.0.1:1";

  private final Timers timers = new Timers();

  private OxtsdbSinkWriter<String> writer(RejectedPointHandler handler) {
    return new OxtsdbSinkWriter<>(
        Writer.builder(AWAY).patience(Duration.ofMillis(100)),
        (metric, context, points) -> points.add(metric, Map.of("host", "a"), 1_600_000_000_000L, 7),
        handler,
        Duration.ofSeconds(3),
        UnregisteredMetricsGroup.createSinkWriterMetricGroup(),
        timers);
  }

  @Test
  void givesPointsThatNoServerTakesToTheHandler() throws Exception {
    List<RejectedPoint> rejected = new ArrayList<>();
    OxtsdbSinkWriter<String> writer = writer(rejected::add);
    writer.write("", null);
    writer.flush(true);
    assertEquals("{host=a} at 1600000000000 value 7: metric is empty", rejected.get(0).toString());
    assertEquals(7L, rejected.get(0).value());
  }

  @Test
  void failsByDefaultForARejectedPoint() {
    RejectedPointException failure =
        assertThrows(RejectedPointException.class, () -> writer(RejectedPointHandler.fail()).write("", null));
    assertEquals("rejected point {host=a} at 1600000000000 value 7: metric is empty", failure.getMessage());
  }

  @Test
  void flushesTheHandlerBeforeACheckpoint() throws Exception {
    List<String> calls = new ArrayList<>();
    OxtsdbSinkWriter<String> writer =
        writer(
            new RejectedPointHandler() {
              @Override
              public void rejected(RejectedPoint point) {
                calls.add("rejected");
              }

              @Override
              public void flush() {
                calls.add("flush");
              }

              @Override
              public void close() {
                calls.add("close");
              }
            });
    writer.write("", null);
    writer.flush(false);
    writer.close();
    assertEquals(List.of("rejected", "flush", "close"), calls);
  }

  @Test
  void aFlushFailsWhenPatienceIsExhausted() throws Exception {
    OxtsdbSinkWriter<String> writer = writer(RejectedPointHandler.fail());
    writer.write("m", null);
    WriteException failure = assertThrows(WriteException.class, () -> writer.flush(false));
    assertTrue(failure.isTransient());
    // Without a second attempt: Flink repeats the points.
    writer.close();
  }

  @Test
  void aTimerFlushesAndFailsTheTask() throws Exception {
    OxtsdbSinkWriter<String> writer = writer(RejectedPointHandler.fail());
    assertEquals(3_000, timers.time);
    timers.callback.onProcessingTime(timers.time);
    assertEquals(6_000, timers.time);
    writer.write("m", null);
    assertThrows(WriteException.class, () -> timers.callback.onProcessingTime(timers.time));
    writer.close();
  }

  /** The clock stands at the last timer. */
  private static final class Timers implements ProcessingTimeService {
    private long time;
    private ProcessingTimeCallback callback;

    @Override
    public long getCurrentProcessingTime() {
      return time;
    }

    @Override
    public ScheduledFuture<?> registerTimer(long time, ProcessingTimeCallback callback) {
      this.time = time;
      this.callback = callback;
      return null;
    }
  }
}
