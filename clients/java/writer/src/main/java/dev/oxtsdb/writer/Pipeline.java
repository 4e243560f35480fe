package dev.oxtsdb.writer;

import com.google.rpc.Code;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.lang.System.Logger.Level;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/**
 * Owns points until they are acknowledged.
 *
 * <pre>
 *   append ─► filling ─► unsent ─► in flight ─► acknowledged
 *                          ▲           │
 *                          ├───────────┤  the stream broke
 *                          └── retry ◄─┘  rejected for now; no frame is sent until all in flight are acknowledged
 * </pre>
 *
 * One lock guards it. gRPC's threads handle responses, and send what the window then admits. The callers' threads open streams, and report
 * failures and failed points. A caller appends only while nothing is unsent, so the server's window bounds the memory.
 */
final class Pipeline {
  private static final System.Logger LOGGER = System.getLogger(Writer.class.getName());
  private static final long CLOSE_SECONDS = 5;

  /** OPEN takes points, CLOSING only flushes. */
  private enum State {
    OPEN,
    CLOSING,
    CLOSED
  }

  private final Writer.Builder settings;
  private final ReentrantLock lock = new ReentrantLock();
  /** Signalled after a response was handled, and when a stream or the writer has ended. */
  private final Condition changed = lock.newCondition();

  private Batch filling = new Batch(0);
  private final Deque<Batch> unsent = new ArrayDeque<>();
  private final Deque<Batch> inFlight = new ArrayDeque<>();
  /** Null if no acknowledged point has to be sent again. */
  private Retry retry;
  private final Queue<FailedPoint> failedPoints = new ArrayDeque<>();

  private State state = State.OPEN;
  private WriteStream stream;
  private final Backoff backoff = new Backoff();
  /** No stream is opened, and no frame sent, before this time of {@link System#nanoTime}. */
  private long resumeAt = System.nanoTime();
  /** The last failure; null after progress, and after a caller got one that is final. */
  private StreamFailure failure;

  private long appended;
  private long acknowledged;
  private long failed;
  private long retries;
  private long streams;

  Pipeline(Writer.Builder settings) {
    this.settings = settings;
  }

  void append(Series series, long timestamp, long bits, boolean isDouble) throws WriteException, InterruptedException {
    enter();
    try {
      await(unsent::isEmpty);
      require(state == State.OPEN);
      filling.add(series, timestamp, bits, isDouble);
      appended++;
      if (filling.size() >= settings.batchPoints) {
        seal();
        advance();
      }
    } finally {
      lock.unlock();
    }
  }

  void flush() throws WriteException, InterruptedException {
    enter();
    try {
      awaitAppended();
    } finally {
      lock.unlock();
    }
  }

  void close() throws WriteException, InterruptedException {
    enter();
    boolean isClosing = false;
    WriteStream last;
    try {
      while (state == State.CLOSING) {
        // Another thread closes the writer.
        changed.await();
      }
      if (state == State.CLOSED) {
        return;
      }
      state = State.CLOSING;
      isClosing = true;
      awaitAppended();
      state = State.CLOSED;
      last = stream;
      stream = null;
      changed.signalAll();
    } finally {
      if (isClosing && state == State.CLOSING) {
        state = State.OPEN;
        dropStream();
        changed.signalAll();
      }
      lock.unlock();
    }
    if (last != null) {
      last.close(CLOSE_SECONDS);
    }
  }

