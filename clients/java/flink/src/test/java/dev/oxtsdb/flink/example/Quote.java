package dev.oxtsdb.flink.example;

/** A quote, as a POJO of Flink. */
public final class Quote {
  /** What is traded. */
  public String symbol;

  public double price;
  public long size;

  /** Milliseconds since the epoch. */
  public long time;

  /** For Flink. */
  public Quote() {}

  public Quote(String symbol, double price, long size, long time) {
    this.symbol = symbol;
    this.price = price;
    this.size = size;
    this.time = time;
  }

  /** Reads {@code symbol,price,size,time}. */
  public static Quote parse(String line) {
    String[] fields = line.split(",");
    return new Quote(fields[0], Double.parseDouble(fields[1]), Long.parseLong(fields[2]), Long.parseLong(fields[3]));
  }
}
