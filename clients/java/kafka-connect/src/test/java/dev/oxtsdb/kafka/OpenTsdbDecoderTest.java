package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.Records.json;
import static dev.oxtsdb.kafka.Records.record;
import static dev.oxtsdb.kafka.Records.rejection;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class OpenTsdbDecoderTest {
  private static final String POINT =
      "{\"metric\":\"sys.cpu\",\"timestamp\":1700000000,\"value\":42,\"tags\":{\"host\":\"web01\",\"cpu\":0}}";

  private static List<String> points(SinkRecord record, String... settings) {
    return Records.points(record, opentsdb(settings));
  }

  private static String[] opentsdb(String... settings) {
    String[] all = new String[settings.length + 2];
    all[0] = SinkSettings.RECORD_FORMAT;
    all[1] = "opentsdb";
    System.arraycopy(settings, 0, all, 2, settings.length);
    return all;
  }

  private static void assertRejected(Object value, String reason) {
    assertEquals(reason, rejection(record(value), opentsdb()));
  }

  @Test
  void decodesJsonTextBytesAndMaps() {
    List<String> expected = List.of("sys.cpu 1700000000000 42 cpu=0 host=web01");
    assertEquals(expected, points(record(POINT)));
    assertEquals(expected, points(record(" [" + POINT + "]\n")));
    assertEquals(expected, points(record(POINT.getBytes(StandardCharsets.UTF_8))));
    assertEquals(expected, points(json(POINT, false)));
    assertEquals(expected, points(json("[" + POINT + "]", false)));
  }

  @Test
  void decodesStructs() {
    Schema tags = SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA).build();
    Schema schema =
        SchemaBuilder.struct()
            .field("metric", Schema.STRING_SCHEMA)
            .field("timestamp", Schema.INT64_SCHEMA)
            .field("value", Schema.FLOAT64_SCHEMA)
            .field("tags", tags)
            .build();
    Struct point =
        new Struct(schema)
            .put("metric", "sys.cpu")
            .put("timestamp", 1_700_000_000_250L)
            .put("value", 0.1)
            .put("tags", Map.of("host", "web01"));
    assertEquals(List.of("sys.cpu 1700000000250 0.1 host=web01"), points(record(point)));
  }

  @Test
  void decodesLines() {
    String lines =
        "put sys.cpu 1700000000 42 host=web01\r\n\nput sys.cpu 1700000001.250 -4.5e1  host=web01 cpu=0\nput a 1700000000001 +7 b=c\n";
    assertEquals(
        List.of(
            "sys.cpu 1700000000000 42 host=web01",
            "sys.cpu 1700000001250 -45.0 cpu=0 host=web01",
            "a 1700000000001 7 b=c"),
        points(record(lines)));
  }

  @Test
  void keepsNumbersExact() {
    for (String value : List.of("9223372036854775807", "-9223372036854775808", "0.1", "1.7976931348623157E308", "123456789.123456789")) {
      String text = POINT.replace("42", value);
      String stored = value.contains(".") ? String.valueOf(Double.parseDouble(value)) : value;
      List<String> expected = List.of("sys.cpu 1700000000000 " + stored + " cpu=0 host=web01");
      assertEquals(expected, points(record(text)));
      assertEquals(expected, points(record(POINT.replace("42", "\"" + value + "\""))));
    }
  }

  @Test
  void replacesCharactersByDefault() {
    String text = "put go:gc%/é 1700000000 1 host=温度-😀";
    assertEquals(List.of("go_gc_/é 1700000000000 1 host=__-_"), points(record(text)));
    assertEquals(
        List.of("go:gc_/é 1700000000000 1 host=__-_"), points(record(text), SinkSettings.NAMES_EXTRA_CHARACTERS, ":"));
    assertEquals(
        "metric `go:gc%/é` has the character `:`, allowed are letters, digits, `-`, `_`, `.`, `/` and those of names.extra.characters",
        rejection(record("put go:gc%/é 1700000000 1"), opentsdb(SinkSettings.NAMES_INVALID, "reject")));
  }

  @Test
  void everySeriesHasATag() {
    assertEquals(List.of("a 1700000000000 1 source=kafka"), points(record("put a 1700000000 1")));
    assertEquals(
        List.of("a 1700000000000 1 dc=eu"), points(record("put a 1700000000 1"), SinkSettings.TAG_FIXED, "dc=eu"));
    assertEquals(
        List.of("a 1700000000000 1 dc=us"), points(record("put a 1700000000 1 dc=us"), SinkSettings.TAG_FIXED, "dc=eu"));
  }

  @Test
  void rejectsBadLines() {
    assertRejected("gut a 1 2 b=c", "`gut a 1 2 b=c` is not `put METRIC TIMESTAMP VALUE TAG=VALUE …`");
    assertRejected("put a 1", "`put a 1` is not `put METRIC TIMESTAMP VALUE TAG=VALUE …`");
    assertRejected("put a 1700000000 1 b=", "`b=` of `put a 1700000000 1 b=` is not `TAG=VALUE`");
    assertRejected("put a 1700000000 1 b=c b=d", "tag `b` of `put a 1700000000 1 b=c b=d` has two values");
    assertRejected("put a x 1 b=c", "field `timestamp`: `x` is not a number");
    assertRejected("put a 0 1 b=c", "field `timestamp`: timestamp `0` is not within 1 ms and 4294967295999 ms after 1970");
    assertRejected("put a 1700000000 NaN b=c", "field `value`: `NaN` is not a number");
    assertRejected("put a 1700000000 1e999 b=c", "field `value`: `1e999` is not a finite number");
    assertRejected("put a 1700000000 9223372036854775808 b=c", "field `value`: `9223372036854775808` does not fit 64 bits");
    assertRejected("put a 1700000000 1 b=c\nput a 1 x b=c", "point 2: field `value`: `x` is not a number");
    assertRejected("\n", "record has no point");
  }

  @Test
  void rejectsBadJson() {
    assertRejected("[]", "record has no point");
    assertRejected("[1]", "`1` is not a point: it has no fields");
    assertRejected("{\"timestamp\":1700000000,\"value\":1}", "field `metric` of the metric is missing");
    assertRejected("{\"metric\":7,\"timestamp\":1700000000,\"value\":1}", "field `metric` of the metric: `7` is not a text");
    assertRejected("{\"metric\":\"a\",\"value\":1}", "field `timestamp` of the timestamp is missing");
    assertRejected("{\"metric\":\"a\",\"timestamp\":1700000000}", "record has no value: none of the fields [value] is set");
    assertRejected(POINT.replace("\"web01\"", "[1]"), "tag `host`: `[1]` is not a text, a number or a boolean");
    assertRejected(
        "{\"metric\":\"a\",\"timestamp\":1700000000,\"value\":1,\"tags\":\"host=a\"}", "field `tags`: `host=a` is not an object");
    assertRejected(
        "{\"metric\":\"a\",\"timestamp\":1e999999999,\"value\":1}",
        "field `timestamp`: timestamp `1e999999999` is not within 1 ms and 4294967295999 ms after 1970");
    assertEquals(true, rejection(record(POINT + "x"), opentsdb()).startsWith("record is not JSON: "));
    assertRejected(new byte[] {'p', (byte) 0xff}, "record is not UTF-8");
  }
}
