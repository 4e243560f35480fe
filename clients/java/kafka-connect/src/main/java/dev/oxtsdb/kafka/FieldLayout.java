package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.InvalidRecordException.excerpt;

import dev.oxtsdb.writer.Series;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;

/**
 * Which field of a record is what, and the rules that all forms share (docs/guide/pipelines.md):
 *
 * <ul>
 *   <li>a character that names cannot have becomes {@code _}, or the record is rejected;
 *   <li>a tag without a value is left out;
 *   <li>a series without tags gets the tag {@code source=kafka}.
 * </ul>
 */
final class FieldLayout {
  private static final String SOURCE_KEY = "source";
  private static final String SOURCE = "kafka";

  private final NameRule names;
  private final String metricField;
  private final String timestampField;
  private final TimestampUnit unit;
  private final List<String> valueFields;
  private final List<String> tagFields;
  private final Map<String, String> fixedTags;

  /**
   * A layout.
   *
   * @param metricField null: the caller's default
   * @param timestampField null: the caller's default
   * @param valueFields one, whose points have the metric, or several, whose points have {@code metric.field}
   * @param tagFields fields that are a tag each, or maps of tags
   * @param fixedTags tags of all series; those of a record replace them
   */
  FieldLayout(
      NameRule names,
      String metricField,
      String timestampField,
      TimestampUnit unit,
      List<String> valueFields,
      List<String> tagFields,
      Map<String, String> fixedTags) {
    this.names = names;
    this.metricField = metricField;
    this.timestampField = timestampField;
    this.unit = unit;
    this.valueFields = valueFields;
    this.tagFields = tagFields;
    this.fixedTags = fixedTags;
  }

  /** Whether a value has fields. */
  static boolean hasFields(Object value) {
    return value instanceof Struct || value instanceof Map;
  }

  /** Returns a field of a {@link Struct} or a {@link Map}; null if it is absent. */
  static Object field(Object fields, String name) {
    if (fields instanceof Map) {
      return ((Map<?, ?>) fields).get(name);
    }
    Struct struct = (Struct) fields;
    return struct.schema().field(name) == null ? null : struct.get(name);
  }

  /**
   * Returns the points of a {@link Struct} or a {@link Map}.
   *
   * @param defaultMetric null: the record must have the field
   * @param defaultTimestampMs null: the record must have the field
   */
  List<Point> points(Object fields, String defaultMetric, Long defaultTimestampMs) {
    String metric = metric(fields, defaultMetric);
    long timestampMs = timestamp(fields, defaultTimestampMs);
    Map<String, String> tags = tags(fields);
    List<Point> points = new ArrayList<>(valueFields.size());
    for (String field : valueFields) {
      Object value = field(fields, field);
      if (value != null) {
        String name = valueFields.size() == 1 ? metric : metric + "." + field;
        Series series = Series.of(names.apply("metric", name), tags);
        points.add(new Point(series, timestampMs, Numbers.value(field, value)));
      }
    }
    if (points.isEmpty()) {
      throw new InvalidRecordException("record has no value: none of the fields " + valueFields + " is set");
    }
    return points;
  }

  private String metric(Object fields, String defaultMetric) {
    if (metricField == null) {
      return defaultMetric;
    }
    Object metric = field(fields, metricField);
    if (!(metric instanceof String)) {
      String error = metric == null ? " is missing" : ": " + excerpt(metric) + " is not a text";
      throw new InvalidRecordException("field `" + metricField + "` of the metric" + error);
    }
    if (((String) metric).isEmpty()) {
      throw new InvalidRecordException("field `" + metricField + "` of the metric is empty");
    }
    return (String) metric;
  }

  private long timestamp(Object fields, Long defaultTimestampMs) {
    if (timestampField == null) {
      if (defaultTimestampMs == null) {
        throw new InvalidRecordException("record has no timestamp, and " + SinkSettings.TIMESTAMP_FIELD + " is not set");
      }
      return TimestampUnit.MILLISECONDS.milliseconds("timestamp of the record", defaultTimestampMs);
    }
    Object timestamp = field(fields, timestampField);
    if (timestamp == null) {
      throw new InvalidRecordException("field `" + timestampField + "` of the timestamp is missing");
    }
    return unit.milliseconds(timestampField, timestamp);
  }

  private Map<String, String> tags(Object fields) {
    Map<String, String> tags = new LinkedHashMap<>();
    for (String field : tagFields) {
      Object value = field(fields, field);
      if (hasFields(value)) {
        forEach(value, (key, tag) -> addTag(tags, key, tag));
      } else {
        addTag(tags, field, value);
      }
    }
    fixedTags.forEach(tags::putIfAbsent);
    return tags.isEmpty() ? Map.of(SOURCE_KEY, SOURCE) : tags;
  }

  private void addTag(Map<String, String> tags, String key, Object value) {
    if (value == null || value.equals("")) {
      return;
    }
    if (!(value instanceof String || value instanceof Number || value instanceof Boolean)) {
      throw new InvalidRecordException("tag `" + key + "`: " + excerpt(value) + " is not a text, a number or a boolean");
    }
    String name = names.apply("tag key", key);
    String text = names.apply("value of tag `" + key + "`", value.toString());
    String other = tags.putIfAbsent(name, text);
    if (other != null && !other.equals(text)) {
      throw new InvalidRecordException(
          String.format("tag `%s` has two values, %s and %s", name, excerpt(other), excerpt(text)));
    }
  }

  private static void forEach(Object fields, BiConsumer<String, Object> action) {
    if (fields instanceof Map) {
      ((Map<?, ?>) fields).forEach((key, value) -> action.accept(String.valueOf(key), value));
      return;
    }
    Struct struct = (Struct) fields;
    for (Field field : struct.schema().fields()) {
      action.accept(field.name(), struct.get(field));
    }
  }
}
