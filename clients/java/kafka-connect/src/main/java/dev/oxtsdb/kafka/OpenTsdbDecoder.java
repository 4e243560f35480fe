package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.InvalidRecordException.excerpt;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParseException;
import com.google.gson.Strictness;
import com.google.gson.ToNumberPolicy;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.sink.SinkRecord;

/**
 * Decodes what OpenTSDB's senders send: a point {@code {"metric", "timestamp", "value", "tags"}} or an array of them, as text or with
 * fields, and lines {@code put metric timestamp value key=value …}.
 */
final class OpenTsdbDecoder implements RecordDecoder {
  static final String METRIC = "metric";
  static final String TIMESTAMP = "timestamp";
  static final String VALUE = "value";
  static final String TAGS = "tags";

  private static final Gson JSON =
      new GsonBuilder()
          .setStrictness(Strictness.STRICT)
          .setObjectToNumberStrategy(ToNumberPolicy.LAZILY_PARSED_NUMBER)
          .create();

  private final FieldLayout layout;

  OpenTsdbDecoder(NameRule names, TimestampUnit unit, Map<String, String> fixedTags) {
    layout = new FieldLayout(names, METRIC, TIMESTAMP, unit, List.of(VALUE), List.of(TAGS), fixedTags);
  }

  @Override
  public List<Point> points(SinkRecord record) {
    Object value = record.value();
    if (value instanceof byte[]) {
      value = text(ByteBuffer.wrap((byte[]) value));
    } else if (value instanceof ByteBuffer) {
      value = text(((ByteBuffer) value).duplicate());
    }
    if (value instanceof String) {
      String text = ((String) value).strip();
      value = text.startsWith("{") || text.startsWith("[") ? json(text) : lines(text);
    }
    List<?> sent = value instanceof List ? (List<?>) value : List.of(value);
    if (sent.isEmpty()) {
      throw new InvalidRecordException("record has no point");
    }
    List<Point> points = new ArrayList<>(sent.size());
    for (Object one : sent) {
      try {
        points.addAll(point(one));
      } catch (InvalidRecordException error) {
        throw sent.size() == 1
            ? error
            : new InvalidRecordException("point " + (points.size() + 1) + ": " + error.getMessage(), error);
      }
    }
    return points;
  }

  private List<Point> point(Object sent) {
    if (!FieldLayout.hasFields(sent)) {
      throw new InvalidRecordException(excerpt(sent) + " is not a point: it has no fields");
    }
    Object tags = FieldLayout.field(sent, TAGS);
    if (tags != null && !FieldLayout.hasFields(tags)) {
      throw new InvalidRecordException("field `" + TAGS + "`: " + excerpt(tags) + " is not an object");
    }
    return layout.points(sent, null, null);
  }

  private static String text(ByteBuffer bytes) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
    } catch (CharacterCodingException error) {
      throw new InvalidRecordException("record is not UTF-8", error);
    }
  }

  private static Object json(String text) {
    try {
      return JSON.fromJson(text, Object.class);
    } catch (JsonParseException error) {
      throw new InvalidRecordException("record is not JSON: " + error.getMessage(), error);
    }
  }

  /** Returns the points of lines; empty lines are skipped. */
  private static List<?> lines(String text) {
    List<Object> points = new ArrayList<>();
    for (String line : text.split("\r?\n")) {
      if (!line.isBlank()) {
        points.add(line(line.strip()));
      }
    }
    return points;
  }

  private static Map<String, Object> line(String line) {
    String[] words = line.split(" +");
    if (!words[0].equals("put") || words.length < 4) {
      throw new InvalidRecordException(excerpt(line) + " is not `put METRIC TIMESTAMP VALUE TAG=VALUE …`");
    }
    Map<String, Object> tags = new HashMap<>();
    for (int at = 4; at < words.length; at++) {
      String word = words[at];
      int equals = word.indexOf('=');
      if (equals < 1 || equals == word.length() - 1 || word.indexOf('=', equals + 1) >= 0) {
        throw new InvalidRecordException(excerpt(word) + " of " + excerpt(line) + " is not `TAG=VALUE`");
      }
      String key = word.substring(0, equals);
      Object other = tags.putIfAbsent(key, word.substring(equals + 1));
      if (other != null && !other.equals(word.substring(equals + 1))) {
        throw new InvalidRecordException("tag `" + key + "` of " + excerpt(line) + " has two values");
      }
    }
    return Map.of(METRIC, words[1], TIMESTAMP, words[2], VALUE, words[3], TAGS, tags);
  }
}
