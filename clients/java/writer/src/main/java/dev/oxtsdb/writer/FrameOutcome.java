package dev.oxtsdb.writer;

import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.PointError;
import dev.oxtsdb.proto.data.v1.PointRuns;
import java.util.BitSet;
import java.util.List;

/** Which points of an acknowledged frame are not stored, and why. */
final class FrameOutcome {
  private final int size;
  private final BitSet permanent = new BitSet();
  private final BitSet retryable = new BitSet();
  private final ItemError[] errors;

  /**
   * Reads the failures of a frame.
   *
   * @param size points of the frame; numbers beyond it are ignored
   */
  FrameOutcome(List<Failures> failures, int size) {
    this.size = size;
    errors = new ItemError[failures.isEmpty() ? 0 : size];
    for (Failures each : failures) {
      add(each.getPermanent(), permanent);
      add(each.getRetryable(), retryable);
      for (PointError error : each.getErrorsList()) {
        int end = end(error.getFirst(), error.getCount());
        for (int at = within(error.getFirst()); at < end; at++) {
          errors[at] = error.getError();
        }
      }
    }
  }

  private void add(PointRuns runs, BitSet points) {
    for (int run = 0; run < runs.getFirstCount(); run++) {
      points.set(within(runs.getFirst(run)), end(runs.getFirst(run), runs.getCount(run)));
    }
  }

  /** Numbers are unsigned. */
  private int within(long number) {
    return Long.compareUnsigned(number, size) < 0 ? (int) number : size;
  }

  private int end(long first, long count) {
    return within(within(first) + (long) within(count));
  }

  boolean hasFailures() {
    return !permanent.isEmpty() || !retryable.isEmpty();
  }

  boolean isPermanent(int at) {
    return permanent.get(at);
  }

  boolean isRetryable(int at) {
    return retryable.get(at);
  }

  /** Returns why a point failed; null behind the errors that the server lists. */
  ItemError error(int at) {
    return errors.length == 0 ? null : errors[at];
  }
}
