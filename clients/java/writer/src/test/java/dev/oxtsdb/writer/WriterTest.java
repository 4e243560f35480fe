package dev.oxtsdb.writer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.PointError;
import dev.oxtsdb.proto.data.v1.PointRuns;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;

/** The writer against a server that can be made to reject, to break and to be silent. */
@Isolated("patience of some tests is short")
@Timeout(60)
class WriterTest {
  private static final Series ONE = Series.of("writer.test", Map.of("host", "a"));
  private static final long START = 1_700_000_000_000L;

  private final List<AutoCloseable> opened = new ArrayList<>();

  @AfterEach
  void closeAll() throws Exception {
    for (AutoCloseable each : opened) {
      each.close();
    }
  }

  private FakeServer closed(FakeServer server) {
    opened.add(server);
    return server;
  }

  /** A writer that is aborted after the test. */
  private Writer closed(Writer.Builder builder) {
    Writer writer = builder.build();
    opened.add(writer::abort);
    return writer;
  }

  private static void append(Writer writer, long from, long to) throws Exception {
    for (long number = from; number < to; number++) {
      writer.append(ONE, START + number * 1000, number);
    }
  }

  private static List<Number> numbers(long from, long to) {
    return LongStream.range(from, to).boxed().collect(Collectors.toList());
  }

  private static List<Number> joined(FakeServer server) {
    return server.values().stream().flatMap(List::stream).collect(Collectors.toList());
  }

