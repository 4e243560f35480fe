package dev.oxtsdb.flink;

import dev.oxtsdb.flink.example.Quote;

/** Quotes that depend on their number alone: eight symbols, a millisecond apart. */
final class Quotes {
  private static final long START_MS = 1_600_000_000_000L;

  private Quotes() {}

  static Quote numbered(long number) {
    return new Quote("S" + number % 8, 100 + number % 1000 / 4.0, number % 77, START_MS + number);
  }

  static long number(long timestamp) {
    return timestamp - START_MS;
  }

  /** Returns what {@link Quote#parse} reads. */
  static String line(Quote quote) {
    return quote.symbol + "," + quote.price + "," + quote.size + "," + quote.time;
  }
}
