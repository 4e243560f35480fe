package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.InvalidRecordException.excerpt;

/** What happens to characters that names of OpenTSDB cannot have. */
final class NameRule {
  /** Letters of ISO-8859-1 beyond ASCII. */
  private static final String LETTERS =
      "ªµºÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ";

  private final boolean isReplaced;
  private final String allowed;

  /**
   * A rule.
   *
   * @param isReplaced whether such a character becomes {@code _}; otherwise the record is rejected
   * @param extraCharacters characters that the UID service allows (--extra-name-characters)
   */
  NameRule(boolean isReplaced, String extraCharacters) {
    this.isReplaced = isReplaced;
    this.allowed = "-_./" + LETTERS + extraCharacters;
  }

  /** Returns a name as it is stored; {@code what} names it in the error. */
  String apply(String what, String name) {
    if (name.isEmpty()) {
      throw new InvalidRecordException(what + " is empty");
    }
    StringBuilder replaced = null;
    for (int at = 0; at < name.length(); ) {
      int character = name.codePointAt(at);
      int next = at + Character.charCount(character);
      if (!isAllowed(character)) {
        if (!isReplaced) {
          throw new InvalidRecordException(
              String.format(
                  "%s %s has the character `%s`, allowed are letters, digits, `-`, `_`, `.`, `/` and those of %s",
                  what, excerpt(name), Character.toString(character), SinkSettings.NAMES_EXTRA_CHARACTERS));
        }
        if (replaced == null) {
          replaced = new StringBuilder(name.length()).append(name, 0, at);
        }
        replaced.append('_');
      } else if (replaced != null) {
        replaced.appendCodePoint(character);
      }
      at = next;
    }
    return replaced == null ? name : replaced.toString();
  }

  private boolean isAllowed(int character) {
    boolean isPlain =
        character >= 'a' && character <= 'z' || character >= 'A' && character <= 'Z' || character >= '0' && character <= '9';
    return isPlain || allowed.indexOf(character) >= 0;
  }
}
