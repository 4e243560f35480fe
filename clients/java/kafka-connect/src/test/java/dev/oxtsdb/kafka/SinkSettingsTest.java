package dev.oxtsdb.kafka;

import static dev.oxtsdb.kafka.Records.settings;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.sink.SinkConnector;
import org.junit.jupiter.api.Test;

class SinkSettingsTest {
  private final OxtsdbSinkConnector connector = new OxtsdbSinkConnector();

  private Map<String, List<String>> errors(String... settings) {
    return connector.validate(settings(settings)).configValues().stream()
        .filter(value -> !value.errorMessages().isEmpty())
        .collect(Collectors.toMap(ConfigValue::name, ConfigValue::errorMessages));
  }

  @Test
  void aServiceLoaderFindsTheConnector() {
    SinkConnector found = ServiceLoader.load(SinkConnector.class).findFirst().orElseThrow();
    assertEquals(OxtsdbSinkConnector.class, found.getClass());
    assertTrue(found.version().matches("\\d+\\.\\d+\\.\\d+.*"), found.version());
  }

  @Test
  void everySettingHasADocumentationAndAGroup() {
    SinkSettings.DEFINITION.configKeys().values().forEach(key -> {
      assertFalse(key.documentation.isBlank(), key.name);
      assertFalse(key.group == null, key.name);
    });
  }

  @Test
  void rejectsInvalidSettings() {
    assertEquals(Map.of(), errors());
    String[][] cases = {
      {SinkSettings.ENDPOINTS, "localhost", "is not a list of `host:port`"},
      {SinkSettings.ENDPOINTS, "http://localhost:4243", "is not a list of `host:port`"},
      {SinkSettings.ENDPOINTS, "", "is not a list of `host:port`"},
      {SinkSettings.RECORD_FORMAT, "avro", "String must be one of: fields, opentsdb"},
      {SinkSettings.TIMESTAMP_UNIT, "hours", "String must be one of"},
      {SinkSettings.VALUE_FIELDS, "a,a", "is not a list of different names, at least one"},
      {SinkSettings.VALUE_FIELDS, "", "is not a list of different names, at least one"},
      {SinkSettings.TAG_FIELDS, "a,b,a", "is not a list of different names"},
      {SinkSettings.TAG_FIXED, "dc", "is not a list of `key=value`"},
      {SinkSettings.NAMES_EXTRA_CHARACTERS, "温", "is not characters of ISO-8859-1"},
      {SinkSettings.BATCH_POINTS, "0", "Value must be at least 1"},
      {SinkSettings.PATIENCE_MS, "1", "Value must be at least 1000"},
      {SinkSettings.TLS_CA, "ca.pem", "needs oxtsdb.tls=true"},
      {SinkSettings.METRIC_FIELD, " ", "is not a text that is not empty"},
    };
    for (String[] one : cases) {
      Map<String, List<String>> errors = errors(one[0], one[1]);
      assertEquals(List.of(one[0]), List.copyOf(errors.keySet()), one[1]);
      assertTrue(errors.get(one[0]).get(0).contains(one[2]), () -> errors + " has not " + one[2]);
      assertThrows(ConfigException.class, () -> new SinkSettings(settings(one[0], one[1])));
    }
  }

  @Test
  void rejectsContradictions() {
    assertEquals(
        List.of(SinkSettings.METRIC_NAME),
        List.copyOf(errors(SinkSettings.METRIC_NAME, "a", SinkSettings.METRIC_FIELD, "b").keySet()));
    assertEquals(
        List.of(SinkSettings.METRIC_NAME),
        List.copyOf(errors(SinkSettings.METRIC_NAME, "a", SinkSettings.RECORD_FORMAT, "opentsdb").keySet()));
    assertEquals(
        List.of(SinkSettings.TLS_KEY),
        List.copyOf(errors(SinkSettings.TLS, "true", SinkSettings.TLS_CERTIFICATE, "a.pem").keySet()));
  }

  @Test
  void tasksHaveNumbers() {
    connector.start(settings());
    List<Map<String, String>> tasks = connector.taskConfigs(2);
    assertEquals(List.of("0", "1"), tasks.stream().map(task -> task.get(SinkSettings.TASK)).collect(Collectors.toList()));
    tasks.forEach(SinkSettings::new);
  }
}
