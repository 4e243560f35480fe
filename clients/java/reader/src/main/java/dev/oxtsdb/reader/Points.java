package dev.oxtsdb.reader;

/** Consecutive points of a series: a part of them from {@link QueryResult#next}, all of them from {@link Reader#readAll}. */
public final class Points {
  private final Series series;
  private final long[] timestamps;
  private final double[] values;

  Points(Series series, long[] timestamps, double[] values) {
    this.series = series;
    this.timestamps = timestamps;
    this.values = values;
  }

  /**
   * Returns the series.
   *
   * @return one object for all points of the series in a result
   */
  public Series series() {
    return series;
  }

  /**
   * Returns the number of points.
   *
   * @return points
   */
  public int size() {
    return timestamps.length;
  }

  /**
   * Returns the timestamps.
   *
   * @return milliseconds since the epoch, ascending; not a copy
   */
  public long[] timestamps() {
    return timestamps;
  }

  /**
   * Returns the values.
   *
   * @return one for each timestamp; not a copy. Integers beyond 2<sup>53</sup> are rounded; NaN is of a fill policy
   */
  public double[] values() {
    return values;
  }
}
