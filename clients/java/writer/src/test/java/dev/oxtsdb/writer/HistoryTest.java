package dev.oxtsdb.writer;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.protobuf.Duration;
import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.PointError;
import dev.oxtsdb.proto.data.v1.WriteStreamRequest;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Ack;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.FrameFailures;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Opened;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random histories: whatever a server does, the last point of each instant is stored, and each point is counted once. */
@Execution(ExecutionMode.CONCURRENT)
@Timeout(120)
class HistoryTest {
  private static final int SERIES = 3;
  private static final int INSTANTS = 20;

  @ParameterizedTest
  @ValueSource(longs = {1, 2, 3})
  void theLastPointOfEachInstantIsStored(long seed) throws Exception {
    Random random = new Random(seed);
    List<Number> rejected = new ArrayList<>();
    Map<String, Number> expected = new HashMap<>();
    int appended = 0;
    try (Store store = new Store(random.nextLong());
        Writer writer =
            Writer.builder(store.endpoint())
                .batchPoints(1 + random.nextInt(12))
                .onFailed((series, timestamp, value, error) -> rejected.add(value))
                .build()) {
      for (int flush = 0; flush < 10; flush++) {
        int points = random.nextInt(100);
        for (int point = 0; point < points; point++) {
          Series series = Series.of("m", Map.of("host", "h" + random.nextInt(SERIES)));
          long timestamp = 1_700_000_000_000L + random.nextInt(INSTANTS);
          appended++;
          // A value tells its point, and whether the store rejects it for good.
          if (random.nextBoolean()) {
            writer.append(series, timestamp, appended);
            expect(expected, series, timestamp, (long) appended);
          } else {
            writer.append(series, timestamp, appended + 0.5);
            expect(expected, series, timestamp, appended + 0.5);
          }
        }
        writer.flush();
        assertEquals(expected, store.points());
      }
      WriterStatistics statistics = writer.statistics();
      assertEquals(appended, statistics.appended());
      assertEquals(appended / Store.REJECTED, statistics.failed());
      assertEquals(appended - appended / Store.REJECTED, statistics.acknowledged());
      assertEquals(statistics.failed(), rejected.size());
    }
  }

  private static void expect(Map<String, Number> expected, Series series, long timestamp, Number value) {
    if (!Store.rejects(value)) {
      expected.put(series + " " + timestamp, value);
    }
  }

  /** A store that applies points in order; it breaks streams, drains them, and rejects points for now or for good. */
  private static final class Store extends DataServiceGrpc.DataServiceImplBase implements AutoCloseable {
    static final int REJECTED = 17;

    private final Random random;
    private final Server server;
    private final ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();
    private final Map<String, Number> points = new HashMap<>();
    private int violations;

    Store(long seed) throws IOException {
      random = new Random(seed);
      server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(this).build().start();
    }

    static boolean rejects(Number value) {
      return value.intValue() % REJECTED == 0;
    }

    String endpoint() {
      return "127.0.0.1:" + server.getPort();
    }

    synchronized Map<String, Number> points() {
      return new HashMap<>(points);
    }

    @Override
    public void close() {
      later.shutdownNow();
      server.shutdownNow();
      assertEquals(0, violations, "violations of the protocol");
    }

    @Override
    public StreamObserver<WriteStreamRequest> writeStream(StreamObserver<WriteStreamResponse> responses) {
      return new Stream(responses);
    }

    private final class Stream implements StreamObserver<WriteStreamRequest> {
      private final StreamObserver<WriteStreamResponse> responses;
      private final List<String> symbols = new ArrayList<>();
      private final List<String> series = new ArrayList<>();
      private final List<FrameFailures> failures = new ArrayList<>();
      private long acknowledged;
      private long received;
      private boolean hasEnded;

      private Stream(StreamObserver<WriteStreamResponse> responses) {
        this.responses = responses;
      }

