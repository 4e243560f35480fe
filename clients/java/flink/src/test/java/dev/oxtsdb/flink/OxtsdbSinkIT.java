package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.flink.example.Quote;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Jobs in a MiniCluster that write to a real server, from a generator that replays. */
@Timeout(value = 180, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class OxtsdbSinkIT {
  private static final Duration OFTEN = Duration.ofMillis(100);
  private static final Duration NEVER = Duration.ofHours(1);

  @TempDir Path folder;
  private FailingServer server;

  @BeforeEach
  void startServer() throws Exception {
    Faults.reset();
    MetricsOfTest.reset();
    server = new FailingServer(folder);
  }

  @AfterEach
  void endServer() {
    server.close();
  }

  private static void execute(StreamExecutionEnvironment environment) throws Exception {
    environment.executeAsync().getJobExecutionResult().get();
  }

  @Test
  void writesEachPointAndCountsThem() throws Exception {
    StreamExecutionEnvironment environment = Jobs.environment(0, OFTEN);
    Jobs.quotes(environment, 20_000).sinkTo(Jobs.sink(server).build());
    execute(environment);
    Stored.assertExact(server, 20_000);
    assertEquals(40_000, MetricsOfTest.ofSink("numRecordsSend"));
    assertEquals(40_000, MetricsOfTest.ofSink("pointsAcknowledged"));
    assertEquals(0, MetricsOfTest.ofSink("numRecordsSendErrors"));
  }

  @Test
  void writesTimestampsOfOtherUnitsAndTimes() throws Exception {
    WriteOptions options =
        WriteOptions.newBuilder().setTimeUnit(dev.oxtsdb.proto.data.v1.TimeUnit.TIME_UNIT_SECONDS).setAllowAnyTime(true).build();
    StreamExecutionEnvironment environment = Jobs.environment(0, OFTEN);
    Jobs.quotes(environment, 8)
        .sinkTo(
            Jobs.sink(server)
                .options(options)
                .converter((quote, context, points) -> points.add("quote.size", Map.of("symbol", quote.symbol), 500_000_000, quote.size))
                .build());
    execute(environment);
    assertEquals(
        List.of(Map.entry(500_000_000_000L, 3.0)), server.points("quote.size", "symbol").get(Map.of("symbol", "S3")));
  }

  /** Small batches are under way when a fault happens; of large ones, only checkpoints send points. */
  @ParameterizedTest
  @ValueSource(ints = {100, 100_000})
  void isExactWhenTasksFailAndTheServerIsKilled(int batchPoints) throws Exception {
    for (int round = 0; round < 3; round++) {
      Faults.PLANNED.add(Faults::fail);
      Faults.PLANNED.add(server::killAndRestart);
    }
    StreamExecutionEnvironment environment = Jobs.environment(100, OFTEN);
    Jobs.quotes(environment, 40_000, 2_000).sinkTo(Jobs.sink(server).batchPoints(batchPoints).maxDelay(NEVER).build());
    execute(environment);
    assertTrue(Faults.PLANNED.isEmpty(), "all faults have happened");
    assertTrue(Faults.SEEN.get() > 40_000, "elements were repeated");
    Stored.assertExact(server, 40_000);
  }

  @Test
  void restartsUntilTheServerIsBack() throws Exception {
    Faults.PLANNED.add(
        () -> {
          server.kill();
          int starts = Faults.STARTS.get();
          server.startWhen(() -> Faults.STARTS.get() >= starts + 4);
        });
    StreamExecutionEnvironment environment = Jobs.environment(1_000, OFTEN);
    Jobs.quotes(environment, 20_000, 2_000).sinkTo(Jobs.sink(server).patience(Duration.ofMillis(300)).build());
    execute(environment);
    assertTrue(Faults.STARTS.get() >= 6, "tasks were restarted four times");
    Stored.assertExact(server, 20_000);
  }

  @Test
  void blocksWhileTheServerTakesNothing() throws Exception {
    long count = 2_000_000;
    StreamExecutionEnvironment environment = Jobs.environment(0, NEVER);
    Jobs.quotes(environment, count)
        .sinkTo(
            OxtsdbSink.<Quote>builder()
                .endpoints(server.endpoint())
                .converter((quote, context, points) -> points.add("quote.price", Map.of("symbol", "S0"), quote.time, quote.price))
                .build());
    JobClient job = environment.executeAsync();
    Wait.until("points", Duration.ofSeconds(60), () -> Stored.count(server, "quote.price") > 0);
    server.freeze();
    long[] seen = {0, 0};
    Wait.until(
        "back-pressure",
        Duration.ofSeconds(60),
        () -> {
          Thread.sleep(50);
          long now = Faults.SEEN.get();
          seen[1] = now == seen[0] ? seen[1] + 1 : 0;
          seen[0] = now;
          return seen[1] == 20;
        });
    assertTrue(seen[0] < count, "the source stands still at " + seen[0]);
    server.unfreeze();
    job.getJobExecutionResult().get();
    assertEquals(count, Stored.count(server, "quote.price"));
  }

  @Test
  void sendsAnIncompleteBatchInTime() throws Exception {
    StreamExecutionEnvironment environment = Jobs.environment(0, NEVER);
    // Without a checkpoint the source stops after these.
    Jobs.quotes(environment, 1_000, 20).sinkTo(Jobs.sink(server).batchPoints(100_000).maxDelay(OFTEN).build());
    JobClient job = environment.executeAsync();
    Wait.until("points", Duration.ofSeconds(60), () -> Stored.count(server, "quote.size") >= 20);
    Jobs.cancel(job);
  }

  @Test
  void cancelsWhileTheServerIsAway() throws Exception {
    StreamExecutionEnvironment environment = Jobs.environment(0, OFTEN);
    Jobs.quotes(environment, 1_000_000, 2_000).sinkTo(Jobs.sink(server).patience(Duration.ofHours(1)).build());
    JobClient job = environment.executeAsync();
    Wait.until("points", Duration.ofSeconds(60), () -> Stored.count(server, "quote.size") > 0);
    server.kill();
    Jobs.cancel(job);
  }

  /** A converter whose every tenth quote has a name that this server does not take, and every 25th one that no server takes. */
  private OxtsdbSink.Builder<Quote> sinkWithBadNames() {
    return Jobs.sink(server)
        .converter(
            (quote, context, points) -> {
              long number = Quotes.number(quote.time);
              String metric = number % 25 == 0 ? "" : number % 10 == 0 ? "not a name!" : "quote.price";
              points.add(metric, Map.of("symbol", quote.symbol), quote.time, quote.price);
              points.add("quote.size", Map.of("symbol", quote.symbol), quote.time, quote.size);
            });
  }

  @Test
  void failsTheJobForARejectedPoint() {
    StreamExecutionEnvironment environment = Jobs.environment(1, OFTEN);
    Jobs.quotes(environment, 10_000)
        .sinkTo(
            Jobs.sink(server)
                .converter((quote, context, points) -> points.add("not a name!", Map.of("symbol", quote.symbol), quote.time, 1))
                .build());
    ExecutionException failure = assertThrows(ExecutionException.class, () -> execute(environment));
    Throwable cause = failure;
    while (cause != null && !cause.toString().contains(RejectedPointException.class.getName())) {
      cause = cause.getCause();
    }
    assertTrue(cause != null && cause.getMessage().contains("not a name!{symbol=S"), () -> "cause of " + failure);
  }

  @Test
  void dropsAndCountsRejectedPoints() throws Exception {
    StreamExecutionEnvironment environment = Jobs.environment(0, OFTEN);
    Jobs.quotes(environment, 10_000).sinkTo(sinkWithBadNames().onRejected(RejectedPointHandler.drop()).build());
    execute(environment);
    assertEquals(10_000, Stored.count(server, "quote.size"));
    assertEquals(8_800, Stored.count(server, "quote.price"));
    assertEquals(1_200, MetricsOfTest.ofSink("numRecordsSendErrors"));
  }

  /** Static, as Flink copies handlers. */
  private static final Queue<RejectedPoint> HANDLED = new ConcurrentLinkedQueue<>();

  @Test
  void givesRejectedPointsToTheHandler() throws Exception {
    HANDLED.clear();
    StreamExecutionEnvironment environment = Jobs.environment(0, OFTEN);
    Jobs.quotes(environment, 10_000).sinkTo(sinkWithBadNames().onRejected(point -> HANDLED.add(point)).build());
    execute(environment);
    assertEquals(8_800, Stored.count(server, "quote.price"));
    assertEquals(1_200, HANDLED.size());
    assertEquals(400, HANDLED.stream().filter(point -> point.metric().isEmpty()).count());
    RejectedPoint point = HANDLED.stream().filter(one -> !one.metric().isEmpty()).findFirst().orElseThrow();
    long number = Quotes.number(point.timestamp());
    assertEquals(Quotes.numbered(number).price, point.value());
    assertEquals(Map.of("symbol", "S" + number % 8), point.tags());
    assertEquals(ErrorReason.ERROR_REASON_INVALID_NAME, point.error().orElseThrow().getReason());
  }
}