  /** Runs in a thread of its own; {@code get} has its result. */
  private static FutureTask<Void> start(Action action) {
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              action.run();
              return null;
            });
    Thread thread = new Thread(task, "test");
    thread.setDaemon(true);
    thread.start();
    return task;
  }

  private interface Action {
    void run() throws Exception;
  }

  /** Closes a writer whose patience may be too short for a connection. */
  private static void closeWithRetries(Writer writer) throws Exception {
    while (true) {
      try {
        writer.close();
        return;
      } catch (WriteException error) {
        assertTrue(error.isTransient(), error.getMessage());
      }
    }
  }

  /** Flushes until the failure ends so: on a busy machine, patience may end before there is a response. */
  private static WriteException failedFlush(Writer writer, String end) {
    while (true) {
      WriteException error = assertThrows(WriteException.class, writer::flush);
      if (error.getMessage().endsWith(end)) {
        return error;
      }
      assertTrue(error.getMessage().endsWith("no response"), error.getMessage());
    }
  }

  private static PointRuns run(long first, long count) {
    return PointRuns.newBuilder().addFirst(first).addCount(count).build();
  }

  private static PointError error(long first, String message) {
    com.google.protobuf.Duration delay = com.google.protobuf.Duration.newBuilder().setNanos(1_000_000).build();
    return PointError.newBuilder()
        .setFirst(first)
        .setCount(1)
        .setError(ItemError.newBuilder().setMessage(message).setRetryDelay(delay))
        .build();
  }

  @Test
  void keepsTheWindow() throws Exception {
    FakeServer server = closed(new FakeServer(limits -> limits.setWindowFrames(3)));
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(10));
    FutureTask<Void> appending = start(() -> append(writer, 0, 100));
    server.awaitFrames(3);
    while (writer.statistics().appended() < 40) {
      Thread.onSpinWait();
    }
    assertThrows(TimeoutException.class, () -> appending.get(200, TimeUnit.MILLISECONDS));
    assertEquals(3, server.frames().size());
    assertEquals(40, writer.statistics().appended(), "three frames in flight and one that is complete");
    server.permit(100);
    appending.get();
    writer.close();
    assertEquals(3, server.mostInFlight());
    assertEquals(numbers(0, 100), joined(server));
  }

  @Test
  void keepsTheWindowOfPoints() throws Exception {
    FakeServer server = closed(new FakeServer(limits -> limits.setWindowPoints(25)));
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(10));
    FutureTask<Void> appending = start(() -> append(writer, 0, 60));
    server.awaitFrames(2);
    server.permit(100);
    appending.get();
    writer.close();
    assertEquals(2, server.mostInFlight());
    assertEquals(numbers(0, 60), joined(server));
  }

  @Test
  void splitsBatchesAtTheLimitOfAFrame() throws Exception {
    FakeServer server = closed(new FakeServer(limits -> limits.setMaxFramePoints(4))).permit(100);
    Writer writer = closed(Writer.builder(server.endpoint()));
    append(writer, 0, 10);
    writer.close();
    assertEquals(List.of(numbers(0, 4), numbers(4, 8), numbers(8, 10)), server.values());
  }

  @Test
  void keepsToTheLimitOfAMessage() throws Exception {
    int limit = 2000;
    FakeServer server = closed(new FakeServer(limits -> limits.setMaxMessageBytes(limit))).permit(1000);
    Writer writer = closed(Writer.builder(server.endpoint()));
    for (int number = 0; number < 90; number++) {
      Series series = Series.of("writer.test", Map.of("host", "h".repeat(300) + number));
      writer.append(series, START + number, number % 3 == 0 ? 0.5 : 1e300 * number);
    }
    writer.close();
    assertEquals(90, joined(server).size());
    for (Columns frame : server.frames()) {
      assertTrue(frame.getSerializedSize() < limit, frame.getSerializedSize() + " bytes");
    }
  }

  @Test
  void beginsANewStreamWhenTheTablesAreFull() throws Exception {
    FakeServer server = closed(new FakeServer(limits -> limits.setMaxSeries(3))).permit(100);
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(2));
    for (int number = 0; number < 8; number++) {
      writer.append(Series.of("writer.test", Map.of("host", "h" + number)), START, number);
    }
    writer.close();
    assertEquals(numbers(0, 8), joined(server));
    assertEquals(3, server.streams());
    for (Columns frame : server.frames()) {
      // Declarations continue the tables of their stream.
      assertEquals(frame.getFirstSeries() == 0 ? 0 : 2 + frame.getFirstSeries(), frame.getFirstSymbol());
    }
    assertEquals(0, writer.statistics().retries());
  }

  @Test
  void declaresNamesOnceForAStream() throws Exception {
    FakeServer server = closed(new FakeServer()).permit(100);
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(2));
    for (int number = 0; number < 6; number++) {
      writer.append(Series.of("writer.test", Map.of("host", "h" + number % 3)), START + number, number);
    }
    writer.close();
    List<String> symbols = new ArrayList<>();
    server.frames().forEach(frame -> symbols.addAll(frame.getNewSymbolsList()));
    assertEquals(List.of("h0", "h1", "h2", "host", "writer.test"), symbols.stream().sorted().collect(Collectors.toList()));
  }

  @Test
  void reportsPointsWhoseNamesExceedTheLimitsOfAStream() throws Exception {
    FakeServer server = closed(new FakeServer(limits -> limits.setMaxSymbolBytes(100))).permit(100);
    List<String> failed = new ArrayList<>();
    Writer writer =
        closed(
            Writer.builder(server.endpoint())
                .onFailed((series, timestamp, value, error) -> failed.add(value + " " + error.getReason())));
    append(writer, 0, 2);
    writer.append(Series.of("writer.test", Map.of("host", "x".repeat(200))), START, 7);
    append(writer, 2, 4);
    writer.close();
    assertEquals(List.of("7 " + ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE), failed);
    assertEquals(numbers(0, 4), joined(server));
  }

  @Test
  void resendsRetryablePoints() throws Exception {
    FakeServer server = closed(new FakeServer()).permit(100);
    server.fail(1, Failures.newBuilder().setRetryable(run(2, 3)));
    Writer writer = closed(Writer.builder(server.endpoint()));
    append(writer, 0, 10);
    writer.close();
    assertEquals(List.of(numbers(0, 10), numbers(2, 5)), server.values());
    assertEquals("appended 10, acknowledged 10, failed 0, retries 3, streams 1", writer.statistics().toString());
  }

  @Test
  void theLaterPointOfAnInstantWinsAfterARetry() throws Exception {
    FakeServer server = closed(new FakeServer());
    server.fail(1, Failures.newBuilder().setRetryable(run(1, 2)).addErrors(error(1, "busy")));
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(4));
    long[] seconds = {0, 1, 2, 1, 2, 3, 2, 1};
    for (int at = 0; at < seconds.length; at++) {
      writer.append(Series.of("writer.test", Map.of("host", "a")), START + seconds[at] * 1000, 10 + at);
    }
    server.awaitFrames(2);
    server.permit(100);
    writer.close();
    // All others are stored already.
    assertEquals(
        List.of(List.of(10L, 11L, 12L, 13L), List.of(14L, 15L, 16L, 17L), List.of(11L, 12L, 13L, 14L, 16L, 17L)),
        server.values());
  }

  @Test
  void retriedPointsGoBeforeAllThatAreNotSent() throws Exception {
    FakeServer server = closed(new FakeServer());
    server.fail(1, Failures.newBuilder().setRetryable(run(0, 1)).addErrors(error(0, "busy")));
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(2));
    append(writer, 0, 4);
    server.awaitFrames(2);
    server.permit(1);
    while (writer.statistics().acknowledged() < 1) {
      Thread.onSpinWait();
    }
    append(writer, 4, 6);
    server.permit(100);
    writer.close();
    assertEquals(List.of(numbers(0, 2), numbers(2, 4), numbers(0, 1), numbers(4, 6)), server.values());
  }

  @Test
  void reportsEachPointThatFailsForGood() throws Exception {
    FakeServer server = closed(new FakeServer()).permit(100);
    server.fail(
        1,
        Failures.newBuilder()
            .setPermanent(PointRuns.newBuilder().addFirst(1).addCount(1).addFirst(3).addCount(2))
            .setRetryable(run(6, 1))
            .addErrors(error(3, "wrong"))
            .addErrors(error(6, "busy")));
    List<String> failed = new ArrayList<>();
    Writer writer =
        closed(
            Writer.builder(server.endpoint())
                .onFailed(
                    (series, timestamp, value, error) ->
                        failed.add(series + " " + (timestamp - START) + " " + value + " " + (error == null ? null : error.getMessage()))));
    append(writer, 0, 10);
    writer.close();
    assertEquals(
        List.of("writer.test{host=a} 1000 1 null", "writer.test{host=a} 3000 3 wrong", "writer.test{host=a} 4000 4 null"),
        failed);
    assertEquals(List.of(numbers(0, 10), numbers(6, 7)), server.values());
    assertEquals("appended 10, acknowledged 7, failed 3, retries 1, streams 1", writer.statistics().toString());
  }

  @Test
  void anExceptionOfTheListenerIsThrownAndThePointCountsAsReported() throws Exception {
    FakeServer server = closed(new FakeServer()).permit(100);
    server.fail(1, Failures.newBuilder().setPermanent(run(0, 2)));
    AtomicReference<Writer> self = new AtomicReference<>();
    List<Number> failed = new ArrayList<>();
    Writer writer =
        closed(
            Writer.builder(server.endpoint())
                .onFailed(
                    (series, timestamp, value, error) -> {
                      assertNull(error);
                      failed.add(value);
                      if (failed.size() == 1) {
                        try {
                          self.get().flush();
                        } catch (WriteException | InterruptedException impossible) {
                          throw new AssertionError(impossible);
                        }
                      }
                    }));
    self.set(writer);
    append(writer, 0, 3);
    assertEquals(
        "the listener for failed points calls the writer", assertThrows(IllegalStateException.class, writer::flush).getMessage());
    writer.close();
    assertEquals(numbers(0, 2), failed);
    assertEquals(2, writer.statistics().failed());
  }

  @Test
  void pointsOfOneTypeAreOneBlock() throws Exception {
    FakeServer server = closed(new FakeServer()).permit(100);
    Writer writer = closed(Writer.builder(server.endpoint()));
    for (int number = 0; number < 10; number++) {
      if (number % 2 == 0) {
        writer.append(ONE, START + number * 1000, number + 0.5);
      } else {
        writer.append(ONE, START + number * 1000, number);
      }
    }
    writer.close();
    assertEquals(2, server.frames().get(0).getBlocksCount());
    assertEquals(List.of(1L, 3L, 5L, 7L, 9L, 0.5, 2.5, 4.5, 6.5, 8.5), joined(server));
    assertEquals(1, server.frames().get(0).getBlocks(0).getSeriesCount(), "one series for all points");
  }

  @Test
  void resendsAfterAResetBehindAProxyButNotAfterAnErrorOfAServer() throws Exception {
    FakeServer server = closed(new FakeServer()).permit(100);
    server.breakNext(Status.INTERNAL.withDescription("stream terminated by RST_STREAM").asException());
    Writer writer = closed(Writer.builder(server.endpoint()));
    append(writer, 0, 3);
    writer.flush();
    assertEquals(List.of(numbers(0, 3)), server.values());
    server.endStream(Status.UNAVAILABLE.asException());
    com.google.rpc.Status ofServer =
        com.google.rpc.Status.newBuilder()
            .setCode(Status.Code.INTERNAL.value())
            .setMessage("a fault")
            .addDetails(Any.pack(ErrorInfo.newBuilder().setReason("INTERNAL").build()))
            .build();
    server.breakNext(StatusProto.toStatusException(ofServer));
    append(writer, 3, 6);
    WriteException error = assertThrows(WriteException.class, writer::flush);
    assertEquals(server.endpoint() + ": INTERNAL: a fault", error.getMessage());
    assertFalse(error.isTransient());
    assertEquals(ErrorReason.ERROR_REASON_INTERNAL, error.reason());
    writer.close();
    assertEquals(numbers(0, 6), joined(server));
  }

  @Test
  void failsWhenPatienceEndsAndKeepsThePoints() throws Exception {
    int port;
    try (ServerSocket unused = new ServerSocket(0)) {
      port = unused.getLocalPort();
    }
    FakeServer server = closed(new FakeServer()).permit(100);
    Writer writer =
        closed(Writer.builder("127.0.0.1:" + port).patience(Duration.ofMillis(300)).channel(endpoint -> plain(server, endpoint)));
    append(writer, 0, 3);
    WriteException error = failedFlush(writer, "UNAVAILABLE: io exception");
    assertTrue(error.isTransient());
    assertEquals("no point was stored for 300 ms: 127.0.0.1:" + port + ": UNAVAILABLE: io exception", error.getMessage());
    assertEquals(ErrorReason.ERROR_REASON_UNSPECIFIED, error.reason());
    assertThrows(WriteException.class, writer::close);
    reachable = true;
    closeWithRetries(writer);
    assertEquals(numbers(0, 3), joined(server));
    writer.close();
    assertThrows(IllegalStateException.class, writer::flush);
    assertThrows(IllegalStateException.class, () -> append(writer, 3, 4));
  }

  private boolean reachable;

  private ManagedChannel plain(FakeServer server, String endpoint) {
    String target = reachable ? server.endpoint() : endpoint;
    return Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
  }

  @Test
  void patienceEndsThoughPointsBehindARetryAreStored() throws Exception {
    // More than are sent within the patience, with a delay of a millisecond.
    int frames = 100_000;
    FakeServer server = closed(new FakeServer()).permit(frames);
    for (int frame = 2; frame < frames; frame++) {
      server.fail(frame, Failures.newBuilder().setRetryable(run(0, 1)).addErrors(error(0, "busy")));
    }
    Writer writer = closed(Writer.builder(server.endpoint()).patience(Duration.ofSeconds(2)));
    append(writer, 7, 8);
    while (writer.statistics().acknowledged() == 0) {
      try {
        writer.flush();
      } catch (WriteException noConnection) {
        assertTrue(noConnection.isTransient(), noConnection.getMessage());
      }
    }
    writer.append(ONE, START, 1);
    writer.append(ONE, START, 2);
    WriteException error = failedFlush(writer, "points are rejected for now: busy");
    assertTrue(error.isTransient());
    assertTrue(server.frames().size() > 2);
    assertEquals(List.of(1L, 2L), server.values().get(server.values().size() - 1));
  }

  @Test
  void leavesASilentServerForTheNextOne() throws Exception {
    FakeServer silent = closed(new FakeServer());
    FakeServer server = closed(new FakeServer()).permit(100);
    Writer writer = closed(Writer.builder(silent.endpoint(), server.endpoint()).patience(Duration.ofMillis(300)));
    append(writer, 0, 3);
    WriteException error = assertThrows(WriteException.class, writer::flush);
    assertTrue(error.getMessage().endsWith(silent.endpoint() + ": DEADLINE_EXCEEDED: no response"), error.getMessage());
    closeWithRetries(writer);
    assertEquals(numbers(0, 3), server.values().get(0));
    assertEquals(3, writer.statistics().acknowledged());
    assertTrue(writer.statistics().retries() >= 3, writer.statistics().toString());
  }

  @Test
  void failsOverToTheNextEndpoint() throws Exception {
    FakeServer first = closed(new FakeServer()).permit(100);
    FakeServer second = closed(new FakeServer()).permit(100);
    Writer writer = closed(Writer.builder(first.endpoint(), second.endpoint()));
    append(writer, 0, 3);
    writer.flush();
    first.close();
    append(writer, 3, 6);
    writer.close();
    assertEquals(List.of(numbers(0, 3)), first.values());
    assertEquals(List.of(numbers(3, 6)), second.values());
  }

  @Test
  void anIdleWriterLeavesAServerThatDrains() throws Exception {
    FakeServer first = closed(new FakeServer()).permit(100);
    FakeServer second = closed(new FakeServer()).permit(100);
    Writer writer = closed(Writer.builder(first.endpoint(), second.endpoint()));
    append(writer, 0, 3);
    writer.flush();
    first.drain();
    first.awaitCompleted(1);
    append(writer, 3, 6);
    writer.close();
    assertEquals(List.of(numbers(3, 6)), second.values());
    assertEquals(0, writer.statistics().retries());
  }

  @Test
  void aDrainEndsAfterTheFramesInFlight() throws Exception {
    FakeServer first = closed(new FakeServer());
    FakeServer second = closed(new FakeServer()).permit(100);
    Writer writer = closed(Writer.builder(first.endpoint(), second.endpoint()).batchPoints(3));
    append(writer, 0, 6);
    first.awaitFrames(2);
    first.drain();
    first.permit(1);
    // Acknowledgements come behind `draining`.
    while (writer.statistics().acknowledged() < 3) {
      Thread.onSpinWait();
    }
    append(writer, 6, 9);
    assertEquals(0, first.completed());
    first.permit(1);
    first.awaitCompleted(1);
    writer.close();
    assertEquals(List.of(numbers(0, 3), numbers(3, 6)), first.values());
    assertEquals(List.of(numbers(6, 9)), second.values());
    assertEquals(0, writer.statistics().retries());
  }

  @Test
  void aFlushWaitsForThePointsBeforeItOnly() throws Exception {
    FakeServer server = closed(new FakeServer());
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(2));
    append(writer, 0, 3);
    FutureTask<Void> flushing = start(writer::flush);
    server.awaitFrames(2);
    append(writer, 3, 6);
    server.permit(1);
    assertThrows(TimeoutException.class, () -> flushing.get(100, TimeUnit.MILLISECONDS));
    server.permit(1);
    flushing.get();
    assertEquals(3, writer.statistics().acknowledged());
    server.permit(100);
    writer.close();
    assertEquals(numbers(0, 6), joined(server));
  }

  @Test
  void anInterruptedCallLosesNothing() throws Exception {
    FakeServer server = closed(new FakeServer(limits -> limits.setWindowFrames(1)));
    Writer writer = closed(Writer.builder(server.endpoint()).batchPoints(2));
    CountDownLatch interrupted = new CountDownLatch(1);
    Thread appending =
        new Thread(
            () -> {
              try {
                append(writer, 0, 100);
              } catch (InterruptedException expected) {
                interrupted.countDown();
              } catch (Exception unexpected) {
                throw new AssertionError(unexpected);
              }
            });
    appending.start();
    server.awaitFrames(1);
    while (writer.statistics().appended() < 4) {
      Thread.onSpinWait();
    }
    appending.interrupt();
    assertTrue(interrupted.await(30, TimeUnit.SECONDS));
    Thread.currentThread().interrupt();
    assertThrows(InterruptedException.class, writer::flush);
    server.permit(100);
    append(writer, 4, 6);
    writer.close();
    assertEquals(numbers(0, 6), joined(server));
  }

  @Test
  void severalThreadsMayClose() throws Exception {
    FakeServer server = closed(new FakeServer());
    Writer writer = closed(Writer.builder(server.endpoint()));
    append(writer, 0, 3);
    FutureTask<Void> first = start(writer::close);
    server.awaitFrames(1);
    FutureTask<Void> second = start(writer::close);
    assertThrows(TimeoutException.class, () -> second.get(100, TimeUnit.MILLISECONDS));
    assertThrows(IllegalStateException.class, () -> append(writer, 3, 4));
    server.permit(1);
    first.get();
    second.get();
  }

  @Test
  void anAbortEndsCallsThatWait() throws Exception {
    FakeServer server = closed(new FakeServer());
    Writer writer = closed(Writer.builder(server.endpoint()));
    append(writer, 0, 3);
    FutureTask<Void> flushing = start(writer::flush);
    server.awaitFrames(1);
    writer.abort();
    Throwable cause = assertThrows(ExecutionException.class, flushing::get).getCause();
    assertEquals("java.lang.IllegalStateException: the writer is closed", cause.toString());
    writer.close();
  }

  @Test
  void settingsAreChecked() {
    assertThrows(IllegalArgumentException.class, Writer::builder);
    Writer.Builder builder = Writer.builder("127.0.0.1:4243");
    assertThrows(IllegalArgumentException.class, () -> builder.batchPoints(0));
    assertThrows(IllegalArgumentException.class, () -> builder.patience(Duration.ZERO));
    assertThrows(NullPointerException.class, () -> builder.build().append(null, START, 1));
  }
}
