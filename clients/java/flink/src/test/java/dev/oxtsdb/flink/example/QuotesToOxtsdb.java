package dev.oxtsdb.flink.example;

import dev.oxtsdb.flink.OxtsdbSink;
import dev.oxtsdb.flink.RejectedPointHandler;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job that reads quotes from a topic of Kafka, from its first to its last record, and writes price and size of each.
 *
 * <p>Arguments: the broker, the topic, the data service.
 */
public final class QuotesToOxtsdb {
  private QuotesToOxtsdb() {}

  public static void main(String[] arguments) throws Exception {
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
    environment.enableCheckpointing(10_000);
    KafkaSource<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    OxtsdbSink<Quote> sink =
        OxtsdbSink.<Quote>builder()
            .endpoints(arguments[2])
            .converter(
                (quote, context, points) -> {
                  Map<String, String> tags = Map.of("symbol", quote.symbol);
                  points.add("quote.price", tags, quote.time, quote.price);
                  points.add("quote.size", tags, quote.time, quote.size);
                })
            .onRejected(RejectedPointHandler.drop())
            .build();
    environment
        .fromSource(source, WatermarkStrategy.noWatermarks(), "quotes")
        .map(Quote::parse)
        .sinkTo(sink)
        .name("OxTSDB");
    environment.execute("quotes");
  }
}
