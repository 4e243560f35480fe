package dev.oxtsdb.writer;

import static dev.oxtsdb.proto.data.v1.TimeUnit.TIME_UNIT_MILLISECONDS;

import dev.oxtsdb.proto.Endpoints;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import io.grpc.ManagedChannel;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * Writes points over {@code WriteStream}: batches them, sends names once for each stream, keeps to the server's window, and sends again what
 * no server has acknowledged, to the next endpoint if need be. Thread-safe.
 *
 * <p>Of points of one series and instant, the one that was appended later wins, also after retries. Points that a server rejects for now
 * are sent again after a pause, and those that were stored behind them meanwhile are sent again behind them.
 *
 * <p>The writer connects for the first batch. It has no thread of its own: acknowledgements are handled in gRPC's threads, and a broken
 * stream is replaced by the next call. Points of an incomplete batch are sent by {@link #flush}.
 *
 * <p>An interrupted call throws {@link InterruptedException} and loses no point. {@link IllegalStateException} is thrown by calls of a
 * closed writer, and by calls of the listener for failed points.
 */
public final class Writer implements AutoCloseable {
  private final Pipeline pipeline;

  private Writer(Builder settings) {
    pipeline = new Pipeline(settings);
  }

  /**
   * Returns a builder of writers.
   *
   * @param endpoints {@code host:port} of data services, at least one; each stream is opened to the next one, beginning with the first
   * @return the builder
   * @throws IllegalArgumentException if there is none
   */
  public static Builder builder(String... endpoints) {
    return new Builder(endpoints);
  }

  /**
   * Appends a floating-point value. Blocks while the server's window is full. The server rejects NaN and infinities.
   *
   * @param series the series
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws WriteException if earlier points cannot be written; this point is not appended then
   * @throws InterruptedException if the thread is interrupted; this point is not appended then
   */
  public void append(Series series, long timestamp, double value) throws WriteException, InterruptedException {
    pipeline.append(Objects.requireNonNull(series, "series"), timestamp, Double.doubleToRawLongBits(value), true);
  }

  /**
   * Appends an integer value, as above.
   *
   * @param series the series
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws WriteException if earlier points cannot be written; this point is not appended then
   * @throws InterruptedException if the thread is interrupted; this point is not appended then
   */
  public void append(Series series, long timestamp, long value) throws WriteException, InterruptedException {
    pipeline.append(Objects.requireNonNull(series, "series"), timestamp, value, false);
  }

  /**
   * Sends what is not sent, and returns when every point that was appended before is stored (durable) or was given to the listener.
   *
   * @throws WriteException if no point was stored for as long as the patience, or a retry is of no use; the points are kept
   * @throws InterruptedException if the thread is interrupted; the points are kept
   */
  public void flush() throws WriteException, InterruptedException {
    pipeline.flush();
  }

  /**
   * Flushes, then closes the connection. Closes nothing twice.
   *
   * <p>After an exception the writer is still open, with its points but without a connection: {@code flush} and {@code close} try again,
   * {@link #abort} drops them.
   *
   * @throws WriteException as {@link #flush}
   * @throws InterruptedException as {@link #flush}
   */
  @Override
  public void close() throws WriteException, InterruptedException {
    pipeline.close();
  }

  /**
   * Closes the connection without a flush, and does not block: points that are not acknowledged may be stored or not. Calls that wait in
   * other threads throw {@link IllegalStateException}.
   */
  public void abort() {
    pipeline.abort();
  }

  /**
   * Returns the counters.
   *
   * @return a snapshot
   */
  public WriterStatistics statistics() {
    return pipeline.statistics();
  }

  /** Settings of a writer; each has a default. */
  public static final class Builder {
    final String[] endpoints;
    int batchPoints = 4096;
    Duration patience = Duration.ofSeconds(60);
    FailedPointListener listener = (series, timestamp, value, error) -> {};
    WriteOptions options =
        WriteOptions.newBuilder().setTimeUnit(TIME_UNIT_MILLISECONDS).setMaxErrors(10_000).build();
    Function<String, ManagedChannel> channel = Endpoints::plain;

    private Builder(String... endpoints) {
      this.endpoints = Endpoints.copyOf(endpoints);
    }

    /**
     * Sets the number of points of a batch.
     *
     * @param points at least 1; 4096 by default. A server's limit for frames splits larger batches
     * @return this builder
     * @throws IllegalArgumentException if it is below 1
     */
    public Builder batchPoints(int points) {
      if (points < 1) {
        throw new IllegalArgumentException("batchPoints " + points + " is below 1");
      }
      batchPoints = points;
      return this;
    }

    /**
     * Sets how long a call retries while no point is stored. Then it throws {@link WriteException}.
     *
     * @param patience more than zero; 60 seconds by default
     * @return this builder
     * @throws IllegalArgumentException if it is not
     */
    public Builder patience(Duration patience) {
      if (patience.isZero() || patience.isNegative()) {
        throw new IllegalArgumentException("patience " + patience + " is not above zero");
      }
      this.patience = patience;
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
