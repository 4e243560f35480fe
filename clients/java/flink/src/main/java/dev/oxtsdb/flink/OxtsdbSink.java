package dev.oxtsdb.flink;

import dev.oxtsdb.proto.data.v1.TimeUnit;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import dev.oxtsdb.writer.Writer;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.io.OutputStream;
import java.time.Duration;
import java.util.Objects;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/**
 * Writes the points of a stream to OxTSDB.
 *
 * <p>With checkpoints, each point is written at least once: a checkpoint completes after a server has acknowledged all points before it
 * as durable. A repeated point replaces itself, so the stored points are exact if the source replays and the converter is
 * deterministic.
 *
 * <pre>{@code
 * quotes.sinkTo(
 *     OxtsdbSink.<Quote>builder()
 *         .endpoints("tsdb1:4243", "tsdb2:4243")
 *         .converter((quote, context, points) ->
 *             points.add("quote.price", Map.of("symbol", quote.symbol), quote.time, quote.price))
 *         .build());
 * }</pre>
 *
 * @param <T> type of the elements
 * @serial exclude
 */
public final class OxtsdbSink<T> implements Sink<T> {
  private static final long serialVersionUID = 1;

  private final String[] endpoints;
  private final PointConverter<T> converter;
  private final int batchPoints;
  private final Duration patience;
  private final Duration maxDelay;
  private final RejectedPointHandler onRejected;
  private final ChannelFactory channels;
  private final WriteOptions options;

  private OxtsdbSink(Builder<T> builder) {
    endpoints = builder.endpoints;
    converter = builder.converter;
    batchPoints = builder.batchPoints;
    patience = builder.patience;
    maxDelay = builder.maxDelay;
    onRejected = builder.onRejected;
    channels = builder.channels;
    options = builder.options;
  }

  /**
   * Returns a builder of sinks.
   *
   * @param <T> type of the elements
   * @return the builder
   */
  public static <T> Builder<T> builder() {
    return new Builder<>();
  }

  @Override
  public SinkWriter<T> createWriter(WriterInitContext context) {
    Writer.Builder writer =
        Writer.builder(rotated(endpoints, context.getTaskInfo().getIndexOfThisSubtask()))
            .batchPoints(batchPoints)
            .patience(patience)
            .options(options)
            .channel(channels);
    return new OxtsdbSinkWriter<>(
        writer, converter, onRejected, maxDelay, context.metricGroup(), context.getProcessingTimeService());
  }

  /** Subtasks begin with different endpoints, so that all endpoints share the load. */
  private static String[] rotated(String[] endpoints, int by) {
    String[] rotated = new String[endpoints.length];
    for (int at = 0; at < endpoints.length; at++) {
      rotated[at] = endpoints[(at + by) % endpoints.length];
    }
    return rotated;
  }

  /**
   * Settings of a sink. Endpoints and converter are required.
   *
   * @param <T> type of the elements
   */
  public static final class Builder<T> {
    private String[] endpoints = {};
    private PointConverter<T> converter;
    private int batchPoints = 4096;
    private Duration patience = Duration.ofSeconds(60);
    private Duration maxDelay = Duration.ofSeconds(1);
    private RejectedPointHandler onRejected = RejectedPointHandler.fail();
    private ChannelFactory channels = ChannelSettings.plaintext();
    private WriteOptions options =
        WriteOptions.newBuilder().setTimeUnit(TimeUnit.TIME_UNIT_MILLISECONDS).setMaxErrors(10_000).build();

    private Builder() {}

    /**
     * Sets the data services, each {@code host:port}. Subtasks begin with different ones and move to the next when one fails.
     *
     * @param endpoints at least one
     * @return this builder
     */
    public Builder<T> endpoints(String... endpoints) {
      for (String endpoint : endpoints) {
        if (!endpoint.matches(".+:[0-9]{1,5}")) {
          throw new IllegalArgumentException("endpoint `" + endpoint + "` is not `host:port`");
        }
      }
      this.endpoints = endpoints.clone();
      return this;
    }

    /**
     * Sets the converter of elements to points.
     *
     * @param converter serializable, as lambdas are if all that they capture is
     * @return this builder
     */
    public Builder<T> converter(PointConverter<T> converter) {
      this.converter = serializable("converter", converter);
      return this;
    }

    /**
     * Sets how many points a subtask sends as one batch.
     *
     * @param points at least 1; 4096 by default
     * @return this builder
     */
    public Builder<T> batchPoints(int points) {
      if (points < 1) {
        throw new IllegalArgumentException("batchPoints " + points + " is below 1");
      }
      batchPoints = points;
      return this;
    }

    /**
     * Sets how long a subtask retries while no point is acknowledged. After it the subtask fails, and Flink restarts the job by its restart
     * strategy. Flink's own {@code execution.checkpointing.timeout} should be longer.
     *
     * @param patience at least a millisecond; 60 seconds by default
     * @return this builder
     */
    public Builder<T> patience(Duration patience) {
      this.patience = positive("patience", patience);
      return this;
    }

    /**
     * Sets how long a point waits in an incomplete batch; a checkpoint also sends it.
     *
     * @param delay at least a millisecond; a second by default
     * @return this builder
     */
    public Builder<T> maxDelay(Duration delay) {
      maxDelay = positive("maxDelay", delay);
      return this;
    }

    /**
     * Sets what happens to points that a server rejects for good.
     *
     * @param handler {@link RejectedPointHandler#fail} by default
     * @return this builder
     */
    public Builder<T> onRejected(RejectedPointHandler handler) {
      onRejected = serializable("onRejected", handler);
      return this;
    }

    /**
     * Sets how endpoints are connected to.
     *
     * @param channels {@link ChannelSettings#plaintext} by default
     * @return this builder
     */
    public Builder<T> channels(ChannelFactory channels) {
      this.channels = serializable("channels", channels);
      return this;
    }

    /**
     * Sets the unit of timestamps, and which ones a server takes.
     *
     * @param options milliseconds between 2000 and a year from now, and 10,000 errors a batch by default
     * @return this builder
     */
    public Builder<T> options(WriteOptions options) {
      this.options = Objects.requireNonNull(options, "options");
      return this;
    }

    /**
     * Returns the sink.
     *
     * @return the sink
     * @throws IllegalStateException if endpoints or converter are missing
     */
    public OxtsdbSink<T> build() {
      if (endpoints.length == 0) {
        throw new IllegalStateException("endpoints are missing, at least one is required");
      }
      if (converter == null) {
        throw new IllegalStateException("converter is missing");
      }
      return new OxtsdbSink<>(this);
    }

    private static Duration positive(String name, Duration duration) {
      if (duration.toMillis() < 1) {
        throw new IllegalArgumentException(name + " " + duration + " is below 1 ms");
      }
      return duration;
    }

    /** Finds here, by its name, what Flink would report when the job is submitted. */
    private static <V> V serializable(String name, V value) {
      Objects.requireNonNull(value, name);
      try (ObjectOutputStream output = new ObjectOutputStream(OutputStream.nullOutputStream())) {
        output.writeObject(value);
      } catch (IOException failure) {
        throw new IllegalArgumentException(name + " is not serializable: " + failure, failure);
      }
      return value;
    }
  }
}
