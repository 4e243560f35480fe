package dev.oxtsdb.kafka;

import java.io.File;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigDef.Validator;
import org.apache.kafka.common.config.ConfigDef.Width;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;

/** The settings of the connector. */
final class SinkSettings extends AbstractConfig {
  static final String ENDPOINTS = "oxtsdb.endpoints";
  static final String TOKEN = "oxtsdb.token";
  static final String TLS = "oxtsdb.tls";
  static final String TLS_CA = "oxtsdb.tls.ca.file";
  static final String TLS_CERTIFICATE = "oxtsdb.tls.certificate.file";
  static final String TLS_KEY = "oxtsdb.tls.key.file";
  static final String RECORD_FORMAT = "record.format";
  static final String METRIC_FIELD = "metric.field";
  static final String METRIC_NAME = "metric.name";
  static final String TIMESTAMP_FIELD = "timestamp.field";
  static final String TIMESTAMP_UNIT = "timestamp.unit";
  static final String TIMESTAMP_ALLOW_ANY = "timestamp.allow.any";
  static final String VALUE_FIELDS = "value.fields";
  static final String TAG_FIELDS = "tag.fields";
  static final String TAG_FIXED = "tag.fixed";
  static final String NAMES_INVALID = "names.invalid";
  static final String NAMES_EXTRA_CHARACTERS = "names.extra.characters";
  static final String BATCH_POINTS = "batch.points";
  static final String FLUSH_INTERVAL_MS = "flush.interval.ms";
  static final String FLUSH_POINTS = "flush.points";
  static final String PATIENCE_MS = "patience.ms";

  /** The number of a task, which {@link OxtsdbSinkConnector#taskConfigs} sets. */
  static final String TASK = "oxtsdb.task";

  private static final String FIELDS = "fields";
  private static final String OPENTSDB = "opentsdb";
  private static final String REPLACE = "replace";
  private static final String REJECT = "reject";
  private static final Pattern ENDPOINT = Pattern.compile("(\\[[0-9a-fA-F:.]+]|[^\\s:/]+):[0-9]{1,5}");
  private static final List<String> UNITS = List.of("opentsdb", "seconds", "milliseconds", "microseconds", "nanoseconds");

  private static final Validator TEXT = checked("a text that is not empty", value -> !((String) value).isBlank());

  static final ConfigDef DEFINITION = new Definition()
      .group("Connection")
      .add(ENDPOINTS, Type.LIST, ConfigDef.NO_DEFAULT_VALUE, checked("a list of `host:port`", SinkSettings::areEndpoints),
          Importance.HIGH, "Addresses of data services (gRPC), `host:port,host:port`. The next one is used when one fails or drains.")
      .add(TOKEN, Type.PASSWORD, null, null, Importance.MEDIUM, "Token of the server's access policy, sent as a bearer token.")
      .add(TLS, Type.BOOLEAN, false, null, Importance.MEDIUM, "Connect over TLS.")
      .add(TLS_CA, Type.STRING, null, TEXT, Importance.MEDIUM,
          "PEM file with the authorities that sign the server's certificate; by default those of the Java runtime.")
      .add(TLS_CERTIFICATE, Type.STRING, null, TEXT, Importance.LOW, "PEM file with the connector's certificate and its chain.")
      .add(TLS_KEY, Type.STRING, null, TEXT, Importance.LOW, "PEM file with the private key of that certificate (PKCS 8).")
      .group("Records")
      .add(RECORD_FORMAT, Type.STRING, FIELDS, ValidString.in(FIELDS, OPENTSDB), Importance.HIGH,
          "`fields`: a Struct or a map (JSON, Avro) whose fields the settings below name. `opentsdb`: OpenTSDB's JSON, one point or an"
              + " array, as text or with fields, or telnet lines (`put …`) as text.")
      .add(METRIC_FIELD, Type.STRING, null, TEXT, Importance.HIGH, "Field with the metric. Without it: metric.name, or else the topic.")
      .add(METRIC_NAME, Type.STRING, null, TEXT, Importance.HIGH, "The metric of all records, in place of metric.field.")
      .add(TIMESTAMP_FIELD, Type.STRING, null, TEXT, Importance.HIGH, "Field with the timestamp. Without it: the record's timestamp.")
      .add(TIMESTAMP_UNIT, Type.STRING, "opentsdb", ValidString.in(UNITS.toArray(new String[0])), Importance.MEDIUM,
          "Unit of timestamps: one of " + String.join(", ", UNITS) + ". opentsdb: seconds up to 4294967295, milliseconds above."
              + " Timestamps are rounded down to milliseconds. Dates of Connect's logical types have their own unit.")
      .add(TIMESTAMP_ALLOW_ANY, Type.BOOLEAN, false, null, Importance.LOW,
          "Store points before 2000 and more than 366 days ahead, too; they are rejected by default, as their unit is likely wrong.")
      .add(VALUE_FIELDS, Type.LIST, "value",
          checked("a list of different names, at least one", value -> areNames(value) && !((List<?>) value).isEmpty()), Importance.HIGH,
          "Fields with values. One: its points have the metric. Several: a field's points have `metric.field`, absent ones are left out.")
      .add(TAG_FIELDS, Type.LIST, "", checked("a list of different names", SinkSettings::areNames), Importance.HIGH,
          "Fields that are tags; a field that is a Struct or a map is a tag for each of its own.")
      .add(TAG_FIXED, Type.LIST, "", checked("a list of `key=value`", SinkSettings::areTags), Importance.LOW,
          "Tags of all series, `key=value,key=value`; a tag of a record replaces one of the same key.")
      .group("Names")
      .add(NAMES_INVALID, Type.STRING, REPLACE, ValidString.in(REPLACE, REJECT), Importance.MEDIUM,
          "What happens to characters that OpenTSDB's names cannot have. `replace`: they become `_`. `reject`: the record is rejected.")
      .add(NAMES_EXTRA_CHARACTERS, Type.STRING, "", checked("characters of ISO-8859-1", SinkSettings::isLatin1), Importance.LOW,
          "Characters that names have beside letters, digits and `-_./`; --extra-name-characters of the UID service.")
      .group("Delivery")
      .add(BATCH_POINTS, Type.INT, 4096, Range.between(1, 100_000), Importance.LOW, "Points that are sent at a time.")
      .add(FLUSH_INTERVAL_MS, Type.LONG, 1_000L, Range.between(0, 60_000), Importance.MEDIUM,
          "After this time at most, a record's points are sent and acknowledged, ms.")
      .add(FLUSH_POINTS, Type.INT, 50_000, Range.between(1, 10_000_000), Importance.LOW,
          "After this number of points the task waits for the server earlier. Their records are in memory until then.")
      .add(PATIENCE_MS, Type.LONG, 30_000L, Range.between(1_000, 240_000), Importance.LOW,
          "How long a call waits for a server that stores nothing, before Connect pauses the task and repeats the call, ms;"
              + " below max.poll.interval.ms of the consumer.")
      .definition;