  void abort() {
    lock.lock();
    try {
      state = State.CLOSED;
      dropStream();
      unsent.clear();
      failedPoints.clear();
      filling = new Batch(0);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  WriterStatistics statistics() {
    lock.lock();
    try {
      return new WriterStatistics(appended, acknowledged, failed, retries, streams);
    } finally {
      lock.unlock();
    }
  }

  /** Locks. */
  private void enter() throws InterruptedException {
    if (lock.isHeldByCurrentThread()) {
      throw new IllegalStateException("the listener for failed points calls the writer");
    }
    lock.lockInterruptibly();
  }

  private static void require(boolean isOpen) {
    if (!isOpen) {
      throw new IllegalStateException("the writer is closed");
    }
  }

  private void seal() {
    if (filling.size() > 0) {
      unsent.add(filling.byType());
      filling = new Batch(filling.ordinal() + 1);
    }
  }

  /** Waits until all points that were appended before are acknowledged. */
  private void awaitAppended() throws WriteException, InterruptedException {
    seal();
    long next = filling.ordinal();
    await(() -> oldest() >= next);
  }

  /** Returns the ordinal of the first batch with points that are not acknowledged. */
  private long oldest() {
    if (retry != null) {
      return retry.points().ordinal();
    }
    Batch first = inFlight.isEmpty() ? unsent.peek() : inFlight.peek();
    return first == null ? Long.MAX_VALUE : first.ordinal();
  }

  /** Works until a condition holds and all failed points are reported. The lock is free while it waits. */
  private void await(BooleanSupplier isDone) throws WriteException, InterruptedException {
    long began = System.nanoTime();
    long finished = acknowledged + failed;
    while (true) {
      reportFailedPoints();
      require(state != State.CLOSED);
      if (isDone.getAsBoolean()) {
        return;
      }
      if (failure != null && !failure.isTransient()) {
        StreamFailure last = failure;
        failure = null;
        throw new WriteException(last.toString(), last);
      }
      long now = System.nanoTime();
      if (acknowledged + failed > finished) {
        finished = acknowledged + failed;
        began = now;
      }
      long patience = TimeUnit.NANOSECONDS.convert(settings.patience) - (now - began);
      if (patience <= 0) {
        dropSilentStream();
        // The next call begins with an attempt.
        backoff.reset();
        resumeAt = now;
        String message = "no point was stored for " + settings.patience.toMillis() + " ms";
        throw new WriteException(failure == null ? message : message + ": " + failure, failure);
      }
      advance();
      if (!isDone.getAsBoolean()) {
        changed.awaitNanos(resumeAt - now > 0 ? Math.min(resumeAt - now, patience) : patience);
      }
    }
  }

  private void reportFailedPoints() {
    FailedPoint point;
    while ((point = failedPoints.poll()) != null) {
      settings.listener.failed(point.series, point.timestamp, point.value, point.error);
    }
  }

  /** Gives up a stream whose server does not respond, so that the next attempt is made elsewhere. */
  private void dropSilentStream() {
    if (stream == null || stream.isOpen() && inFlight.isEmpty()) {
      return;
    }
    if (failure == null) {
      failure = new StreamFailure(stream.endpoint(), Status.DEADLINE_EXCEEDED.withDescription("no response").asException());
    }
    dropStream();
  }

  /** Opens a stream if there is something to send, and sends what it admits. */
  private void advance() {
    do {
      retireIfDrained();
      if (System.nanoTime() - resumeAt < 0) {
        return;
      }
      if (stream == null && !unsent.isEmpty()) {
        open();
      }
      send();
    } while (isDrained());
  }

  private void open() {
    String endpoint = settings.endpoints[(int) (streams % settings.endpoints.length)];
    streams++;
    stream = new WriteStream(endpoint, settings.channel.apply(endpoint));
    stream.open(settings.options, new Responses(stream));
  }

  private void send() {
    while (stream != null && stream.isOpen() && retry == null && !unsent.isEmpty() && System.nanoTime() - resumeAt >= 0) {
      Batch batch = unsent.element();
      int size = Math.min(batch.size(), stream.maxFramePoints());
      if (!stream.hasCapacity(size)) {
        return;
      }
      Tables.Frame frame = stream.encode(batch, size);
      if (frame.size() > 0) {
        inFlight.add(takeUnsent(frame.size()));
        stream.send(frame);
      } else if (stream.hasEmptyTables()) {
        rejectOversized(takeUnsent(1));
      } else {
        // The tables are full. Those of the next stream are empty.
        stream.drain();
      }
    }
  }

  /** Takes points off the front. */
  private Batch takeUnsent(int size) {
    Batch batch = unsent.remove();
    if (size == batch.size()) {
      return batch;
    }
    unsent.addFirst(batch.range(size, batch.size()));
    return batch.range(0, size);
  }

  private void rejectOversized(Batch point) {
    failed++;
    ItemError error =
        ItemError.newBuilder()
            .setCode(Code.RESOURCE_EXHAUSTED_VALUE)
            .setReason(ErrorReason.ERROR_REASON_MESSAGE_TOO_LARGE)
            .setMessage("the names of the series are larger than the server's limits for a stream")
            .build();
    failedPoints.add(new FailedPoint(point, 0, error));
  }

  private boolean isDrained() {
    return stream != null && stream.isDraining() && inFlight.isEmpty();
  }

  private void retireIfDrained() {
    if (isDrained()) {
      WriteStream drained = stream;
      stream = null;
      if (!drained.hasProgressed()) {
        pause(new StreamFailure(drained.endpoint(), Status.UNAVAILABLE.withDescription("draining").asException()));
      }
      drained.complete();
    }
  }

  private void acknowledge(WriteStreamResponse.Ack ack) {
    stream.addFailures(ack.getFailuresList());
    while (stream.acknowledges(ack.getSequence())) {
      Batch batch = inFlight.element();
      finish(batch, new FrameOutcome(stream.acknowledge(batch.size()), batch.size()));
      inFlight.remove();
    }
    if (retry != null && inFlight.isEmpty()) {
      failure = new StreamFailure(stream.endpoint(), Status.UNAVAILABLE.withDescription(retry.cause()).asException());
      resumeAt = System.nanoTime() + retry.pauseNanos();
      requeueRetry();
    }
  }

  private void finish(Batch batch, FrameOutcome outcome) {
    long before = acknowledged + failed;
    if (retry == null && !outcome.hasFailures()) {
      acknowledged += batch.size();
    } else {
      finishEach(batch, outcome);
    }
    if (acknowledged + failed > before) {
      backoff.reset();
      failure = null;
    }
  }

  private void finishEach(Batch batch, FrameOutcome outcome) {
    for (int at = 0; at < batch.size(); at++) {
      if (outcome.isPermanent(at)) {
        failed++;
        failedPoints.add(new FailedPoint(batch, at, outcome.error(at)));
      } else if (outcome.isRetryable(at) || retry != null && retry.hasInstant(batch, at)) {
        if (retry == null) {
          retry = new Retry(batch.ordinal());
        }
        retry.add(batch, at, outcome.error(at));
      } else {
        acknowledged++;
      }
    }
  }

  private void breakStream(StreamFailure why) {
    requeue();
    // Without points to send nobody has to know; the next batch opens another stream.
    if (!unsent.isEmpty()) {
      LOGGER.log(Level.WARNING, () -> "write stream broke: " + why);
      pause(why);
    }
  }

  private void pause(StreamFailure why) {
    failure = why;
    resumeAt = System.nanoTime() + backoff.next(why.details().retryDelay());
  }

  private void dropStream() {
    if (stream != null) {
      stream.abort();
      requeue();
    }
  }

  /** Forgets the stream; its points in flight become the first unsent ones. */
  private void requeue() {
    stream = null;
    while (!inFlight.isEmpty()) {
      Batch batch = inFlight.removeLast();
      retries += batch.size();
      unsent.addFirst(batch);
    }
    requeueRetry();
    changed.signalAll();
  }

  private void requeueRetry() {
    if (retry != null) {
      retries += retry.points().size();
      unsent.addFirst(retry.points().byType());
      retry = null;
    }
  }

  /** A point to report. */
  private static final class FailedPoint {
    private final Series series;
    private final long timestamp;
    private final Number value;
    private final ItemError error;

    private FailedPoint(Batch batch, int at, ItemError error) {
      series = batch.series(at);
      timestamp = batch.timestamp(at);
      value = batch.value(at);
      this.error = error;
    }
  }

  /** Handles the responses of a stream. Those of a stream that was given up end its channel, no more. */
  private final class Responses implements StreamObserver<WriteStreamResponse> {
    private final WriteStream source;

    private Responses(WriteStream source) {
      this.source = source;
    }

    @Override
    public void onNext(WriteStreamResponse response) {
      handle(
          () -> {
            switch (response.getMessageCase()) {
              case OPENED:
                stream.opened(response.getOpened());
                break;
              case ACK:
                acknowledge(response.getAck());
                break;
              case DRAINING:
                stream.drain();
                break;
              default:
                // A message of a later contract.
                break;
            }
            send();
            retireIfDrained();
          });
    }

    @Override
    public void onError(Throwable error) {
      source.abort();
      handle(() -> breakStream(new StreamFailure(source.endpoint(), error)));
    }

    @Override
    public void onCompleted() {
      onError(Status.UNAVAILABLE.withDescription("the server ended the stream").asException());
    }

    private void handle(Runnable change) {
      lock.lock();
      try {
        if (stream == source) {
          change.run();
          changed.signalAll();
        }
      } finally {
        lock.unlock();
      }
    }
  }
}
