package dev.oxtsdb.writer;

import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Opened;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

/** The symbol table and the series table of a stream: each name is sent once in its life. Encodes frames within the stream's limits. */
final class Tables {
  /** Bytes of a message beside points and declarations, at most. */
  private static final long FRAME_BYTES = 64;
  /** Bytes of a block beside its points, at most: lengths of its fields, first and last timestamp. */
  private static final long BLOCK_BYTES = 64;
  /** Bytes of a point, at most: series, difference of timestamps, value. */
  private static final long POINT_BYTES = 5 + 10 + 10;
  /** Bytes of a declaration beside its numbers, and of a number, at most. */
  private static final long DECLARATION_BYTES = 16;
  private static final long NUMBER_BYTES = 5;
  /** A symbol counts so much more than its text. */
  private static final long SYMBOL_BYTES = 8;

  private final Map<String, Integer> symbols = new HashMap<>();
  private final Map<Series, Integer> series = new HashMap<>();
  private final Opened limits;
  private long symbolBytes;

  Tables(Opened limits) {
    this.limits = limits;
  }

  /** A frame with the first points of a batch. */
  static final class Frame {
    private final Columns columns;
    private final int size;

    private Frame(Columns columns, int size) {
      this.columns = columns;
      this.size = size;
    }

    Columns columns() {
      return columns;
    }

    /** Returns the number of points; fewer than those of the batch if a limit is reached. */
    int size() {
      return size;
    }
  }

  boolean isEmpty() {
    return series.isEmpty();
  }

  /** Encodes at most {@code size} of the first points of a batch, up to one that exceeds a limit. */
  Frame encode(Batch batch, int size) {
    Columns.Builder columns = Columns.newBuilder().setFirstSymbol(symbols.size()).setFirstSeries(series.size());
    Columns.Block.Builder block = null;
    long bytes = FRAME_BYTES;
    int at = 0;
    for (; at < size; at++) {
      boolean isNewBlock = at == 0 || batch.isDouble(at) != batch.isDouble(at - 1);
      Integer number = series.get(batch.series(at));
      bytes += POINT_BYTES + (isNewBlock ? BLOCK_BYTES : 0);
      if (number == null) {
        Set<String> added = newSymbols(batch.series(at));
        long addedBytes = added.stream().mapToLong(name -> encodedLength(name) + SYMBOL_BYTES).sum();
        bytes += addedBytes + DECLARATION_BYTES + NUMBER_BYTES * (1 + 2 * batch.series(at).tags().size());
        if (bytes > limits.getMaxMessageBytes()
            || symbolBytes + addedBytes > limits.getMaxSymbolBytes()
            || series.size() >= limits.getMaxSeries()) {
          break;
        }
        symbolBytes += addedBytes;
        number = declare(batch.series(at), added, columns);
      } else if (bytes > limits.getMaxMessageBytes()) {
        break;
      }
      if (isNewBlock) {
        block = columns.addBlocksBuilder();
      }
      block.addSeries(number);
      addTimestamp(block, batch, at, isNewBlock);
      if (batch.isDouble(at)) {
        block.addValues(batch.doubleValue(at));
      } else {
        block.addIntValues(batch.longValue(at));
      }
    }
    columns.getBlocksBuilderList().forEach(Tables::shortenSeries);
    return new Frame(columns.build(), at);
  }

  private Set<String> newSymbols(Series one) {
    Set<String> added = new LinkedHashSet<>();
    added.add(one.metric());
    added.addAll(one.tags().keySet());
    added.addAll(one.tags().values());
    added.removeAll(symbols.keySet());
    return added;
  }

  /** Bytes in UTF-8: names have characters of ISO-8859-1 only. */
  private static long encodedLength(String name) {
    return name.length() + name.chars().filter(character -> character >= 0x80).count();
  }

  private int declare(Series one, Set<String> added, Columns.Builder columns) {
    for (String name : added) {
      symbols.put(name, symbols.size());
      columns.addNewSymbols(name);
    }
    Columns.SeriesDeclaration.Builder declaration = columns.addNewSeriesBuilder().setMetricSymbol(symbols.get(one.metric()));
    one.tags().forEach((key, value) -> declaration.addTagSymbols(symbols.get(key)).addTagSymbols(symbols.get(value)));
    int number = series.size();
    series.put(one, number);
    return number;
  }

  private static void addTimestamp(Columns.Block.Builder block, Batch batch, int at, boolean isFirst) {
    long timestamp = batch.timestamp(at);
    if (!batch.fitsDeltas()) {
      block.addTimestamps(timestamp);
    } else if (isFirst) {
      block.getDeltaTimestampsBuilder().setFirst(timestamp).setLast(timestamp);
    } else {
      block.getDeltaTimestampsBuilder().addDeltas(timestamp - batch.timestamp(at - 1)).setLast(timestamp);
    }
  }

  /** A block whose points are all of one series has its number once. */
  private static void shortenSeries(Columns.Block.Builder block) {
    int first = block.getSeries(0);
    if (block.getSeriesList().stream().allMatch(number -> number == first)) {
      block.clearSeries().addSeries(first);
    }
  }
}
