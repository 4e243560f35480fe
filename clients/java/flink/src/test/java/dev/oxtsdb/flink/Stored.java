package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.oxtsdb.flink.example.Quote;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongPredicate;
import java.util.function.ToDoubleFunction;

/** Compares what a server has stored with the numbered quotes. */
final class Stored {
  private Stored() {}

  /** Checks that price and size of each quote from 0 to a count are stored, once, and nothing else. */
  static void assertExact(FailingServer server, long count) throws Exception {
    assertExact(server, count, number -> true);
  }

  /** The same for the quotes whose number is accepted. */
  static void assertExact(FailingServer server, long count, LongPredicate accepted) throws Exception {
    assertEquals(expected(count, accepted, quote -> quote.price), server.points("quote.price", "symbol"));
    assertEquals(expected(count, accepted, quote -> quote.size), server.points("quote.size", "symbol"));
  }

  static long count(FailingServer server, String metric) throws Exception {
    return server.points(metric, "symbol").values().stream().mapToLong(List::size).sum();
  }

  private static Map<Map<String, String>, List<Map.Entry<Long, Double>>> expected(
      long count, LongPredicate accepted, ToDoubleFunction<Quote> value) {
    Map<Map<String, String>, List<Map.Entry<Long, Double>>> all = new HashMap<>();
    for (long number = 0; number < count; number++) {
      if (accepted.test(number)) {
        Quote quote = Quotes.numbered(number);
        all.computeIfAbsent(Map.of("symbol", quote.symbol), tags -> new ArrayList<>())
            .add(Map.entry(quote.time, value.applyAsDouble(quote)));
      }
    }
    return all;
  }
}
