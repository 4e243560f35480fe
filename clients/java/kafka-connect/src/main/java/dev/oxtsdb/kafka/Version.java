package dev.oxtsdb.kafka;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** The version of the connector, which the build sets. */
final class Version {
  private Version() {}

  static String get() {
    Properties properties = new Properties();
    try (InputStream file = Version.class.getResourceAsStream("version.properties")) {
      properties.load(file);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return properties.getProperty("version");
  }
}
