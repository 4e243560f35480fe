package dev.oxtsdb.writer;

import dev.oxtsdb.proto.common.v1.ItemError;

/** Receives the points that a server rejects for good. */
@FunctionalInterface
public interface FailedPointListener {
  /**
   * Reports a point that is not stored and would fail again.
   *
   * <p>Called in a thread that is in {@code append}, {@code flush} or {@code close} of the writer, one call at a time. It must not call
   * the writer. An exception that it throws is thrown by that method; the point counts as reported. Each point is reported once.
   *
   * @param series the series
   * @param timestamp in the unit of the writer's options
   * @param value a {@link Long} or a {@link Double}, as it was appended
   * @param error why; null behind the first errors of a frame ({@code WriteOptions.max_errors}, at most 512 KiB)
   */
  void failed(Series series, long timestamp, Number value, ItemError error);
}
