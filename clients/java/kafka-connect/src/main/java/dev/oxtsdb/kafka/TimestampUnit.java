package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.InvalidRecordException.excerpt;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.util.Date;

/** The unit of the timestamps of records. */
enum TimestampUnit {
  /** Seconds up to 4294967295, milliseconds above. */
  OPENTSDB(0),
  SECONDS(3),
  MILLISECONDS(0),
  MICROSECONDS(-3),
  NANOSECONDS(-6);

  /** The last millisecond that a row of OpenTSDB can hold. */
  private static final long MAX_MS = 4_294_967_295_999L;
  /** Seconds end before this. */
  private static final long SECONDS_END = 1L << 32;

  /** Decimal places to milliseconds. */
  private final int places;

  TimestampUnit(int places) {
    this.places = places;
  }

  /** Returns the milliseconds of a timestamp, rounded down. Dates, which Connect has for logical types, have their own unit. */
  long milliseconds(String field, Object value) {
    if (value instanceof Date) {
      return checked(field, value, BigDecimal.valueOf(((Date) value).getTime()));
    }
    BigDecimal number = Numbers.decimal(field, value);
    boolean isSeconds = this == OPENTSDB && number.compareTo(BigDecimal.valueOf(SECONDS_END)) < 0;
    return checked(field, value, number.scaleByPowerOfTen(isSeconds ? SECONDS.places : places));
  }

  private static long checked(String field, Object value, BigDecimal milliseconds) {
    if (milliseconds.compareTo(BigDecimal.ONE) < 0 || milliseconds.compareTo(BigDecimal.valueOf(MAX_MS + 1)) >= 0) {
      throw new InvalidRecordException(
          String.format(
              "field `%s`: timestamp %s is not within 1 ms and %d ms after 1970", field, excerpt(value), MAX_MS));
    }
    return milliseconds.setScale(0, RoundingMode.DOWN).longValueExact();
  }
}
