package dev.oxtsdb.stubs;

import static dev.oxtsdb.stubs.Support.START_MS;
import static dev.oxtsdb.stubs.Support.check;
import static dev.oxtsdb.stubs.Support.rejected;
import static dev.oxtsdb.stubs.Writes.MILLISECONDS;
import static dev.oxtsdb.stubs.Writes.columns;
import static dev.oxtsdb.stubs.Writes.timestamps;
import static dev.oxtsdb.stubs.Writes.withDeltas;

import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingV2Stub;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.TimeSeries;
import dev.oxtsdb.proto.data.v1.WriteColumnsResponse;
import dev.oxtsdb.proto.data.v1.WriteRequest;
import dev.oxtsdb.proto.data.v1.WriteResponse;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import io.grpc.Status.Code;
import java.util.List;

/** The four mistakes, none of which stores a point. */
final class Mistakes {
  private Mistakes() {}

  static void all(DataServiceBlockingV2Stub stub) throws Exception {
    repeatedDeclaration(stub);
    deltas("offsets as deltas", stub, List.of(1000L, 2000L, 3000L));
    deltas("absolute timestamps as deltas", stub, timestamps(1, 3));
    seconds(stub);
  }

  private static void repeatedDeclaration(DataServiceBlockingV2Stub stub) throws Exception {
    Stream stream = Stream.open(stub);
    stream.send(columns("java.declared", 7, 1, true));
    WriteStreamResponse.Ack ack = stream.read().getAck();
    check("the frame before the mistake", ack.getSequence(), 1L);
    check("its point", ack.getWritten(), 1L);
    stream.send(columns("java.other", 7, 1, true));
    Support.Details details =
        rejected(
            "symbols declared from 0 again",
            Code.INVALID_ARGUMENT,
            "DECLARATION_OUT_OF_SEQUENCE",
            stream::read);
    check("the expected number", details.info().getMetadataOrThrow("expected"), "3");
  }

  private static void deltas(String what, DataServiceBlockingV2Stub stub, List<Long> deltas) throws Exception {
    WriteColumnsResponse result =
        Writes.writeColumns(stub, withDeltas(columns("java.mistake", 0, 4, true), deltas));
    check(what + ": nothing is stored", result.getWritten(), 0L);
    allFailed(what, result.getFailures(), 4, ErrorReason.ERROR_REASON_INVALID_TIMESTAMP);
  }

  private static void seconds(DataServiceBlockingV2Stub stub) throws Exception {
    TimeSeries series =
        TimeSeries.newBuilder()
            .setName(Support.seriesName("java.mistake", "a"))
            .addTimestamps(START_MS / 1000)
            .addTimestamps(START_MS / 1000 + 1)
            .addValues(1)
            .addValues(2)
            .build();
    WriteRequest.Builder request = WriteRequest.newBuilder().addSeries(series);
    WriteResponse result = stub.write(request.clone().setOptions(MILLISECONDS).build());
    check("seconds as milliseconds: nothing is stored", result.getWritten(), 0L);
    allFailed(
        "seconds as milliseconds", result.getFailures(), 2, ErrorReason.ERROR_REASON_IMPLAUSIBLE_TIMESTAMP);
    rejected("no unit", Code.INVALID_ARGUMENT, "INVALID_FIELD", () -> stub.write(request.build()));
  }

  private static void allFailed(String what, Failures failures, long count, ErrorReason reason) {
    check(what + ": from the first", failures.getPermanent().getFirstList(), List.of(0L));
    check(what + ": to the last", failures.getPermanent().getCountList(), List.of(count));
    check(what + ": why", failures.getErrors(0).getError().getReason(), reason);
  }
}