  SinkSettings(Map<String, String> properties) {
    super(DEFINITION, properties);
    violations(values()).forEach((name, violation) -> {
      throw new ConfigException(name, get(name), violation);
    });
  }

  /** Returns which settings contradict others, and why. */
  static Map<String, String> violations(Map<String, ?> values) {
    Map<String, String> violations = new LinkedHashMap<>();
    if (values.get(METRIC_FIELD) != null && values.get(METRIC_NAME) != null) {
      violations.put(METRIC_NAME, "is set beside " + METRIC_FIELD + ", which it would replace");
    }
    if (OPENTSDB.equals(values.get(RECORD_FORMAT))) {
      for (String name : List.of(METRIC_FIELD, METRIC_NAME, TIMESTAMP_FIELD)) {
        if (values.get(name) != null) {
          violations.put(name, "has no meaning with " + RECORD_FORMAT + "=opentsdb");
        }
      }
    }
    if (!Boolean.TRUE.equals(values.get(TLS))) {
      for (String name : List.of(TLS_CA, TLS_CERTIFICATE, TLS_KEY)) {
        if (values.get(name) != null) {
          violations.put(name, "needs " + TLS + "=true");
        }
      }
    }
    if ((values.get(TLS_CERTIFICATE) == null) != (values.get(TLS_KEY) == null)) {
      violations.putIfAbsent(TLS_KEY, "and " + TLS_CERTIFICATE + " go together");
    }
    return violations;
  }

  RecordDecoder decoder() {
    NameRule names = new NameRule(getString(NAMES_INVALID).equals(REPLACE), getString(NAMES_EXTRA_CHARACTERS));
    TimestampUnit unit = TimestampUnit.valueOf(getString(TIMESTAMP_UNIT).toUpperCase(Locale.ROOT));
    Map<String, String> fixedTags = new LinkedHashMap<>();
    for (String tag : getList(TAG_FIXED)) {
      int equals = tag.indexOf('=');
      String key = names.apply("tag key", tag.substring(0, equals));
      fixedTags.put(key, names.apply("value of tag `" + key + "`", tag.substring(equals + 1)));
    }
    if (getString(RECORD_FORMAT).equals(OPENTSDB)) {
      return new OpenTsdbDecoder(names, unit, fixedTags);
    }
    FieldLayout layout =
        new FieldLayout(
            names,
            getString(METRIC_FIELD),
            getString(TIMESTAMP_FIELD),
            unit,
            getList(VALUE_FIELDS),
            getList(TAG_FIELDS),
            fixedTags);
    return new FieldsDecoder(layout, getString(METRIC_NAME));
  }

  String[] endpoints() {
    return getList(ENDPOINTS).toArray(new String[0]);
  }

  /** Returns the token; null if there is none. */
  String token() {
    Password token = getPassword(TOKEN);
    return token == null ? null : token.value();
  }

  /** Returns a file; null if it is not set. */
  File file(String name) {
    return getString(name) == null ? null : new File(getString(name));
  }

  private static boolean areEndpoints(Object value) {
    List<?> endpoints = (List<?>) value;
    return !endpoints.isEmpty() && endpoints.stream().allMatch(one -> ENDPOINT.matcher((String) one).matches());
  }

  private static boolean areTags(Object value) {
    return ((List<?>) value).stream().map(String.class::cast).allMatch(tag -> {
      int equals = tag.indexOf('=');
      return equals > 0 && equals < tag.length() - 1;
    });
  }

  private static boolean isLatin1(Object value) {
    return ((String) value).chars().allMatch(character -> character <= 0xff);
  }

  private static boolean areNames(Object value) {
    List<?> names = (List<?>) value;
    return !names.contains("") && new HashSet<>(names).size() == names.size();
  }

  private static Validator checked(String rule, Predicate<Object> isValid) {
    return new Validator() {
      @Override
      public void ensureValid(String name, Object value) {
        if (value != null && !isValid.test(value)) {
          throw new ConfigException(name, value, "is not " + rule);
        }
      }

      @Override
      public String toString() {
        return rule;
      }
    };
  }

  /** Adds settings in their order. */
  private static final class Definition {
    private final ConfigDef definition = new ConfigDef();
    private String group;
    private int order;

    private Definition group(String name) {
      group = name;
      return this;
    }

    private Definition add(
        String name, Type type, Object defaultValue, Validator validator, Importance importance, String documentation) {
      definition.define(name, type, defaultValue, validator, importance, documentation, group, order++, Width.LONG, name);
      return this;
    }
  }
}
