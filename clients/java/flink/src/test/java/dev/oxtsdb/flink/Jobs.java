package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.oxtsdb.flink.example.Quote;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.client.JobCancellationException;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Parts of the tests' jobs. */
final class Jobs {
  private Jobs() {}

  /** Returns an environment that runs each job in a MiniCluster of its own and restarts it as often as given. */
  static StreamExecutionEnvironment environment(int restarts, Duration checkpoints) {
    Map<String, String> settings = new HashMap<>();
    settings.put("restart-strategy.type", "fixed-delay");
    settings.put("restart-strategy.fixed-delay.attempts", Integer.toString(restarts));
    settings.put("restart-strategy.fixed-delay.delay", "50 ms");
    settings.put("metrics.reporter.test.factory.class", MetricsOfTest.class.getName());
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(2, Configuration.fromMap(settings));
    environment.enableCheckpointing(checkpoints.toMillis());
    return environment;
  }

  /** Returns the numbered quotes from 0 to a count, with as many between two checkpoints as given. */
  static DataStream<Quote> quotes(StreamExecutionEnvironment environment, long count, int perCheckpoint) {
    return quotes(environment, count, RateLimiterStrategy.perCheckpoint(perCheckpoint));
  }

  /** Returns the numbered quotes as fast as the sink takes them. */
  static DataStream<Quote> quotes(StreamExecutionEnvironment environment, long count) {
    return quotes(environment, count, RateLimiterStrategy.noOp());
  }

  private static DataStream<Quote> quotes(StreamExecutionEnvironment environment, long count, RateLimiterStrategy rate) {
    DataGeneratorSource<Quote> source =
        new DataGeneratorSource<>(Quotes::numbered, count, rate, TypeInformation.of(Quote.class));
    return environment.fromSource(source, WatermarkStrategy.noWatermarks(), "quotes").map(new Faults());
  }

  /** Returns a sink that writes price and size of each quote, small batches at a time. */
  static OxtsdbSink.Builder<Quote> sink(FailingServer server) {
    return OxtsdbSink.<Quote>builder()
        .endpoints(server.endpoint())
        .batchPoints(100)
        .converter(
            (quote, context, points) -> {
              Map<String, String> tags = Map.of("symbol", quote.symbol);
              points.add("quote.price", tags, quote.time, quote.price);
              points.add("quote.size", tags, quote.time, quote.size);
            });
  }

  /** Cancels a job, and waits for its end, which does not depend on a server. */
  static void cancel(JobClient job) throws Exception {
    job.cancel().get();
    ExecutionException end =
        assertThrows(ExecutionException.class, () -> job.getJobExecutionResult().get(20, TimeUnit.SECONDS));
    assertInstanceOf(JobCancellationException.class, end.getCause());
  }
}
