package dev.oxtsdb.flink;

import java.io.IOException;
import java.io.Serializable;
import org.apache.flink.api.connector.sink2.SinkWriter;

/**
 * Converts an element of a stream to points.
 *
 * <p>The same element must become the same points whenever it is converted: after a failure Flink repeats elements, and a repeated
 * point replaces itself only if its series, timestamp and value are the same. A converter that reads the clock breaks that.
 *
 * @param <T> type of the elements
 */
@FunctionalInterface
public interface PointConverter<T> extends Serializable {
  /**
   * Converts an element. An exception fails the job, as one of any other operator does.
   *
   * @param element the element
   * @param context its event time and the watermark
   * @param points takes the points: none, one or several
   * @throws IOException if the collector throws it
   * @throws InterruptedException if the collector throws it
   */
  void convert(T element, SinkWriter.Context context, PointCollector points) throws IOException, InterruptedException;
}
