package dev.oxtsdb.flink;

import dev.oxtsdb.flink.example.Quote;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.CheckpointListener;

/**
 * Lets things go wrong in the middle of a job. Each planned fault happens once, in the thread of a task, {@link #ELEMENTS} elements after
 * the first checkpoint since the last fault, so that points are under way. Static, as Flink copies functions.
 */
final class Faults extends RichMapFunction<Quote, Quote> implements CheckpointListener {
  private static final long serialVersionUID = 1;
  private static final int ELEMENTS = 500;

  /** A fault: an exception that it throws fails the task. */
  interface Fault {
    void happen() throws Exception;
  }

  static final Queue<Fault> PLANNED = new ConcurrentLinkedQueue<>();
  static final AtomicLong SEEN = new AtomicLong();
  static final AtomicLong CHECKPOINT = new AtomicLong();
  /** Tasks of this function that were started. */
  static final AtomicInteger STARTS = new AtomicInteger();

  /** Negative until the first checkpoint since the last fault. */
  private static final AtomicLong SINCE_CHECKPOINT = new AtomicLong(Long.MIN_VALUE);

  static void reset() {
    PLANNED.clear();
    SEEN.set(0);
    CHECKPOINT.set(0);
    STARTS.set(0);
    SINCE_CHECKPOINT.set(Long.MIN_VALUE);
  }

  static void fail() {
    throw new IllegalStateException("a planned fault");
  }

  @Override
  public void open(OpenContext context) {
    STARTS.incrementAndGet();
  }

  @Override
  public Quote map(Quote quote) throws Exception {
    SEEN.incrementAndGet();
    if (SINCE_CHECKPOINT.incrementAndGet() == ELEMENTS) {
      SINCE_CHECKPOINT.set(Long.MIN_VALUE);
      Fault fault = PLANNED.poll();
      if (fault != null) {
        fault.happen();
      }
    }
    return quote;
  }

  @Override
  public void notifyCheckpointComplete(long checkpoint) {
    if (CHECKPOINT.getAndAccumulate(checkpoint, Math::max) < checkpoint) {
      SINCE_CHECKPOINT.updateAndGet(elements -> Math.max(elements, 0));
    }
  }
}
