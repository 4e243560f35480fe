package dev.oxtsdb.writer;

import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.WriteStreamRequest;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Ack;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.FrameFailures;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Opened;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/** A data service that records frames, and acknowledges one for each permit. */
final class FakeServer extends DataServiceGrpc.DataServiceImplBase implements AutoCloseable {
  private static final long PATIENCE_MILLIS = 30_000;

  private final Opened limits;
  private final Server server;
  private final List<Columns> frames = new ArrayList<>();
  /** Failures of the frame with a number, from 1, over all streams. */
  private final Map<Integer, Failures> failures = new HashMap<>();
  /** Statuses with which the next streams end. */
  private final Queue<Throwable> breaks = new ArrayDeque<>();
  private StreamObserver<WriteStreamResponse> responses;
  private int permits;
  private int acknowledged;
  private int streams;
  private int completed;
  private int inFlight;
  private int mostInFlight;
  private long sequence;

  FakeServer(Consumer<Opened.Builder> change) throws IOException {
    Opened.Builder opened =
        Opened.newBuilder()
            .setWindowFrames(64)
            .setWindowPoints(1000)
            .setMaxFramePoints(1000)
            .setMaxSeries(100)
            .setMaxSymbolBytes(1 << 20)
            .setMaxMessageBytes(1 << 24);
    change.accept(opened);
    limits = opened.build();
    server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(this).build().start();
  }

  FakeServer() throws IOException {
    this(limits -> {});
  }

  String endpoint() {
    return "127.0.0.1:" + server.getPort();
  }

  @Override
  public void close() throws InterruptedException {
    server.shutdownNow().awaitTermination();
  }

  synchronized FakeServer permit(int frames) {
    permits += frames;
    acknowledge();
    return this;
  }

  synchronized void fail(int frame, Failures.Builder frameFailures) {
    failures.put(frame, frameFailures.build());
  }

  synchronized void breakNext(Throwable status) {
    breaks.add(status);
  }

  synchronized void drain() {
    responses.onNext(
        WriteStreamResponse.newBuilder().setDraining(WriteStreamResponse.Draining.getDefaultInstance()).build());
  }

  synchronized void endStream(Throwable status) {
    responses.onError(status);
    responses = null;
  }

  synchronized List<Columns> frames() {
    return new ArrayList<>(frames);
  }

  synchronized int streams() {
    return streams;
  }

  synchronized int completed() {
    return completed;
  }

  synchronized int mostInFlight() {
    return mostInFlight;
  }

  /** The values of each frame, in the order of its points. */
  synchronized List<List<Number>> values() {
    List<List<Number>> all = new ArrayList<>();
    for (Columns frame : frames) {
      List<Number> values = new ArrayList<>();
      for (Columns.Block block : frame.getBlocksList()) {
        values.addAll(block.getIntValuesList());
        values.addAll(block.getValuesList());
      }
      all.add(values);
    }
    return all;
  }

  void awaitFrames(int count) throws InterruptedException {
    await(count + " frames", () -> frames.size() >= count);
  }

  void awaitCompleted(int count) throws InterruptedException {
    await(count + " streams that the client completed", () -> completed >= count);
  }

  private synchronized void await(String what, BooleanSupplier condition) throws InterruptedException {
    long end = System.currentTimeMillis() + PATIENCE_MILLIS;
    while (!condition.getAsBoolean()) {
      if (System.currentTimeMillis() > end) {
        throw new AssertionError("no " + what + "; frames: " + values());
      }
      wait(100);
    }
  }

  @Override
  public StreamObserver<WriteStreamRequest> writeStream(StreamObserver<WriteStreamResponse> observer) {
    return new StreamObserver<>() {
      @Override
      public void onNext(WriteStreamRequest request) {
        receive(request, observer);
      }

      @Override
      public void onError(Throwable error) {
        end(observer);
      }

      @Override
      public void onCompleted() {
        synchronized (FakeServer.this) {
          completed++;
          observer.onCompleted();
        }
        end(observer);
      }
    };
  }

  private synchronized void receive(WriteStreamRequest request, StreamObserver<WriteStreamResponse> observer) {
    if (request.hasOpen()) {
      streams++;
      if (!breaks.isEmpty()) {
        observer.onError(breaks.remove());
        return;
      }
      responses = observer;
      acknowledged = frames.size();
      sequence = 0;
      inFlight = 0;
      observer.onNext(WriteStreamResponse.newBuilder().setOpened(limits).build());
    } else if (responses == observer) {
      frames.add(request.getFrame().getColumns());
      inFlight++;
      mostInFlight = Math.max(mostInFlight, inFlight);
      acknowledge();
    }
    notifyAll();
  }

  private synchronized void end(StreamObserver<WriteStreamResponse> observer) {
    if (responses == observer) {
      responses = null;
    }
    notifyAll();
  }

  /** Failures precede the acknowledgement of their frame, in two parts. */
  private void acknowledge() {
    while (responses != null && permits > 0 && acknowledged < frames.size()) {
      permits--;
      acknowledged++;
      inFlight--;
      Failures failed = failures.remove(acknowledged);
      if (failed != null) {
        Failures permanent = Failures.newBuilder().setPermanent(failed.getPermanent()).build();
        respond(Ack.newBuilder().setSequence(sequence).addFailures(FrameFailures.newBuilder().setSequence(sequence + 1).setFailures(permanent)));
        failed = failed.toBuilder().clearPermanent().build();
      }
      sequence++;
      Ack.Builder ack = Ack.newBuilder().setSequence(sequence).setWritten(1);
      if (failed != null) {
        ack.addFailures(FrameFailures.newBuilder().setSequence(sequence).setFailures(failed));
      }
      respond(ack);
    }
  }

  private void respond(Ack.Builder ack) {
    responses.onNext(WriteStreamResponse.newBuilder().setAck(ack).build());
  }
}
