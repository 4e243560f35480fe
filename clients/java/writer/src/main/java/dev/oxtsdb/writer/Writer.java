package dev.oxtsdb.writer;

import static dev.oxtsdb.proto.data.v1.TimeUnit.TIME_UNIT_MILLISECONDS;

import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.PointError;
import dev.oxtsdb.proto.data.v1.PointRuns;
import dev.oxtsdb.proto.data.v1.WriteColumnsRequest;
import dev.oxtsdb.proto.data.v1.WriteColumnsResponse;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** Writes points: batches them, and sends those again that no server has acknowledged. Thread-safe. */
public final class Writer implements AutoCloseable {
  private final Builder settings;
  private final Map<Integer, ManagedChannel> channels = new HashMap<>();
  private List<Point> points = new ArrayList<>();
  private int endpoint;
  private long appended;
  private long acknowledged;
  private long failed;
  private long retries;
  private long streams;

  private Writer(Builder settings) {
    this.settings = settings;
  }

  /**
   * Returns a builder of writers.
   *
   * @param endpoints {@code host:port} of data services; at least one
   * @return the builder
   */
  public static Builder builder(String... endpoints) {
    return new Builder(endpoints);
  }

  /**
   * Appends a floating-point value. Blocks while the server's window is full.
   *
   * @param series the series
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws WriteException if points cannot be written; this point was not taken then
   * @throws InterruptedException if the thread is interrupted while it waits; this point was not taken then
   */
  public void append(Series series, long timestamp, double value) throws WriteException, InterruptedException {
    append(new Point(series, timestamp, value));
  }

  /**
   * Appends an integer value. Blocks while the server's window is full.
   *
   * @param series the series
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws WriteException if points cannot be written; this point was not taken then
   * @throws InterruptedException if the thread is interrupted while it waits; this point was not taken then
   */
  public void append(Series series, long timestamp, long value) throws WriteException, InterruptedException {
    append(new Point(series, timestamp, value));
  }

  private synchronized void append(Point point) throws WriteException, InterruptedException {
    if (points.size() >= settings.batchPoints) {
      flush();
    }
    points.add(point);
    appended++;
  }

  /**
   * Returns when every appended point is stored (durable) or was given to the listener.
   *
   * @throws WriteException if points cannot be written; they are kept
   * @throws InterruptedException if the thread is interrupted while it waits; the points are kept
   */
  public synchronized void flush() throws WriteException, InterruptedException {
    long end = System.nanoTime() + settings.patience.toNanos();
    while (!points.isEmpty()) {
      String cause;
      Throwable error = null;
      try {
        int before = points.size();
        cause = report(channelStub().writeColumns(request()));
        if (points.size() < before) {
          end = System.nanoTime() + settings.patience.toNanos();
        }
      } catch (StatusRuntimeException failure) {
        endpoint = (endpoint + 1) % settings.endpoints.length;
        cause = failure.getMessage();
        error = failure;
      }
      if (!points.isEmpty()) {
        if (System.nanoTime() > end) {
          throw new WriteException(cause, true, error);
        }
        retries += points.size();
        Thread.sleep(100);
      }
    }
  }

  private DataServiceGrpc.DataServiceBlockingStub channelStub() {
    ManagedChannel channel =
        channels.computeIfAbsent(endpoint, at -> settings.channel.apply(settings.endpoints[at]));
    return DataServiceGrpc.newBlockingStub(channel).withDeadlineAfter(60, TimeUnit.SECONDS);
  }

  private WriteColumnsRequest request() {
    Columns.Builder columns = Columns.newBuilder();
    Map<String, Integer> symbols = new HashMap<>();
    Map<Series, Integer> series = new HashMap<>();
    for (Point point : points) {
      int number =
          series.computeIfAbsent(
              point.series,
              one -> {
                Columns.SeriesDeclaration.Builder declaration = columns.addNewSeriesBuilder();
                declaration.setMetricSymbol(symbol(one.metric(), symbols, columns));
                one.tags()
                    .forEach(
                        (key, value) ->
                            declaration
                                .addTagSymbols(symbol(key, symbols, columns))
                                .addTagSymbols(symbol(value, symbols, columns)));
                return series.size();
              });
      Columns.Block.Builder block = columns.addBlocksBuilder().addSeries(number).addTimestamps(point.timestamp);
      if (point.value instanceof Long) {
        block.addIntValues((Long) point.value);
      } else {
        block.addValues((Double) point.value);
      }
    }
    return WriteColumnsRequest.newBuilder().setColumns(columns).setOptions(settings.options).build();
  }

  private static int symbol(String name, Map<String, Integer> symbols, Columns.Builder columns) {
    return symbols.computeIfAbsent(
        name,
        one -> {
          columns.addNewSymbols(one);
          return symbols.size();
        });
  }

