package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.Records.json;
import static dev.oxtsdb.kafka.Records.points;
import static dev.oxtsdb.kafka.Records.record;
import static dev.oxtsdb.kafka.Records.rejection;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.math.BigDecimal;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.junit.jupiter.api.Test;

class FieldsDecoderTest {
  private static final String READING =
      "{\"station\":\"north\",\"time\":1700000000,\"temperature\":21.5,\"humidity\":40,\"labels\":{\"city\":\"Graz\",\"empty\":\"\"}}";

  @Test
  void takesMetricAndTimestampOfTheRecord() {
    assertEquals(List.of("weather 1700000000500 7 source=kafka"), points(record(Map.of("value", 7))));
    assertEquals(
        List.of("temperature 1700000000500 7 source=kafka"),
        points(record(Map.of("value", 7)), SinkSettings.METRIC_NAME, "temperature"));
  }

  @Test
  void takesFieldsOfJson() {
    String[] settings = {
      SinkSettings.TIMESTAMP_FIELD, "time",
      SinkSettings.VALUE_FIELDS, "temperature,humidity,pressure",
      SinkSettings.TAG_FIELDS, "station,labels"
    };
    assertEquals(
        List.of(
            "weather.temperature 1700000000000 21.5 city=Graz station=north",
            "weather.humidity 1700000000000 40 city=Graz station=north"),
        points(json(READING, false), settings));
    String schema =
        "{\"type\":\"struct\",\"fields\":["
            + "{\"field\":\"station\",\"type\":\"string\"},{\"field\":\"time\",\"type\":\"int64\"},"
            + "{\"field\":\"temperature\",\"type\":\"float\"},{\"field\":\"pressure\",\"type\":\"double\",\"optional\":true}]}";
    String payload = "{\"station\":\"north\",\"time\":1700000000,\"temperature\":21.5,\"pressure\":null}";
    assertEquals(
        List.of("weather.temperature 1700000000000 21.5 station=north"),
        points(json("{\"schema\":" + schema + ",\"payload\":" + payload + "}", true), settings));
  }

  @Test
  void takesLogicalTypes() {
    Schema place = SchemaBuilder.struct().field("city", Schema.STRING_SCHEMA).build();
    Schema schema =
        SchemaBuilder.struct()
            .field("name", Schema.STRING_SCHEMA)
            .field("at", Timestamp.SCHEMA)
            .field("whole", Decimal.schema(0))
            .field("cents", Decimal.schema(2))
            .field("up", Schema.BOOLEAN_SCHEMA)
            .field("place", place)
            .build();
    Struct record =
        new Struct(schema)
            .put("name", "bill")
            .put("at", new Date(1_700_000_000_123L))
            .put("whole", new BigDecimal("9007199254740993"))
            .put("cents", new BigDecimal("12.50"))
            .put("up", true)
            .put("place", new Struct(place).put("city", "Graz"));
    assertEquals(
        List.of(
            "bill.whole 1700000000123 9007199254740993 city=Graz",
            "bill.cents 1700000000123 12.5 city=Graz",
            "bill.up 1700000000123 1 city=Graz"),
        points(
            record(record),
            SinkSettings.METRIC_FIELD, "name",
            SinkSettings.TIMESTAMP_FIELD, "at",
            SinkSettings.TIMESTAMP_UNIT, "seconds",
            SinkSettings.VALUE_FIELDS, "whole,cents,up",
            SinkSettings.TAG_FIELDS, "place"));
  }

  @Test
  void readsTimestampsInTheirUnit() {
    Object[][] cases = {
      {"opentsdb", 4_294_967_295L, "4294967295000"},
      {"opentsdb", 4_294_967_296L, "4294967296"},
      {"opentsdb", 1_700_000_000.1, "1700000000100"},
      {"opentsdb", "1700000000.2509", "1700000000250"},
      {"seconds", 1_700_000_000, "1700000000000"},
      {"milliseconds", 1_700_000_000L, "1700000000"},
      {"microseconds", 1_700_000_000_123_999L, "1700000000123"},
      {"nanoseconds", 1_700_000_000_123_999_999L, "1700000000123"},
    };
    for (Object[] one : cases) {
      assertEquals(
          List.of("weather " + one[2] + " 1 source=kafka"),
          points(
              record(Map.of("value", 1, "time", one[1])),
              SinkSettings.TIMESTAMP_FIELD, "time",
              SinkSettings.TIMESTAMP_UNIT, (String) one[0]));
    }
    assertEquals(
        "field `time`: timestamp `1700000000000` is not within 1 ms and 4294967295999 ms after 1970",
        rejection(
            record(Map.of("value", 1, "time", 1_700_000_000_000L)),
            SinkSettings.TIMESTAMP_FIELD, "time",
            SinkSettings.TIMESTAMP_UNIT, "seconds"));
  }

  @Test
  void rejectsWhatIsNoPoint() {
    assertEquals(
        "record has no fields: it is a String; use a converter of JSON or Avro, or record.format=opentsdb", rejection(record("put a")));
    assertEquals("record has no value: none of the fields [value] is set", rejection(record(Map.of("a", 1))));
    assertEquals("field `value`: `NaN` is not a finite number", rejection(record(Map.of("value", Double.NaN))));
    assertEquals("field `value`: `[1]` is not a number", rejection(record(Map.of("value", List.of(1)))));
    assertEquals(
        "tag `a_b` has two values, `1` and `2`",
        rejection(record(Map.of("value", 1, "a b", "1", "a:b", "2")), SinkSettings.TAG_FIELDS, "a b,a:b"));
  }
}
