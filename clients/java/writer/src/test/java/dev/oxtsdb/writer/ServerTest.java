package dev.oxtsdb.writer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.testing.ReadmeExample;
import dev.oxtsdb.testing.TsdbServer;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** The writer against {@code tsdb serve}. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(120)
class ServerTest {
  private static final Series ONE = Series.of("writer.test", Map.of("host", "a"));
  /** Points are recent; rows are hours. */
  private static final long START = (System.currentTimeMillis() / 3_600_000 - 2) * 3_600_000;

  @TempDir Path folder;
  private final List<TsdbServer> servers = new ArrayList<>();

  @AfterEach
  void endServers() {
    servers.forEach(TsdbServer::close);
  }

  private TsdbServer serve(String... flags) throws IOException {
    TsdbServer server = new TsdbServer(folder, flags);
    servers.add(server);
    return server;
  }

  private static void append(Writer writer, long from, long to) throws Exception {
    for (long number = from; number < to; number++) {
      writer.append(ONE, START + number * 1000, number);
    }
  }

  private static Map<Long, Double> points(long count) {
    return LongStream.range(0, count).boxed().collect(Collectors.toMap(number -> number, Long::doubleValue, (a, b) -> a, TreeMap::new));
  }

  @Test
  void aDrainLosesNothing() throws Exception {
    TsdbServer first = serve();
    TsdbServer second = serve();
    long count = 2000;
    try (Writer writer = Writer.builder(first.endpoint(), second.endpoint()).batchPoints(100).build()) {
      append(writer, 0, 1000);
      writer.flush();
      append(writer, 1000, count);
      first.terminate();
      while (second.points("writer.test", START).isEmpty()) {
        assertTrue(count < 7000, "the writer stays with a server that drains");
        append(writer, count, count + 20);
        writer.flush();
        count += 20;
      }
    }
    first.await();
    first.start();
    Map<Long, Double> stored = first.points("writer.test", START);
    stored.putAll(second.points("writer.test", START));
    assertEquals(points(count), stored);
  }

  @Test
  void aServerDoesNotWaitForAnIdleWriter() throws Exception {
    TsdbServer server = serve("--stream-grace-seconds=600", "--drain-seconds=600");
    try (Writer writer = Writer.builder(server.endpoint()).build()) {
      append(writer, 0, 10);
      writer.flush();
      server.terminate();
      server.await();
      server.start();
      append(writer, 10, 20);
    }
    assertEquals(points(20), server.points("writer.test", START));
  }

  @Test
  void aKilledServerThatIsStartedAgainLosesNothing() throws Exception {
    TsdbServer server = serve();
    ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();
    try (Writer writer = Writer.builder(server.endpoint()).batchPoints(100).build()) {
      append(writer, 0, 1000);
      writer.flush();
      append(writer, 1000, 2000);
      server.close();
      Callable<Void> start =
          () -> {
            server.start();
            return null;
          };
      Future<Void> started = later.schedule(start, 500, TimeUnit.MILLISECONDS);
      append(writer, 2000, 5000);
      writer.flush();
      started.get();
    } finally {
      later.shutdown();
    }
    assertEquals(points(5000), server.points("writer.test", START));
  }

  @Test
  void reportsFailedPointsWithWhichAndWhy() throws Exception {
    Map<Number, ErrorReason> failed = new HashMap<>();
    Series invalid = Series.of("not a name", Map.of("host", "a"));
    Writer writer =
        Writer.builder(serve().endpoint())
            .batchPoints(10)
            .onFailed((series, timestamp, value, error) -> assertNull(failed.put(value, error.getReason())))
            .build();
    try (writer) {
      for (int number = 0; number < 25; number++) {
        writer.append(number % 10 == 3 ? invalid : ONE, START + number * 1000, number + 0.5);
      }
      writer.append(ONE, 1_500_000_000, 100); // seconds in place of milliseconds
      writer.append(ONE, START, Double.NaN);
    }
    assertEquals(
        Map.of(
            3.5, ErrorReason.ERROR_REASON_INVALID_NAME,
            13.5, ErrorReason.ERROR_REASON_INVALID_NAME,
            23.5, ErrorReason.ERROR_REASON_INVALID_NAME,
            100L, ErrorReason.ERROR_REASON_IMPLAUSIBLE_TIMESTAMP,
            Double.NaN, ErrorReason.ERROR_REASON_INVALID_VALUE),
        failed);
    assertEquals(22, writer.statistics().acknowledged());
  }

  @Test
  void extremeTimestampsFailAlone() throws Exception {
    List<Number> failed = new ArrayList<>();
    TsdbServer server = serve();
    try (Writer writer = Writer.builder(server.endpoint()).onFailed((series, timestamp, value, error) -> failed.add(value)).build()) {
      append(writer, 0, 5);
      writer.append(ONE, Long.MIN_VALUE, 100);
      writer.append(ONE, Long.MAX_VALUE, 101);
      writer.append(ONE, 0, 102);
      append(writer, 5, 10);
    }
    assertEquals(List.of(100L, 101L, 102L), failed);
    assertEquals(points(10), server.points("writer.test", START));
  }

  @Test
  void pointsOfAnInstantKeepTheirOrderWhateverTheirTypes() throws Exception {
    TsdbServer server = serve();
    Map<String, String> tags = new TreeMap<>(Map.of("host", "a", "cpu", "0"));
    Series two = Series.of("writer.two", tags);
    Series reordered = Series.of("writer.two", ((TreeMap<String, String>) tags).descendingMap());
    try (Writer writer = Writer.builder(server.endpoint()).build()) {
      writer.append(ONE, START, 0.5);
      writer.append(two, START, 1.5);
      writer.append(ONE, START, 2);
      writer.append(reordered, START, 3);
      writer.append(ONE, START + 1000, 4.5);
    }
    assertEquals(Map.of(0L, 2.0, 1L, 4.5), server.points("writer.test", START));
    assertEquals(Map.of(0L, 3.0), server.points("writer.two", START));
  }

  @Test
  void manyThreadsShareAWriter() throws Exception {
    int threads = 8;
    int count = 4000;
    TsdbServer server = serve();
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try (Writer writer = Writer.builder(server.endpoint()).batchPoints(64).build()) {
      List<Future<Void>> done = new ArrayList<>();
      for (int thread = 0; thread < threads; thread++) {
        Series series = Series.of("writer.threads." + thread, Map.of("host", "a"));
        done.add(
            pool.submit(
                () -> {
                  for (int number = 0; number < count; number++) {
                    writer.append(series, START + number * 1000, number);
                    if (number % 1000 == 0) {
                      writer.flush();
                    }
                  }
                  return null;
                }));
      }
      for (Future<Void> each : done) {
        each.get();
      }
      writer.flush();
      assertEquals(threads * count, writer.statistics().acknowledged());
    } finally {
      pool.shutdownNow();
    }
    for (int thread = 0; thread < threads; thread++) {
      assertEquals(points(count), server.points("writer.threads." + thread, START));
    }
  }

  @Test
  void theExampleOfTheReadme() throws Exception {
    TsdbServer server = serve();
    ReadmeExample.run(folder, "\"127.0.0.1:4243\", \"127.0.0.1:5243\"", "\"" + server.endpoint() + "\"");
    long hour = System.currentTimeMillis() / 3_600_000 * 3_600_000 - 3_600_000;
    assertEquals(1000, server.points("sys.cpu.user", hour).size());
  }
}
