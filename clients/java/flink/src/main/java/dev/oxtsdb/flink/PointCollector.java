package dev.oxtsdb.flink;

import dev.oxtsdb.writer.Series;
import java.io.IOException;
import java.util.Map;

/**
 * Takes the points of an element. Timestamps are milliseconds since the epoch, unless the sink's options have another unit.
 *
 * <p>{@code add} blocks while the server's window is full, which is how back-pressure reaches the sources of a job. It throws an {@link
 * IOException} if points cannot be written (the sink's patience is exhausted, or a retry is of no use), and if a {@link
 * RejectedPointHandler} throws it.
 */
public interface PointCollector {
  /**
   * Adds a floating-point value.
   *
   * @param series the series; a converter that keeps its series saves the check of their names
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws IOException if points cannot be written
   * @throws InterruptedException if the task is cancelled while the call waits
   */
  void add(Series series, long timestamp, double value) throws IOException, InterruptedException;

  /**
   * Adds an integer value, which is stored as an integer.
   *
   * @param series the series
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws IOException if points cannot be written
   * @throws InterruptedException if the task is cancelled while the call waits
   */
  void add(Series series, long timestamp, long value) throws IOException, InterruptedException;

  /**
   * Adds a floating-point value of a series that is given by its names. Names that no server takes make a rejected point, not an
   * exception.
   *
   * @param metric name of the metric
   * @param tags tag keys with their values
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws IOException if points cannot be written
   * @throws InterruptedException if the task is cancelled while the call waits
   */
  void add(String metric, Map<String, String> tags, long timestamp, double value) throws IOException, InterruptedException;

  /**
   * Adds an integer value of a series that is given by its names, as above.
   *
   * @param metric name of the metric
   * @param tags tag keys with their values
   * @param timestamp in the unit of the options
   * @param value the value
   * @throws IOException if points cannot be written
   * @throws InterruptedException if the task is cancelled while the call waits
   */
  void add(String metric, Map<String, String> tags, long timestamp, long value) throws IOException, InterruptedException;
}
