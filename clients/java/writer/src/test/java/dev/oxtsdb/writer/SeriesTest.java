package dev.oxtsdb.writer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class SeriesTest {
  @Test
  void theOrderOfTagsDoesNotMatter() {
    Map<String, String> tags = new TreeMap<>(Map.of("host", "a", "cpu", "0"));
    Series one = Series.of("m", tags);
    Series other = Series.of("m", ((TreeMap<String, String>) tags).descendingMap());
    assertEquals(one, other);
    assertEquals(one.hashCode(), other.hashCode());
    assertEquals("m{cpu=0,host=a}", other.toString());
    assertEquals(List.of("cpu", "host"), List.copyOf(other.tags().keySet()));
    assertNotEquals(one, Series.of("m", Map.of("host", "a")));
    assertNotEquals(one, Series.of("n", tags));
  }

  @Test
  void tagsAreCopied() {
    Map<String, String> tags = new HashMap<>(Map.of("host", "a"));
    Series series = Series.of("m", tags);
    tags.put("host", "b");
    assertEquals(Map.of("host", "a"), series.tags());
    assertThrows(UnsupportedOperationException.class, () -> series.tags().put("host", "b"));
  }

  @Test
  void rejectsNamesThatNoServerTakes() {
    rejects("metric is empty", "", Map.of("host", "a"));
    rejects("metric is null", null, Map.of("host", "a"));
    rejects("series of metric `m` has no tags, at least one is required", "m", Map.of());
    rejects("tag key is empty", "m", Map.of("", "a"));
    rejects("value of tag `host` is empty", "m", Map.of("host", ""));
    rejects("value of tag `host` is null", "m", Collections.singletonMap("host", null));
    rejects("metric `m\u20ac` has a character at position 1 that is not in ISO-8859-1", "m\u20ac", Map.of("host", "a"));
  }

  private static void rejects(String message, String metric, Map<String, String> tags) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, () -> Series.of(metric, tags)).getMessage());
  }
}
