package dev.oxtsdb.reader;

import java.util.Arrays;

/** Collects the points of a series. */
final class PointsBuilder {
  private final Series series;
  private long[] timestamps = new long[0];
  private double[] values = new double[0];
  private int size;

  PointsBuilder(Series series) {
    this.series = series;
  }

  void add(Points points) {
    int end = size + points.size();
    if (end > timestamps.length) {
      int capacity = Math.max(end, size + size / 2);
      timestamps = Arrays.copyOf(timestamps, capacity);
      values = Arrays.copyOf(values, capacity);
    }
    System.arraycopy(points.timestamps(), 0, timestamps, size, points.size());
    System.arraycopy(points.values(), 0, values, size, points.size());
    size = end;
  }

  Points build() {
    return new Points(series, Arrays.copyOf(timestamps, size), Arrays.copyOf(values, size));
  }
}
