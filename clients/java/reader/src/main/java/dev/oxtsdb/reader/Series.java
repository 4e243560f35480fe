package dev.oxtsdb.reader;

import dev.oxtsdb.proto.data.v1.QueryResponse;
import java.util.List;
import java.util.Map;

/** A series of a result: a group of stored series, or one of them with the aggregator NONE. */
public final class Series {
  private final int query;
  private final String metric;
  private final Map<String, String> tags;
  private final List<String> aggregateTags;

  Series(QueryResponse.Series series) {
    query = series.getQuery();
    metric = series.getMetric();
    tags = Map.copyOf(series.getTagsMap());
    aggregateTags = List.copyOf(series.getAggregateTagsList());
  }

  /**
   * Returns which sub-query the series is a result of.
   *
   * @return its number in the request, from 0
   */
  public int query() {
    return query;
  }

  /**
   * Returns the name of the metric.
   *
   * @return the metric
   */
  public String metric() {
    return metric;
  }

  /**
   * Returns the tags that all stored series of the group share.
   *
   * @return tag keys with their values
   */
  public Map<String, String> tags() {
    return tags;
  }

  /**
   * Returns the keys of the tags that differ in the group.
   *
   * @return tag keys
   */
  public List<String> aggregateTags() {
    return aggregateTags;
  }

  @Override
  public String toString() {
    return metric + tags;
  }
}
