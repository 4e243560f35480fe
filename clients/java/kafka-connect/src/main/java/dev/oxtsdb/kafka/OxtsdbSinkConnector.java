package dev.oxtsdb.kafka;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;

/** Writes records of topics as points to OxTSDB. */
public final class OxtsdbSinkConnector extends SinkConnector {
  private Map<String, String> properties;

  @Override
  public String version() {
    return Version.get();
  }

  @Override
  public ConfigDef config() {
    return SinkSettings.DEFINITION;
  }

  @Override
  public Config validate(Map<String, String> values) {
    Config config = super.validate(values);
    Map<String, Object> parsed = new HashMap<>();
    config.configValues().forEach(value -> parsed.put(value.name(), value.value()));
    Map<String, String> violations = SinkSettings.violations(parsed);
    for (ConfigValue value : config.configValues()) {
      if (violations.containsKey(value.name())) {
        value.addErrorMessage(value.name() + " " + violations.get(value.name()));
      }
    }
    return config;
  }

  @Override
  public void start(Map<String, String> values) {
    new SinkSettings(values);
    properties = Map.copyOf(values);
  }

  @Override
  public Class<? extends Task> taskClass() {
    return OxtsdbSinkTask.class;
  }

  /** All tasks have the same settings: Kafka's consumers share the partitions among themselves. */
  @Override
  public List<Map<String, String>> taskConfigs(int tasks) {
    List<Map<String, String>> configs = new ArrayList<>(tasks);
    for (int task = 0; task < tasks; task++) {
      Map<String, String> config = new HashMap<>(properties);
      config.put(SinkSettings.TASK, String.valueOf(task));
      configs.add(config);
    }
    return configs;
  }

  @Override
  public void stop() {}
}
