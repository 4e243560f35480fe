package dev.oxtsdb.stubs;

import static dev.oxtsdb.stubs.Support.check;
import static dev.oxtsdb.stubs.Support.rejected;

import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingV2Stub;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import io.grpc.Status.Code;

/** A drain between frames: what the first server did not acknowledge goes to the second. */
final class Drain {
  private static final long FRAMES = 20;

  private Drain() {}

  private static Columns frame(long number, boolean isFirst) {
    return Writes.columns("java.drain", number * 100, 100, isFirst);
  }

  static void run(DataServiceBlockingV2Stub first, DataServiceBlockingV2Stub second, ProcessHandle firstServer)
      throws Exception {
    Stream stream = Stream.open(first);
    Stream idle = Stream.open(first);
    for (long number = 0; number < 10; number++) {
      stream.send(frame(number, number == 0));
    }
    long acked = stream.read().getAck().getSequence();
    // SIGTERM.
    check("the first server stops", firstServer.destroy(), true);
    boolean isDraining = false;
    while (!isDraining || acked < stream.sequence()) {
      WriteStreamResponse response = stream.read();
      if (response.hasDraining()) {
        isDraining = true;
        check("it waits", response.getDraining().hasGrace(), true);
      } else {
        acked = response.getAck().getSequence();
      }
    }
    stream.close();
    check("a closed stream ends with OK", stream.read(), null);

    Support.Details details =
        rejected(
            "a stream that is not closed",
            Code.UNAVAILABLE,
            "DRAINING",
            () -> {
              while (idle.read() != null) {}
            });
    check("when to retry", details.retry().hasRetryDelay(), true);

    stream = Stream.open(second);
    for (long number = acked; number < FRAMES; number++) {
      stream.send(frame(number, number == acked));
    }
    stream.close();
    long written = 0;
    for (WriteStreamResponse response = stream.read(); response != null; response = stream.read()) {
      written += response.getAck().getWritten();
    }
    check("points written to the second server", written, (FRAMES - acked) * 100);
  }
}
