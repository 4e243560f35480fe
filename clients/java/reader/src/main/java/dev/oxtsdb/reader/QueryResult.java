package dev.oxtsdb.reader;

import dev.oxtsdb.proto.ErrorDetails;
import dev.oxtsdb.proto.data.v1.DeltaTimestamps;
import dev.oxtsdb.proto.data.v1.QueryResponse;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * The result of a query, as it arrives. Its memory is that of two frames (of 4096 points each, unless the request sets {@code
 * frame_points}) and of the names of its series: the server sends more only after the caller has read them. Not thread-safe.
 *
 * <p>{@link #close} cancels what was not read.
 */
public final class QueryResult implements AutoCloseable {
  private final String endpoint;
  private final Context.CancellableContext context;
  private final Iterator<QueryResponse> responses;
  private final Map<Integer, Series> series = new HashMap<>();
  private QueryResponse.Statistics statistics;

  QueryResult(String endpoint, Context.CancellableContext context, Iterator<QueryResponse> responses) {
    this.endpoint = endpoint;
    this.context = context;
    this.responses = responses;
  }

  /**
   * Returns the next points. Those of a series come in order of time; points of several series may alternate. Blocks until they arrive.
   *
   * @return points, at least one; null at the end of the result
   * @throws ReadException if the query fails: what was read before is not the whole result
   */
  public Points next() throws ReadException {
    try {
      while (responses.hasNext()) {
        QueryResponse response = responses.next();
        switch (response.getFrameCase()) {
          case SERIES:
            series.put(response.getSeries().getSeries(), new Series(response.getSeries()));
            break;
          case POINTS:
            return points(response.getPoints());
          case STATISTICS:
            statistics = response.getStatistics();
            break;
          default:
            // Ends of sub-queries, annotations.
            break;
        }
      }
    } catch (StatusRuntimeException error) {
      throw new ReadException(endpoint, new ErrorDetails(error));
    }
    if (statistics == null) {
      throw broken("the stream ended before its last frame");
    }
    return null;
  }

  /**
   * Returns what the query read, and what its result is missing.
   *
   * @return the statistics; null before the end of the result
   */
  public QueryResponse.Statistics statistics() {
    return statistics;
  }

  private Points points(QueryResponse.Points points) throws ReadException {
    Series of = series.get(points.getSeries());
    long[] timestamps = timestamps(points);
    double[] values = new double[timestamps.length];
    boolean hasIntegers = points.getIntValuesCount() > 0;
    if (of == null || values.length == 0 || (hasIntegers ? points.getIntValuesCount() : points.getValuesCount()) != values.length) {
      throw broken("points do not fit their series or their timestamps");
    }
    for (int at = 0; at < values.length; at++) {
      values[at] = hasIntegers ? points.getIntValues(at) : points.getValues(at);
    }
    return new Points(of, timestamps, values);
  }

  private long[] timestamps(QueryResponse.Points points) throws ReadException {
    if (!points.hasDeltaTimestamps()) {
      return points.getTimestampsMsList().stream().mapToLong(Long::longValue).toArray();
    }
    DeltaTimestamps encoded = points.getDeltaTimestamps();
    long[] timestamps = new long[1 + encoded.getDeltasCount()];
    timestamps[0] = encoded.getFirst();
    for (int at = 1; at < timestamps.length; at++) {
      timestamps[at] = timestamps[at - 1] + encoded.getDeltas(at - 1);
    }
    if (timestamps[timestamps.length - 1] != encoded.getLast()) {
      throw broken("timestamps do not add up to the last one");
    }
    return timestamps;
  }

  /** A violation of the contract; for the caller the result is incomplete, as after a broken connection. */
  private ReadException broken(String why) {
    return new ReadException(endpoint, new ErrorDetails(Status.UNAVAILABLE.withDescription(why).asException()));
  }

  /** Waits for the first frame, so that a query that fails before it can be sent elsewhere. */
  void awaitFirst() {
    responses.hasNext();
  }

  /** Cancels the query, if it has not ended. */
  @Override
  public void close() {
    context.cancel(null);
  }
}
