package dev.oxtsdb.flink;

import java.io.IOException;
import java.io.Serializable;

/**
 * Decides about points that a server rejects for good: bad names, implausible timestamps, NaN, missing rights for a metric.
 *
 * <p>Each subtask has a copy. All methods are called in the thread of its task. Points are reported again when Flink repeats them.
 */
@FunctionalInterface
public interface RejectedPointHandler extends Serializable {
  /**
   * Handles a rejected point. Returning counts the point as done: the job goes on without it.
   *
   * @param point the point and why it was rejected
   * @throws IOException fails the job
   */
  void rejected(RejectedPoint point) throws IOException;

  /**
   * Called before a checkpoint completes, after all points of the checkpoint: what the handler has taken must be safe when it returns.
   *
   * @throws IOException fails the job
   * @throws InterruptedException if the task is cancelled while the call waits
   */
  default void flush() throws IOException, InterruptedException {}

  /**
   * Releases what the handler holds, at the end of a task, also after a failure.
   *
   * @throws IOException is added to the failure of the task
   */
  default void close() throws IOException {}

  /**
   * Returns the handler that fails the job with a {@link RejectedPointException} at the first rejected point.
   *
   * @return the default of a sink
   */
  static RejectedPointHandler fail() {
    return point -> {
      throw new RejectedPointException(point);
    };
  }

  /**
   * Returns the handler that drops rejected points. It logs one of them, with the number of all since the last line, at most every ten
   * seconds; the metric {@code numRecordsSendErrors} counts them.
   *
   * @return the handler
   */
  static RejectedPointHandler drop() {
    return new DropRejectedPoints();
  }
}
