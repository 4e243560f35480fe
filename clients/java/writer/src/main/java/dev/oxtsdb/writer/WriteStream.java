package dev.oxtsdb.writer;

import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.WriteOptions;
import dev.oxtsdb.proto.data.v1.WriteStreamRequest;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.FrameFailures;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Opened;
import io.grpc.ManagedChannel;
import io.grpc.stub.StreamObserver;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.TimeUnit;

/** A call of WriteStream over a channel of its own, with its tables and its window. Not thread-safe: the pipeline has a lock. */
final class WriteStream {
  private static final String CLIENT_NAME = "oxtsdb-writer for Java";

  private final String endpoint;
  private final ManagedChannel channel;
  private StreamObserver<WriteStreamRequest> requests;
  private Opened limits;
  private Tables tables;
  private boolean isDraining;
  private long sent;
  private long acknowledged;
  private long pointsInFlight;
  private final Queue<FrameFailures> failures = new ArrayDeque<>();

  WriteStream(String endpoint, ManagedChannel channel) {
    this.endpoint = endpoint;
    this.channel = channel;
  }

  String endpoint() {
    return endpoint;
  }

  /** Begins the call. Responses, and the end of the call, go to the observer. */
  void open(WriteOptions options, StreamObserver<WriteStreamResponse> responses) {
    requests = DataServiceGrpc.newStub(channel).writeStream(responses);
    WriteStreamRequest.Open open = WriteStreamRequest.Open.newBuilder().setClientName(CLIENT_NAME).setOptions(options).build();
    requests.onNext(WriteStreamRequest.newBuilder().setOpen(open).build());
  }

  void opened(Opened limits) {
    this.limits = limits;
    tables = new Tables(limits);
  }

  /** No new frame is sent from now on: the server drains the stream, or its tables are full. */
  void drain() {
    isDraining = true;
  }

  boolean isDraining() {
    return isDraining;
  }

  /** Returns whether any frame was acknowledged. */
  boolean hasProgressed() {
    return acknowledged > 0;
  }

  boolean isIdle() {
    return sent == acknowledged;
  }

  boolean isOpen() {
    return limits != null;
  }

  /** Returns the points of a frame at most. */
  int maxFramePoints() {
    long points = Math.min(limits.getMaxFramePoints(), limits.getWindowPoints());
    return (int) Math.max(1, Math.min(points, Integer.MAX_VALUE));
  }

  /** Returns whether the window admits a frame. */
  boolean hasCapacity(int points) {
    boolean isWithin = sent - acknowledged < limits.getWindowFrames() && pointsInFlight + points <= limits.getWindowPoints();
    return !isDraining && (isWithin || isIdle());
  }

  boolean hasEmptyTables() {
    return tables.isEmpty();
  }

  /** Encodes at most {@code size} of the first points of a batch, fewer if the tables or a message have no capacity for more. */
  Tables.Frame encode(Batch batch, int size) {
    return tables.encode(batch, size);
  }

  void send(Tables.Frame encoded) {
    sent++;
    pointsInFlight += encoded.size();
    WriteStreamRequest.Frame frame =
        WriteStreamRequest.Frame.newBuilder().setSequence(sent).setColumns(encoded.columns()).build();
    requests.onNext(WriteStreamRequest.newBuilder().setFrame(frame).build());
  }

  /** Keeps the failures of an acknowledgement until that of their frame, which they may precede. */
  void addFailures(List<FrameFailures> failures) {
    this.failures.addAll(failures);
  }

  /** Returns whether an acknowledgement up to {@code sequence} has another frame. */
  boolean acknowledges(long sequence) {
    return acknowledged < Math.min(sequence, sent);
  }

  /** Counts the oldest frame in flight as acknowledged and returns its failures. */
  List<Failures> acknowledge(int points) {
    acknowledged++;
    pointsInFlight -= points;
    List<Failures> ofFrame = new ArrayList<>();
    while (!failures.isEmpty() && failures.element().getSequence() <= acknowledged) {
      ofFrame.add(failures.remove().getFailures());
    }
    return ofFrame;
  }

  /** Closes our side. The server then ends the call, and with it the channel. */
  void complete() {
    requests.onCompleted();
    channel.shutdown();
  }

  /** Closes our side, and waits for the server to do so. */
  void close(long seconds) {
    complete();
    try {
      channel.awaitTermination(seconds, TimeUnit.SECONDS);
    } catch (InterruptedException interrupted) {
      // Everything is acknowledged: closing has succeeded.
      Thread.currentThread().interrupt();
    } finally {
      channel.shutdownNow();
    }
  }

  /** Cancels the call. */
  void abort() {
    channel.shutdownNow();
  }
}
