package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.oxtsdb.flink.example.Quote;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Quotes from a real Kafka broker, which OXTSDB_KAFKA_BROKER names, to a real server, while a producer goes on. */
class KafkaToOxtsdbIT {
  private static final String BROKER = System.getenv("OXTSDB_KAFKA_BROKER");
  /** Another one for each run, as a broker may serve several. */
  private static final String TOPIC = "quotes-" + UUID.randomUUID();
  private static final int PER_CHECKPOINT = 2_000;

  @Test
  @Timeout(value = 300, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
  void eachProducedRecordIsStoredOnceWhenTasksFailAndTheServerIsKilled(@TempDir Path folder) throws Exception {
    Faults.reset();
    try (FailingServer server = new FailingServer(folder)) {
      for (int round = 0; round < 4; round++) {
        Faults.PLANNED.add(Faults::fail);
        Faults.PLANNED.add(server::killAndRestart);
      }
      createTopic();
      JobClient job = start(server);
      long produced = produceUntilAllFaultsHappened();
      Wait.until("all points", Duration.ofSeconds(120), () -> Stored.count(server, "quote.size") >= produced);
      Jobs.cancel(job);
      assertTrue(Faults.SEEN.get() > produced, "records were repeated");
      Stored.assertExact(server, produced);
      System.out.printf("%d records, %d of them read again, %d tasks started%n",
          produced, Faults.SEEN.get() - produced, Faults.STARTS.get());
    }
  }

  private static void createTopic() throws Exception {
    assertNotNull(BROKER, "OXTSDB_KAFKA_BROKER does not name a broker");
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", BROKER))) {
      admin.createTopics(Set.of(new NewTopic(TOPIC, 4, (short) 1))).all().get();
    }
  }

  private static JobClient start(FailingServer server) throws Exception {
    StreamExecutionEnvironment environment = Jobs.environment(100, Duration.ofMillis(100));
    KafkaSource<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(BROKER)
            .setTopics(TOPIC)
            .setGroupId("oxtsdb")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    environment
        .fromSource(source, WatermarkStrategy.noWatermarks(), "quotes")
        .map(Quote::parse)
        .map(new Faults())
        // Only checkpoints flush, so that a checkpoint that does not wait for the server loses points.
        .sinkTo(Jobs.sink(server).maxDelay(Duration.ofHours(1)).build());
    return environment.executeAsync();
  }

  /** Sends a portion after each checkpoint, so that a fault finds records of an incomplete one. Returns the number of records. */
  private static long produceUntilAllFaultsHappened() throws Exception {
    long produced = 0;
    try (Producer<String, String> producer =
        new KafkaProducer<>(
            Map.of("bootstrap.servers", BROKER, "linger.ms", "5"), new StringSerializer(), new StringSerializer())) {
      while (!Faults.PLANNED.isEmpty()) {
        long checkpoint = Faults.CHECKPOINT.get();
        for (int record = 0; record < PER_CHECKPOINT; record++, produced++) {
          Quote quote = Quotes.numbered(produced);
          producer.send(new ProducerRecord<>(TOPIC, quote.symbol, Quotes.line(quote)));
        }
        producer.flush();
        Wait.until("a checkpoint", Duration.ofSeconds(60), () -> Faults.CHECKPOINT.get() > checkpoint);
      }
    }
    return produced;
  }
}
