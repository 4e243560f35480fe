package dev.oxtsdb.writer;

/** Counters of a writer since it was built. {@code appended = acknowledged + failed +} the points that the writer holds. */
public final class WriterStatistics {
  private final long appended;
  private final long acknowledged;
  private final long failed;
  private final long retries;
  private final long streams;

  WriterStatistics(long appended, long acknowledged, long failed, long retries, long streams) {
    this.appended = appended;
    this.acknowledged = acknowledged;
    this.failed = failed;
    this.retries = retries;
    this.streams = streams;
  }

  /**
   * Returns the number of points that {@code append} took.
   *
   * @return points
   */
  public long appended() {
    return appended;
  }

  /**
   * Returns the number of points that a server has stored.
   *
   * @return points, each once, however often it was sent
   */
  public long acknowledged() {
    return acknowledged;
  }

  /**
   * Returns the number of points that a server rejected for good.
   *
   * @return points, each once
   */
  public long failed() {
    return failed;
  }

  /**
   * Returns the number of points that were sent again, after a failure or because the server rejected them for now.
   *
   * @return points, once for each repetition
   */
  public long retries() {
    return retries;
  }

  /**
   * Returns the number of streams that were opened.
   *
   * @return streams, those that failed included
   */
  public long streams() {
    return streams;
  }

  @Override
  public String toString() {
    return String.format(
        "appended %d, acknowledged %d, failed %d, retries %d, streams %d",
        appended, acknowledged, failed, retries, streams);
  }
}
