package dev.oxtsdb.writer;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;

/** A series: a metric and its tags. Immutable; equal series have equal metrics and tags, whatever the order of the tags. */
public final class Series {
  private static final char LAST_OF_LATIN_1 = '\u00ff';

  private final String metric;
  private final Map<String, String> tags;
  private final int hash;

  private Series(String metric, Map<String, String> tags) {
    this.metric = metric;
    this.tags = tags;
    hash = 31 * metric.hashCode() + tags.hashCode();
  }

  /**
   * Returns a series.
   *
   * <p>Checks what holds for every server: names are not empty and have characters of ISO-8859-1 only, and there is a tag. A server's
   * own rules (characters, number of tags, length) are checked there, and points that break them are given to the {@link
   * FailedPointListener}.
   *
   * @param metric name of the metric
   * @param tags tag keys with their values; copied
   * @return the series
   * @throws IllegalArgumentException if no server takes these names
   */
  public static Series of(String metric, Map<String, String> tags) {
    checkName("metric", metric);
    if (tags.isEmpty()) {
      throw new IllegalArgumentException("series of metric `" + metric + "` has no tags, at least one is required");
    }
    TreeMap<String, String> sorted = new TreeMap<>();
    tags.forEach(
        (key, value) -> {
          checkName("tag key", key);
          checkName("value of tag `" + key + "`", value);
          sorted.put(key, value);
        });
    return new Series(metric, Collections.unmodifiableMap(sorted));
  }

  private static void checkName(String what, String name) {
    if (name == null || name.isEmpty()) {
      throw new IllegalArgumentException(what + " is " + (name == null ? "null" : "empty"));
    }
    for (int at = 0; at < name.length(); at++) {
      if (name.charAt(at) > LAST_OF_LATIN_1) {
        throw new IllegalArgumentException(
            what + " `" + name + "` has a character at position " + at + " that is not in ISO-8859-1");
      }
    }
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
   * Returns the tags.
   *
   * @return tag keys with their values, sorted by key, unmodifiable
   */
  public Map<String, String> tags() {
    return tags;
  }

  @Override
  public boolean equals(Object other) {
    if (this == other) {
      return true;
    }
    if (!(other instanceof Series)) {
      return false;
    }
    Series series = (Series) other;
    return hash == series.hash && metric.equals(series.metric) && tags.equals(series.tags);
  }

  @Override
  public int hashCode() {
    return hash;
  }

  /** Returns the series as OpenTSDB writes it: {@code sys.cpu.user{cpu=0,host=web01}}. */
  @Override
  public String toString() {
    return metric + tags.toString().replace(", ", ",");
  }
}
