package dev.oxtsdb.writer;

import java.util.Arrays;
import java.util.BitSet;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Points in columns, in the order in which they are sent. */
final class Batch {
  /** Differences of timestamps below this do not overflow. */
  private static final long MAX_DELTA_TIMESTAMP = 1L << 62;

  private final long ordinal;
  private final BitSet doubles = new BitSet();
  private Series[] series = new Series[16];
  private long[] timestamps = new long[16];
  private long[] bits = new long[16];
  private int size;
  private boolean fitsDeltas = true;

  /**
   * Creates an empty batch.
   *
   * @param ordinal a number that is higher for points that were appended later
   */
  Batch(long ordinal) {
    this.ordinal = ordinal;
  }

  long ordinal() {
    return ordinal;
  }

  int size() {
    return size;
  }

  /**
   * Adds a point.
   *
   * @param bits an integer, or the bits of a double
   */
  void add(Series series, long timestamp, long bits, boolean isDouble) {
    if (size == timestamps.length) {
      this.series = Arrays.copyOf(this.series, 2 * size);
      timestamps = Arrays.copyOf(timestamps, 2 * size);
      this.bits = Arrays.copyOf(this.bits, 2 * size);
    }
    this.series[size] = series;
    timestamps[size] = timestamp;
    this.bits[size] = bits;
    doubles.set(size, isDouble);
    fitsDeltas &= timestamp >= 0 && timestamp < MAX_DELTA_TIMESTAMP;
    size++;
  }

  /** Adds a point of another batch. */
  void add(Batch other, int at) {
    add(other.series[at], other.timestamps[at], other.bits[at], other.doubles.get(at));
  }

  Series series(int at) {
    return series[at];
  }

  long timestamp(int at) {
    return timestamps[at];
  }

  boolean isDouble(int at) {
    return doubles.get(at);
  }

  long longValue(int at) {
    return bits[at];
  }

  double doubleValue(int at) {
    return Double.longBitsToDouble(bits[at]);
  }

  Number value(int at) {
    // Not a conditional expression, which would make a double of both.
    if (isDouble(at)) {
      return doubleValue(at);
    }
    return longValue(at);
  }

  /** Returns whether the timestamps can be sent as differences. A server rejects the others one by one if they are absolute. */
  boolean fitsDeltas() {
    return fitsDeltas;
  }

  /** Returns a key for the place of a point in the store: of two points with equal keys, the one sent later wins. */
  Map.Entry<Series, Long> instant(int at) {
    return Map.entry(series[at], timestamps[at]);
  }

  /** Returns the points from {@code from} to before {@code to}. */
  Batch range(int from, int to) {
    Batch range = new Batch(ordinal);
    for (int at = from; at < to; at++) {
      range.add(this, at);
    }
    return range;
  }

  /**
   * Returns the points with the integers first, because a block has one type of value. Points keep their order if two have one instant,
   * because the later one wins.
   */
  Batch byType() {
    if (doubles.isEmpty() || doubles.cardinality() == size || hasRepeatedInstant()) {
      return this;
    }
    Batch sorted = new Batch(ordinal);
    for (int at = doubles.nextClearBit(0); at < size; at = doubles.nextClearBit(at + 1)) {
      sorted.add(this, at);
    }
    for (int at = doubles.nextSetBit(0); at >= 0; at = doubles.nextSetBit(at + 1)) {
      sorted.add(this, at);
    }
    return sorted;
  }

  private boolean hasRepeatedInstant() {
    Set<Map.Entry<Series, Long>> instants = new HashSet<>();
    for (int at = 0; at < size; at++) {
      if (!instants.add(instant(at))) {
        return true;
      }
    }
    return false;
  }
}
