package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.InvalidRecordException.excerpt;

import java.math.BigDecimal;
import java.util.regex.Pattern;

/** Values of points, from numbers of all converters and from texts. */
final class Numbers {
  private static final Pattern INTEGER = Pattern.compile("[+-]?\\d+");
  private static final Pattern DECIMAL = Pattern.compile("[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d{1,9})?");
  /** The longest double without an exponent has fewer characters. */
  private static final int MAX_CHARACTERS = 1_100;

  private Numbers() {}

  /** Returns a {@link Long} for integers and booleans, a finite {@link Double} for other numbers. */
  static Number value(String field, Object value) {
    if (value instanceof Boolean) {
      return (Boolean) value ? 1L : 0L;
    }
    if (isInteger(value)) {
      return ((Number) value).longValue();
    }
    if (value instanceof Double || value instanceof Float) {
      return finite(field, value, ((Number) value).doubleValue());
    }
    String text = text(field, value);
    if (!INTEGER.matcher(text).matches()) {
      return finite(field, text, Double.parseDouble(text));
    }
    try {
      return Long.valueOf(text);
    } catch (NumberFormatException error) {
      throw new InvalidRecordException("field `" + field + "`: " + excerpt(text) + " does not fit 64 bits", error);
    }
  }

  /** Returns a number exactly; of a binary fraction the shortest decimal one that stands for it. */
  static BigDecimal decimal(String field, Object value) {
    if (isInteger(value)) {
      return BigDecimal.valueOf(((Number) value).longValue());
    }
    if (value instanceof Double || value instanceof Float) {
      finite(field, value, ((Number) value).doubleValue());
    }
    return new BigDecimal(text(field, value));
  }

  static boolean isInteger(Object value) {
    return value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte;
  }

  private static Double finite(String field, Object value, double number) {
    if (Double.isNaN(number) || Double.isInfinite(number)) {
      throw new InvalidRecordException("field `" + field + "`: " + excerpt(value) + " is not a finite number");
    }
    return number;
  }

  /** Returns the digits of a text, or of a number with more digits than a long or a double. */
  private static String text(String field, Object value) {
    if (value instanceof Number || value instanceof String) {
      String text = value.toString();
      if (text.length() <= MAX_CHARACTERS && DECIMAL.matcher(text).matches()) {
        return text;
      }
    }
    throw new InvalidRecordException("field `" + field + "`: " + excerpt(value) + " is not a number");
  }
}
