package dev.oxtsdb.reader;

import dev.oxtsdb.proto.Endpoints;
import dev.oxtsdb.proto.ErrorDetails;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingStub;
import dev.oxtsdb.proto.data.v1.QueryRequest;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Runs queries. Thread-safe.
 *
 * <p>A query that fails before its first frame is sent again, to the next endpoint, if a retry may help; after that a failure is the
 * caller's to handle.
 */
public final class Reader implements AutoCloseable {
  private static final int MIN_ATTEMPTS = 3;
  private static final long FIRST_PAUSE_MILLIS = 50;
  private static final long LONGEST_PAUSE_MILLIS = 2000;

  private final String[] endpoints;
  private final ManagedChannel[] channels;
  private final Duration timeout;
  /** The endpoint that served the last query. */
  private final AtomicInteger preferred = new AtomicInteger();

  private Reader(Builder settings) {
    endpoints = settings.endpoints;
    channels = Arrays.stream(endpoints).map(settings.channel).toArray(ManagedChannel[]::new);
    timeout = settings.timeout;
  }

  /**
   * Returns a builder of readers.
   *
   * @param endpoints {@code host:port} of data services, at least one
   * @return the builder
   * @throws IllegalArgumentException if there is none
   */
  public static Builder builder(String... endpoints) {
    return new Builder(endpoints);
  }

  /**
   * Runs a query and returns its result as it arrives. Blocks until its first frame.
   *
   * @param query the query
   * @return the result; to be closed
   * @throws ReadException if the query fails
   * @throws InterruptedException if the thread is interrupted
   */
  public QueryResult query(Query query) throws ReadException, InterruptedException {
    return query(query.request());
  }

  /**
   * Runs a query, as above.
   *
   * @param request the request
   * @return the result; to be closed
   * @throws ReadException if the query fails
   * @throws InterruptedException if the thread is interrupted
   */
  public QueryResult query(QueryRequest request) throws ReadException, InterruptedException {
    int attempts = Math.max(MIN_ATTEMPTS, endpoints.length);
    int first = preferred.get();
    long pause = FIRST_PAUSE_MILLIS;
    for (int attempt = 1; ; attempt++) {
      int at = (first + attempt - 1) % endpoints.length;
      QueryResult result = start(request, at);
      try {
        result.awaitFirst();
        preferred.set(at);
        return result;
      } catch (StatusRuntimeException error) {
        result.close();
        if (Thread.interrupted()) {
          throw new InterruptedException();
        }
        ErrorDetails details = new ErrorDetails(error);
        if (attempt == attempts || !ReadException.isTransient(details)) {
          throw new ReadException(endpoints[at], details);
        }
        Thread.sleep(Math.min(LONGEST_PAUSE_MILLIS, Math.max(pause, details.retryDelay().toMillis())));
        pause *= 2;
      }
    }
  }

  private QueryResult start(QueryRequest request, int at) {
    DataServiceBlockingStub stub = DataServiceGrpc.newBlockingStub(channels[at]);
    if (timeout != null) {
      stub = stub.withDeadlineAfter(timeout.toNanos(), TimeUnit.NANOSECONDS);
    }
    Context.CancellableContext context = Context.current().withCancellation();
    Context previous = context.attach();
    try {
      return new QueryResult(endpoints[at], context, stub.query(request));
    } finally {
      context.detach(previous);
    }
  }

  /**
   * Runs a query and returns its whole result.
   *
   * @param query the query
   * @param maxPoints points that the result may have; it takes 16 bytes for each, at most twice as much while it is read
   * @return the points of each series that has any, in the order in which series arrive
   * @throws ReadException if the query fails
   * @throws InterruptedException if the thread is interrupted
   * @throws IllegalArgumentException if the result has more points
   */
  public List<Points> readAll(Query query, int maxPoints) throws ReadException, InterruptedException {
    Map<Series, PointsBuilder> all = new LinkedHashMap<>();
    long count = 0;
    try (QueryResult result = query(query)) {
      for (Points points = result.next(); points != null; points = result.next()) {
        count += points.size();
        if (count > maxPoints) {
          throw new IllegalArgumentException("the result has more points than maxPoints, which is " + maxPoints);
        }
        all.computeIfAbsent(points.series(), PointsBuilder::new).add(points);
      }
    }
    return all.values().stream().map(PointsBuilder::build).collect(Collectors.toList());
  }

  /** Closes the connections. Queries in progress fail. */
  @Override
  public void close() {
    for (ManagedChannel channel : channels) {
      channel.shutdownNow();
    }
  }

  /** Settings of a reader; each has a default. */
  public static final class Builder {
    private final String[] endpoints;
    private Duration timeout;
    private Function<String, ManagedChannel> channel = Endpoints::plain;

    private Builder(String... endpoints) {
      this.endpoints = Endpoints.copyOf(endpoints);
    }

    /**
     * Sets how long a query may take, up to its last frame.
     *
     * @param timeout more than zero; by default a server's limits hold alone
     * @return this builder
     * @throws IllegalArgumentException if it is not
     */
    public Builder timeout(Duration timeout) {
      if (timeout.isZero() || timeout.isNegative()) {
        throw new IllegalArgumentException("timeout " + timeout + " is not above zero");
      }
      this.timeout = timeout;
      return this;
    }

    /**
     * Sets how an endpoint is connected to, for example with TLS. The reader shuts the channels down.
     *
     * @param channel makes a channel for an endpoint; by default without TLS, with keepalive
     * @return this builder
     */
    public Builder channel(Function<String, ManagedChannel> channel) {
      this.channel = channel;
      return this;
    }

    /**
     * Returns a reader. It connects with the first query.
     *
     * @return the reader
     */
    public Reader build() {
      return new Reader(this);
    }
  }
}
