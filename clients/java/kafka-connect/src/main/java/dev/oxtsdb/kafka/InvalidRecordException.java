package dev.oxtsdb.kafka;

import org.apache.kafka.connect.errors.DataException;

/** A record that has no valid points. The message names the field, its value and the rule. */
final class InvalidRecordException extends DataException {
  private static final long serialVersionUID = 1;
  private static final int EXCERPT = 100;

  InvalidRecordException(String message) {
    super(message);
  }

  InvalidRecordException(String message, Throwable cause) {
    super(message, cause);
  }

  /** Returns a value for a message, shortened. */
  static String excerpt(Object value) {
    String text = String.valueOf(value);
    return "`" + (text.length() > EXCERPT ? text.substring(0, EXCERPT) + "…" : text) + "`";
  }
}
