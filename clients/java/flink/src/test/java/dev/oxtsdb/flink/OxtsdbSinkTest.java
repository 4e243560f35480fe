package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.oxtsdb.flink.example.Quote;
import java.time.Duration;
import java.util.Map;
import org.apache.flink.util.InstantiationUtil;
import org.junit.jupiter.api.Test;

class OxtsdbSinkTest {
  private static OxtsdbSink.Builder<Quote> builder() {
    return OxtsdbSink.<Quote>builder()
        .endpoints("tsdb1:4243", "tsdb2:4243")
        .converter((quote, context, points) -> points.add("quote.price", Map.of("symbol", quote.symbol), quote.time, quote.price));
  }

  private static void assertRejects(Class<? extends Exception> type, String message, Runnable setting) {
    assertEquals(message, assertThrows(type, setting::run).getMessage());
  }

  @Test
  void isSerializableWithAllSettings() throws Exception {
    InstantiationUtil.clone(
        builder()
            .onRejected(RejectedPointHandler.drop())
            .channels(ChannelSettings.tls().trusting("ca.pem").certificate("a.pem", "a.key").tokenFile("token"))
            .build());
    InstantiationUtil.clone(builder().channels(ChannelSettings.plaintext().token("a")).build());
  }

  @Test
  void rejectsWrongSettingsByName() {
    assertRejects(
        IllegalArgumentException.class, "endpoint `tsdb1` is not `host:port`", () -> builder().endpoints("tsdb1"));
    assertRejects(IllegalArgumentException.class, "batchPoints 0 is below 1", () -> builder().batchPoints(0));
    assertRejects(
        IllegalArgumentException.class, "patience PT0S is below 1 ms", () -> builder().patience(Duration.ZERO));
    assertRejects(
        IllegalArgumentException.class, "maxDelay PT-1S is below 1 ms", () -> builder().maxDelay(Duration.ofSeconds(-1)));
    assertRejects(NullPointerException.class, "converter", () -> builder().converter(null));
    Object notSerializable = new Object();
    assertRejects(
        IllegalArgumentException.class,
        "onRejected is not serializable: java.io.NotSerializableException: java.lang.Object",
        () -> builder().onRejected(point -> notSerializable.hashCode()));
  }

  @Test
  void rejectsMissingSettings() {
    assertRejects(
        IllegalStateException.class,
        "endpoints are missing, at least one is required",
        () -> OxtsdbSink.<Quote>builder().converter((quote, context, points) -> {}).build());
    assertRejects(
        IllegalStateException.class,
        "converter is missing",
        () -> OxtsdbSink.<Quote>builder().endpoints("tsdb1:4243").build());
  }
}
