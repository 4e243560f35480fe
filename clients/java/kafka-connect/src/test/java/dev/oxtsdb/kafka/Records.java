package dev.oxtsdb.kafka;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;

/** Records for tests, and the points of them. */
final class Records {
  static final String TOPIC = "weather";
  static final long TIMESTAMP_MS = 1_700_000_000_500L;

  private Records() {}

  static SinkRecord record(Object value) {
    return record(value, 0);
  }

  static SinkRecord record(Object value, long offset) {
    return new SinkRecord(TOPIC, 0, null, null, null, value, offset, TIMESTAMP_MS, TimestampType.CREATE_TIME);
  }

  /** Converts a record's bytes as a worker does. */
  static SinkRecord json(String text, boolean hasSchema) {
    try (JsonConverter converter = new JsonConverter()) {
      converter.configure(Map.of("schemas.enable", String.valueOf(hasSchema)), false);
      SchemaAndValue converted = converter.toConnectData(TOPIC, text.getBytes(StandardCharsets.UTF_8));
      return record(converted.value());
    }
  }

  static Map<String, String> settings(String... keysAndValues) {
    Map<String, String> settings = new HashMap<>(Map.of(SinkSettings.ENDPOINTS, "localhost:4243"));
    for (int at = 0; at < keysAndValues.length; at += 2) {
      settings.put(keysAndValues[at], keysAndValues[at + 1]);
    }
    return settings;
  }

  static List<String> points(SinkRecord record, String... settings) {
    List<Point> points = new SinkSettings(settings(settings)).decoder().points(record);
    return points.stream().map(Point::toString).collect(Collectors.toList());
  }

  static String rejection(SinkRecord record, String... settings) {
    return assertThrows(InvalidRecordException.class, () -> points(record, settings)).getMessage();
  }
}