      @Override
      public void onNext(WriteStreamRequest request) {
        synchronized (Store.this) {
          if (hasEnded) {
            return;
          }
          if (request.hasOpen()) {
            Opened.Builder opened =
                Opened.newBuilder()
                    .setWindowFrames(1 + random.nextInt(5))
                    .setWindowPoints(8 + random.nextInt(30))
                    .setMaxFramePoints(1 + random.nextInt(20))
                    .setMaxSeries(1 + random.nextInt(SERIES))
                    .setMaxSymbolBytes(1000)
                    .setMaxMessageBytes(100_000);
            responses.onNext(WriteStreamResponse.newBuilder().setOpened(opened).build());
          } else {
            receive(request.getFrame());
          }
          int event = random.nextInt(30);
          if (event == 0) {
            hasEnded = true;
            responses.onError(Status.UNAVAILABLE.asException());
          } else if (event == 1) {
            responses.onNext(WriteStreamResponse.newBuilder().setDraining(WriteStreamResponse.Draining.getDefaultInstance()).build());
          }
        }
      }

      private void receive(WriteStreamRequest.Frame frame) {
        received++;
        Columns columns = frame.getColumns();
        boolean isInSequence =
            frame.getSequence() == received
                && columns.getFirstSymbol() == symbols.size()
                && columns.getFirstSeries() == series.size();
        violations += isInSequence ? 0 : 1;
        symbols.addAll(columns.getNewSymbolsList());
        for (Columns.SeriesDeclaration declaration : columns.getNewSeriesList()) {
          String key = symbols.get(declaration.getTagSymbols(0));
          String value = symbols.get(declaration.getTagSymbols(1));
          series.add(symbols.get(declaration.getMetricSymbol()) + "{" + key + "=" + value + "}");
        }
        Failures.Builder failed = Failures.newBuilder();
        int number = 0;
        for (Columns.Block block : columns.getBlocksList()) {
          List<? extends Number> values = block.getValuesCount() > 0 ? block.getValuesList() : block.getIntValuesList();
          long timestamp = block.getDeltaTimestamps().getFirst();
          for (int at = 0; at < values.size(); at++, number++) {
            timestamp += at == 0 ? 0 : block.getDeltaTimestamps().getDeltas(at - 1);
            String name = series.get(block.getSeries(block.getSeriesCount() == 1 ? 0 : at));
            apply(name + " " + timestamp, values.get(at), number, failed);
          }
          violations += timestamp == block.getDeltaTimestamps().getLast() ? 0 : 1;
        }
        failures.add(FrameFailures.newBuilder().setSequence(received).setFailures(failed).build());
        if (random.nextBoolean()) {
          acknowledge();
        } else {
          later.schedule(this::acknowledge, 1 + random.nextInt(5), TimeUnit.MILLISECONDS);
        }
      }

      private void apply(String instant, Number value, int number, Failures.Builder failed) {
        if (rejects(value)) {
          failed.getPermanentBuilder().addFirst(number).addCount(1);
        } else if (random.nextInt(20) == 0) {
          Duration delay = Duration.newBuilder().setNanos(1_000_000).build();
          failed.getRetryableBuilder().addFirst(number).addCount(1);
          failed.addErrors(PointError.newBuilder().setFirst(number).setCount(1).setError(ItemError.newBuilder().setRetryDelay(delay)));
        } else {
          points.put(instant, value);
        }
      }

      private void acknowledge() {
        synchronized (Store.this) {
          if (!hasEnded && acknowledged < received) {
            acknowledged = received;
            Ack.Builder ack = Ack.newBuilder().setSequence(acknowledged).addAllFailures(failures);
            failures.clear();
            responses.onNext(WriteStreamResponse.newBuilder().setAck(ack).build());
          }
        }
      }

      @Override
      public void onError(Throwable error) {
        synchronized (Store.this) {
          hasEnded = true;
        }
      }

      @Override
      public void onCompleted() {
        synchronized (Store.this) {
          violations += acknowledged < received ? 1 : 0;
          hasEnded = true;
          responses.onCompleted();
        }
      }
    }
  }
}
