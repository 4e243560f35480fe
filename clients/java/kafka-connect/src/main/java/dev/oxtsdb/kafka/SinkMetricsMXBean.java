package dev.oxtsdb.kafka;

/** Counters of a task since its start, as JMX has them: {@code dev.oxtsdb.kafka:type=sink-task,connector=…,task=…}. */
public interface SinkMetricsMXBean {
  /**
   * Returns the number of points that a server has acknowledged.
   *
   * @return points
   */
  long getPointsWritten();

  /**
   * Returns the number of points that a server has rejected for good.
   *
   * @return points
   */
  long getPointsRejected();

  /**
   * Returns the number of points that were sent again, after a failure or because a server rejected them for now.
   *
   * @return points, once for each repetition
   */
  long getPointsRetried();

  /**
   * Returns the number of points that are appended and not acknowledged.
   *
   * @return points
   */
  long getPointsPending();

  /**
   * Returns the number of records that were rejected: those that cannot be converted, and those with points that a server has rejected.
   *
   * @return records
   */
  long getRecordsRejected();

  /**
   * Returns the number of calls that Connect had to repeat, because no server stored anything for as long as {@code patience.ms}.
   *
   * @return calls
   */
  long getCallsRetried();
}
