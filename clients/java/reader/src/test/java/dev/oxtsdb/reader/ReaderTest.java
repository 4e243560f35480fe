package dev.oxtsdb.reader;

import static dev.oxtsdb.reader.FakeServer.points;
import static dev.oxtsdb.reader.FakeServer.series;
import static dev.oxtsdb.reader.FakeServer.statistics;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.data.v1.AggregateFunction;
import dev.oxtsdb.proto.data.v1.DeltaTimestamps;
import dev.oxtsdb.proto.data.v1.QueryRequest;
import dev.oxtsdb.proto.data.v1.QueryResponse;
import dev.oxtsdb.testing.ReadmeExample;
import dev.oxtsdb.testing.TsdbServer;
import dev.oxtsdb.writer.Writer;
import io.grpc.Status;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** The reader against {@code tsdb serve}, and against a server that sends what a test says. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(60)
class ReaderTest {
  private static final int COUNT = 10_000;
  /** Points are recent; rows are hours. */
  private static final long START = (System.currentTimeMillis() / 3_600_000 - 2) * 3_600_000;

  @TempDir static Path folder;
  private static TsdbServer server;

  @BeforeAll
  static void writePoints() throws Exception {
    server = new TsdbServer(folder);
    try (Writer writer = Writer.builder(server.endpoint()).build()) {
      for (String host : List.of("a", "b")) {
        dev.oxtsdb.writer.Series series = dev.oxtsdb.writer.Series.of("reader.test", Map.of("host", host, "dc", "x"));
        for (int number = 0; number < COUNT; number++) {
          if (host.equals("a")) {
            writer.append(series, START + number * 100, number);
          } else {
            writer.append(series, START + number * 100, number + 0.5);
          }
        }
      }
    }
  }

  @AfterAll
  static void endServer() {
    server.close();
  }

  private static Query query() {
    return Query.between(Instant.ofEpochMilli(START), Instant.ofEpochMilli(START + COUNT * 100));
  }

  private static long[] timestamps(int count, int step) {
    return LongStream.range(0, count).map(number -> START + number * step).toArray();
  }

