package dev.oxtsdb.kafka;

import java.util.List;
import org.apache.kafka.connect.sink.SinkRecord;

/** Decodes a {@link org.apache.kafka.connect.data.Struct} (JSON with a schema, Avro) or a {@link java.util.Map} (JSON without). */
final class FieldsDecoder implements RecordDecoder {
  private final FieldLayout layout;
  private final String fixedMetric;

  /**
   * A decoder.
   *
   * @param fixedMetric the metric of records if the layout names no field for it; null: the topic
   */
  FieldsDecoder(FieldLayout layout, String fixedMetric) {
    this.layout = layout;
    this.fixedMetric = fixedMetric;
  }

  @Override
  public List<Point> points(SinkRecord record) {
    if (!FieldLayout.hasFields(record.value())) {
      throw new InvalidRecordException(
          "record has no fields: it is a "
              + record.value().getClass().getSimpleName()
              + "; use a converter of JSON or Avro, or "
              + SinkSettings.RECORD_FORMAT
              + "=opentsdb");
    }
    return layout.points(record.value(), fixedMetric == null ? record.topic() : fixedMetric, record.timestamp());
  }
}