  private String report(WriteColumnsResponse response) {
    Failures failures = response.getFailures();
    BitSet permanent = indexes(failures.getPermanent());
    BitSet retryable = indexes(failures.getRetryable());
    Map<Integer, ItemError> errors = new HashMap<>();
    for (PointError error : failures.getErrorsList()) {
      for (long offset = 0; offset < error.getCount(); offset++) {
        errors.put((int) (error.getFirst() + offset), error.getError());
      }
    }
    List<Point> all = points;
    points = new ArrayList<>();
    String cause = null;
    for (int at = 0; at < all.size(); at++) {
      Point point = all.get(at);
      if (permanent.get(at)) {
        failed++;
        settings.listener.failed(point.series, point.timestamp, point.value, errors.get(at));
      } else if (retryable.get(at)) {
        cause = errors.containsKey(at) ? errors.get(at).getMessage() : cause;
        points.add(point);
      } else {
        acknowledged++;
      }
    }
    return cause;
  }

  private static BitSet indexes(PointRuns runs) {
    BitSet indexes = new BitSet();
    for (int run = 0; run < runs.getFirstCount(); run++) {
      indexes.set((int) runs.getFirst(run), (int) (runs.getFirst(run) + runs.getCount(run)));
    }
    return indexes;
  }

  /**
   * Flushes, then closes the connection.
   *
   * @throws WriteException if points cannot be written; they are kept, and {@code close} can be called again
   * @throws InterruptedException if the thread is interrupted while it waits; as above
   */
  @Override
  public synchronized void close() throws WriteException, InterruptedException {
    try {
      flush();
    } finally {
      abort();
    }
  }

  /** Closes the connection without a flush: points that are not acknowledged may or may not be stored. */
  public synchronized void abort() {
    channels.values().forEach(ManagedChannel::shutdownNow);
    channels.clear();
  }

  /**
   * Returns the counters.
   *
   * @return a snapshot
   */
  public synchronized WriterStatistics statistics() {
    return new WriterStatistics(appended, acknowledged, failed, retries, streams);
  }

  private static final class Point {
    private final Series series;
    private final long timestamp;
    private final Number value;

    private Point(Series series, long timestamp, Number value) {
      this.series = Objects.requireNonNull(series, "series");
      this.timestamp = timestamp;
      this.value = value;
    }
  }

  /** Settings of a writer; each has a default. */
  public static final class Builder {
    private final String[] endpoints;
    private int batchPoints = 4096;
    private Duration patience = Duration.ofSeconds(60);
    private FailedPointListener listener = (series, timestamp, value, error) -> {};
    private WriteOptions options =
        WriteOptions.newBuilder().setTimeUnit(TIME_UNIT_MILLISECONDS).setMaxErrors(10_000).build();
    private Function<String, ManagedChannel> channel =
        endpoint ->
            Grpc.newChannelBuilder(endpoint, InsecureChannelCredentials.create())
                .keepAliveTime(30, TimeUnit.SECONDS)
                .keepAliveTimeout(10, TimeUnit.SECONDS)
                .build();

    private Builder(String... endpoints) {
      if (endpoints.length == 0) {
        throw new IllegalArgumentException("no endpoints, at least one is required");
      }
      this.endpoints = endpoints.clone();
    }

    /**
     * Sets the number of points of a batch.
     *
     * @param points at least 1; 4096 by default
     * @return this builder
     */
    public Builder batchPoints(int points) {
      if (points < 1) {
        throw new IllegalArgumentException("batchPoints " + points + " is below 1");
      }
      batchPoints = points;
      return this;
    }

    /**
     * Sets how long a call waits while no point is acknowledged.
     *
     * @param patience 60 seconds by default
     * @return this builder
     */
    public Builder patience(Duration patience) {
      this.patience = Objects.requireNonNull(patience, "patience");
      return this;
    }

    /**
     * Sets the listener for points that a server rejects for good.
     *
     * @param listener none by default: such points are only counted
     * @return this builder
     */
    public Builder onFailed(FailedPointListener listener) {
      this.listener = Objects.requireNonNull(listener, "listener");
      return this;
    }

    /**
     * Sets how timestamps are read and stored.
     *
     * @param options milliseconds and 10,000 errors a frame by default
     * @return this builder
     */
    public Builder options(WriteOptions options) {
      this.options = Objects.requireNonNull(options, "options");
      return this;
    }

    /**
     * Sets how an endpoint is connected to, for example with TLS. The writer shuts the channels down.
     *
     * @param channel makes a new channel for an endpoint; by default without TLS, with keepalive
     * @return this builder
     */
    public Builder channel(Function<String, ManagedChannel> channel) {
      this.channel = Objects.requireNonNull(channel, "channel");
      return this;
    }

    /**
     * Returns a writer. It connects when the first batch is sent.
     *
     * @return the writer
     */
    public Writer build() {
      return new Writer(this);
    }
  }
}