  @Test
  void readsAllPointsOfEachSeries() throws Exception {
    try (Reader reader = Reader.builder(server.endpoint()).build()) {
      List<Points> all = reader.readAll(query().metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_NONE), 2 * COUNT);
      assertEquals(2, all.size());
      for (Points points : all) {
        String host = points.series().tags().get("host");
        assertEquals(Map.of("host", host, "dc", "x"), points.series().tags());
        assertEquals("reader.test", points.series().metric());
        assertEquals(List.of(), points.series().aggregateTags());
        assertArrayEquals(timestamps(COUNT, 100), points.timestamps());
        double offset = host.equals("a") ? 0 : 0.5;
        assertArrayEquals(LongStream.range(0, COUNT).mapToDouble(number -> number + offset).toArray(), points.values());
      }
      String message =
          assertThrows(
                  IllegalArgumentException.class,
                  () -> reader.readAll(query().metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_NONE), 2 * COUNT - 1))
              .getMessage();
      assertEquals("the result has more points than maxPoints, which is 19999", message);
    }
  }

  @Test
  void queriesAggregateFilterAndDownsample() throws Exception {
    Query query =
        query()
            .metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_SUM)
            .downsample(Duration.ofSeconds(100), AggregateFunction.AGGREGATE_FUNCTION_MAX)
            .metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_SUM)
            .tag("dc", "x")
            .groupBy("host")
            .downsample(Duration.ofSeconds(100), AggregateFunction.AGGREGATE_FUNCTION_MIN)
            .rate();
    try (Reader reader = Reader.builder(server.endpoint()).timeout(Duration.ofSeconds(30)).build()) {
      List<Points> all = reader.readAll(query, 1000);
      assertEquals(List.of(0, 1, 1), List.of(all.get(0).series().query(), all.get(1).series().query(), all.get(2).series().query()));
      assertEquals(List.of("host"), all.get(0).series().aggregateTags());
      assertArrayEquals(timestamps(10, 100_000), all.get(0).timestamps());
      assertArrayEquals(LongStream.range(1, 11).mapToDouble(number -> 2 * (1000 * number - 1) + 0.5).toArray(), all.get(0).values());
      double[] rates = new double[9];
      Arrays.fill(rates, 10);
      assertArrayEquals(rates, all.get(1).values());
      assertArrayEquals(rates, all.get(2).values());
    }
  }

  @Test
  void streamsPartsInOrderOfTime() throws Exception {
    QueryRequest request =
        query().metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_NONE).request().toBuilder()
            .setFramePoints(100)
            .setDeltaTimestamps(true)
            .build();
    Map<Series, Long> next = new HashMap<>();
    try (Reader reader = Reader.builder(server.endpoint()).build();
        QueryResult result = reader.query(request)) {
      int parts = 0;
      for (Points points = result.next(); points != null; points = result.next()) {
        parts++;
        assertTrue(points.size() <= 100);
        long from = next.getOrDefault(points.series(), START);
        assertArrayEquals(LongStream.range(0, points.size()).map(number -> from + 100 * number).toArray(), points.timestamps());
        next.put(points.series(), from + 100L * points.size());
      }
      assertTrue(parts >= 2 * COUNT / 100);
      assertEquals(2, next.size());
      next.values().forEach(end -> assertEquals(START + 100L * COUNT, end));
      assertNotNull(result.statistics());
      assertNull(result.next(), "the end stays the end");
    }
  }

  @Test
  void errorsHaveTheirReason() throws Exception {
    try (Reader reader = Reader.builder(server.endpoint()).build()) {
      Query unknown = query().metric("reader.unknown", AggregateFunction.AGGREGATE_FUNCTION_SUM);
      ReadException error = assertThrows(ReadException.class, () -> reader.query(unknown));
      assertEquals(Status.Code.NOT_FOUND, error.code());
      assertEquals(ErrorReason.ERROR_REASON_NAME_NOT_FOUND, error.reason());
      assertEquals(new TreeMap<>(Map.of("kind", "UID_KIND_METRIC", "name", "reader.unknown")), new TreeMap<>(error.metadata()));
      assertFalse(error.isTransient());
      assertTrue(error.getMessage().startsWith(server.endpoint() + ": NOT_FOUND: "), error.getMessage());
      assertThrows(IllegalStateException.class, () -> query().groupBy("host"));
    }
  }

  @Test
  void goesToTheNextEndpointAndStaysThere() throws Exception {
    try (FakeServer busy = new FakeServer(observer -> observer.onError(Status.UNAVAILABLE.asException()));
        Reader reader = Reader.builder(busy.endpoint(), server.endpoint()).build()) {
      for (int repeat = 0; repeat < 3; repeat++) {
        Query query = query().metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_SUM);
        assertEquals(COUNT, reader.readAll(query, COUNT).get(0).size());
      }
      assertEquals(1, busy.queries());
    }
  }

  @Test
  void failsWhenNoEndpointResponds() throws Exception {
    int port;
    try (ServerSocket unused = new ServerSocket(0)) {
      port = unused.getLocalPort();
    }
    try (Reader reader = Reader.builder("127.0.0.1:" + port).build()) {
      Query query = query().metric("reader.test", AggregateFunction.AGGREGATE_FUNCTION_SUM);
      ReadException error = assertThrows(ReadException.class, () -> reader.query(query));
      assertTrue(error.isTransient());
      assertEquals(Status.Code.UNAVAILABLE, error.code());
      assertEquals(ErrorReason.ERROR_REASON_UNSPECIFIED, error.reason());
    }
  }

  /** Reads the result of a server that sends these frames, then a status, if it is not null. */
  private static Points read(Status end, QueryResponse... frames) throws Exception {
    try (FakeServer fake =
            new FakeServer(
                observer -> {
                  Arrays.asList(frames).forEach(observer::onNext);
                  if (end == null) {
                    observer.onCompleted();
                  } else {
                    observer.onError(end.asException());
                  }
                });
        Reader reader = Reader.builder(fake.endpoint()).build()) {
      List<Points> all = reader.readAll(query().metric("m", AggregateFunction.AGGREGATE_FUNCTION_SUM), 100);
      assertEquals(1, fake.queries());
      return all.get(0);
    }
  }

  private static QueryResponse.Points.Builder twoPoints() {
    return QueryResponse.Points.newBuilder().addTimestampsMs(1).addTimestampsMs(2).addValues(0.5).addValues(1.5);
  }

  @Test
  void anIncompleteResultIsAnError() throws Exception {
    assertEquals(2, read(null, series(0), points(twoPoints()), statistics()).size());
    ReadException error = assertThrows(ReadException.class, () -> read(null, series(0), points(twoPoints())));
    assertTrue(error.getMessage().endsWith("UNAVAILABLE: the stream ended before its last frame"), error.getMessage());
    error = assertThrows(ReadException.class, () -> read(Status.ABORTED, series(0), points(twoPoints())));
    assertEquals(Status.Code.ABORTED, error.code());
  }

  @Test
  void framesThatDoNotFitAreAnError() {
    DeltaTimestamps.Builder wrong = DeltaTimestamps.newBuilder().setFirst(1).addDeltas(1).setLast(3);
    List<QueryResponse.Points.Builder> frames =
        List.of(
            twoPoints().setSeries(7),
            twoPoints().addTimestampsMs(3),
            QueryResponse.Points.newBuilder(),
            twoPoints().setDeltaTimestamps(wrong));
    for (QueryResponse.Points.Builder frame : frames) {
      assertThrows(ReadException.class, () -> read(null, series(0), points(frame), statistics()));
    }
  }

  @Test
  void aReaderThatPausesPausesTheServerAndCloseCancels() throws Exception {
    AtomicInteger sent = new AtomicInteger();
    CountDownLatch full = new CountDownLatch(1);
    CountDownLatch cancelled = new CountDownLatch(1);
    QueryResponse.Points.Builder large = QueryResponse.Points.newBuilder();
    for (int number = 0; number < 4096; number++) {
      large.addTimestampsMs(number).addValues(number);
    }
    QueryResponse frame = points(large);
    FakeServer fake =
        new FakeServer(
            observer -> {
              observer.onNext(series(0));
              observer.setOnCancelHandler(cancelled::countDown);
              observer.setOnReadyHandler(
                  () -> {
                    while (observer.isReady()) {
                      observer.onNext(frame);
                      sent.incrementAndGet();
                    }
                    full.countDown();
                  });
            });
    try (fake;
        Reader reader = Reader.builder(fake.endpoint()).build()) {
      try (QueryResult result = reader.query(query().metric("m", AggregateFunction.AGGREGATE_FUNCTION_SUM))) {
        assertTrue(full.await(30, TimeUnit.SECONDS));
        for (int read = 0; read < 300; read++) {
          assertEquals(4096, result.next().size());
          // HTTP/2's window is 1 MiB, and what is buffered on both sides is a frame or two.
          assertTrue(sent.get() < read + 100, sent + " frames sent, " + read + " read");
        }
      }
      assertTrue(cancelled.await(30, TimeUnit.SECONDS));
    }
  }

  @Test
  void theExampleOfTheReadme() throws Exception {
    ReadmeExample.run(folder, "\"127.0.0.1:4243\"", "\"" + server.endpoint() + "\"");
  }

  @Test
  void settingsAreChecked() {
    assertThrows(IllegalArgumentException.class, Reader::builder);
    assertThrows(IllegalArgumentException.class, () -> Reader.builder("127.0.0.1:4243").timeout(Duration.ZERO));
  }
}
