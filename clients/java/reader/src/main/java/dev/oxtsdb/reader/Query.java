package dev.oxtsdb.reader;

import dev.oxtsdb.proto.common.v1.TimeRange;
import dev.oxtsdb.proto.data.v1.AggregateFunction;
import dev.oxtsdb.proto.data.v1.Aggregator;
import dev.oxtsdb.proto.data.v1.Downsample;
import dev.oxtsdb.proto.data.v1.QueryRequest;
import dev.oxtsdb.proto.data.v1.Rate;
import dev.oxtsdb.proto.data.v1.SubQuery;
import dev.oxtsdb.proto.data.v1.TagFilter;
import java.time.Duration;
import java.time.Instant;

/**
 * Builds queries of metrics over a range of time. Each {@link #metric} begins a sub-query, which the methods after it refine. A {@link
 * QueryRequest} has everything that this class has not.
 */
public final class Query {
  private final QueryRequest.Builder request = QueryRequest.newBuilder();

  private Query(TimeRange.Builder range) {
    request.setRange(range);
  }

  /**
   * Begins a query from so long ago until now, by the server's clock.
   *
   * @param length more than zero
   * @return the query
   */
  public static Query last(Duration length) {
    return new Query(TimeRange.newBuilder().setStartAgo(duration(length)));
  }

  /**
   * Begins a query of a range.
   *
   * @param start first instant inside
   * @param end first instant outside
   * @return the query
   */
  public static Query between(Instant start, Instant end) {
    return new Query(TimeRange.newBuilder().setStartMs(start.toEpochMilli()).setEndMs(end.toEpochMilli()));
  }

  /**
   * Adds a sub-query: the series of a metric.
   *
   * @param metric name of the metric
   * @param function how series of a group are combined; {@code NONE}: each is a group of its own
   * @return this query
   */
  public Query metric(String metric, AggregateFunction function) {
    request
        .addQueriesBuilder()
        .setMetric(SubQuery.MetricSource.newBuilder().setMetric(metric))
        .setAggregator(Aggregator.newBuilder().setFunction(function));
    return this;
  }

  /**
   * Selects the series with a tag.
   *
   * @param key tag key
   * @param value tag value
   * @return this query
   */
  public Query tag(String key, String value) {
    return filter(TagFilter.newBuilder().setKey(key).setType(TagFilter.FilterType.FILTER_TYPE_LITERAL_OR).addValues(value));
  }

  /**
   * Returns a series for each value of a tag key, in place of one over all.
   *
   * @param key tag key
   * @return this query
   */
  public Query groupBy(String key) {
    return filter(
        TagFilter.newBuilder().setKey(key).setType(TagFilter.FilterType.FILTER_TYPE_WILDCARD).setPattern("*").setGroupBy(true));
  }

  /**
   * Replaces the points of each interval by one. Intervals are aligned to the epoch.
   *
   * @param interval at least a millisecond
   * @param function how the points of an interval are combined
   * @return this query
   */
  public Query downsample(Duration interval, AggregateFunction function) {
    subQuery()
        .setDownsample(
            Downsample.newBuilder()
                .setFixed(duration(interval))
                .setAggregator(Aggregator.newBuilder().setFunction(function)));
    return this;
  }

  /**
   * Returns the change per second.
   *
   * @return this query
   */
  public Query rate() {
    subQuery().setRate(Rate.getDefaultInstance());
    return this;
  }

  /**
   * Returns the request.
   *
   * @return the request
   */
  public QueryRequest request() {
    return request.build();
  }

  private Query filter(TagFilter.Builder filter) {
    subQuery().getMetricBuilder().addFilters(filter);
    return this;
  }

  private SubQuery.Builder subQuery() {
    if (request.getQueriesCount() == 0) {
      throw new IllegalStateException("the query has no metric yet");
    }
    return request.getQueriesBuilder(request.getQueriesCount() - 1);
  }

  private static com.google.protobuf.Duration duration(Duration duration) {
    return com.google.protobuf.Duration.newBuilder().setSeconds(duration.getSeconds()).setNanos(duration.getNano()).build();
  }
}
