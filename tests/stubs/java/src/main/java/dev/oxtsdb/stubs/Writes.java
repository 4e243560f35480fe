package dev.oxtsdb.stubs;

import static dev.oxtsdb.stubs.Support.START_MS;
import static dev.oxtsdb.stubs.Support.check;
import static dev.oxtsdb.stubs.Support.seriesName;

import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingV2Stub;
import dev.oxtsdb.proto.data.v1.DeltaTimestamps;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.TimeSeries;
import dev.oxtsdb.proto.data.v1.TimeUnit;
import dev.oxtsdb.proto.data.v1.WriteColumnsRequest;
import dev.oxtsdb.proto.data.v1.WriteColumnsResponse;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import dev.oxtsdb.proto.data.v1.WriteRequest;
import dev.oxtsdb.proto.data.v1.WriteResponse;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import java.util.Collections;
import java.util.List;
import java.util.stream.LongStream;

/** Writes in every form. */
final class Writes {
  static final WriteOptions MILLISECONDS =
      WriteOptions.newBuilder().setTimeUnit(TimeUnit.TIME_UNIT_MILLISECONDS).build();

  private Writes() {}

  static List<Long> timestamps(long first, long count) {
    return LongStream.range(first, first + count).map(second -> START_MS + second * 1000).boxed().toList();
  }

  static TimeSeries.Builder timeSeries(String metric, String host, long count) {
    return TimeSeries.newBuilder().setName(seriesName(metric, host)).addAllTimestamps(timestamps(0, count));
  }

  static void write(DataServiceBlockingV2Stub stub) throws Exception {
    TimeSeries.Builder a = timeSeries("java.metric", "a", 10);
    TimeSeries.Builder b = timeSeries("java.metric", "b", 10);
    for (int second = 0; second < 10; second++) {
      a.addIntValues(second);
      b.addValues(second + 0.5);
    }
    TimeSeries.Builder invalid = timeSeries("java metric", "a", 1).addIntValues(1);
    WriteResponse result =
        stub.write(
            WriteRequest.newBuilder().addSeries(a).addSeries(b).addSeries(invalid).setOptions(MILLISECONDS).build());
    check("points written", result.getWritten(), 20L);
    check("points failed", result.getFailed(), 1L);
    Failures failures = result.getFailures();
    check("failed for good", failures.getPermanent().getFirstList(), List.of(20L));
    check("one point", failures.getPermanent().getCountList(), List.of(1L));
    check("nothing to retry", failures.getRetryable().getFirstCount(), 0);
    check("the failed point", failures.getErrors(0).getFirst(), 20L);
    check("why", failures.getErrors(0).getError().getReason(), ErrorReason.ERROR_REASON_INVALID_NAME);
  }

  /** Points of one series, which the first message of a table declares. */
  static Columns columns(String metric, long first, long count, boolean isFirst) {
    Columns.Block.Builder block =
        Columns.Block.newBuilder()
            .addSeries(0)
            .addAllTimestamps(timestamps(first, count))
            .addAllIntValues(LongStream.range(first, first + count).boxed().toList());
    Columns.Builder columns = Columns.newBuilder().addBlocks(block);
    if (isFirst) {
      columns.addAllNewSymbols(List.of(metric, "host", "a"));
      columns.addNewSeries(
          Columns.SeriesDeclaration.newBuilder().setMetricSymbol(0).addTagSymbols(1).addTagSymbols(2));
    }
    return columns.build();
  }

  /** The same with an encoding of timestamps. */
  static Columns withDeltas(Columns columns, List<Long> deltas) {
    Columns.Builder encoded = columns.toBuilder();
    Columns.Block.Builder block = encoded.getBlocksBuilder(0);
    List<Long> absolute = List.copyOf(block.getTimestampsList());
    block
        .clearTimestamps()
        .setDeltaTimestamps(
            DeltaTimestamps.newBuilder()
                .setFirst(absolute.get(0))
                .addAllDeltas(deltas)
                .setLast(absolute.get(absolute.size() - 1)));
    return encoded.build();
  }

  static WriteColumnsResponse writeColumns(DataServiceBlockingV2Stub stub, Columns columns) throws Exception {
    return stub.writeColumns(
        WriteColumnsRequest.newBuilder().setColumns(columns).setOptions(MILLISECONDS).build());
  }

  static void writeColumns(DataServiceBlockingV2Stub stub) throws Exception {
    List<Long> deltas = Collections.nCopies(999, 1000L);
    for (Columns columns :
        List.of(
            columns("java.columns", 0, 1000, true),
            withDeltas(columns("java.deltas", 0, 1000, true), deltas))) {
      WriteColumnsResponse result = writeColumns(stub, columns);
      check("points written in columns", result.getWritten(), 1000L);
      check("points failed in columns", result.getFailed(), 0L);
    }
  }

  static void writeStream(DataServiceBlockingV2Stub stub) throws Exception {
    Stream stream = Stream.open(stub);
    WriteStreamResponse.Opened limits = stream.opened();
    check("windows", limits.getWindowFrames() > 0 && limits.getWindowPoints() > 0, true);
    check("limit of points", limits.getMaxFramePoints() > 0, true);
    check("limits of declarations", limits.getMaxSeries() > 0 && limits.getMaxSymbolBytes() > 0, true);
    check("limit of bytes", limits.getMaxMessageBytes() > 0, true);
    for (int frame = 0; frame < 10; frame++) {
      stream.send(columns("java.stream", frame * 100, 100, frame == 0));
    }
    long sequence = 0;
    long written = 0;
    while (sequence < 10) {
      WriteStreamResponse.Ack ack = stream.read().getAck();
      check("acks are in order", ack.getSequence() > sequence, true);
      sequence = ack.getSequence();
      written += ack.getWritten();
    }
    check("points written on the stream", written, 1000L);
    stream.close();
    check("a closed stream ends with OK", stream.read(), null);
  }
}
