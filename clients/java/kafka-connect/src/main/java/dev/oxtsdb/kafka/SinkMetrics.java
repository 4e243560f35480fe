package dev.oxtsdb.kafka;

import dev.oxtsdb.writer.WriterStatistics;
import java.lang.management.ManagementFactory;
import javax.management.JMException;
import javax.management.ObjectName;
import org.apache.kafka.connect.errors.ConnectException;

/** The counters of a task. The task's thread writes them, JMX reads them. */
final class SinkMetrics implements SinkMetricsMXBean, AutoCloseable {
  private final ObjectName name;
  private volatile long pointsWritten;
  private volatile long pointsRejected;
  private volatile long pointsRetried;
  private volatile long pointsPending;
  private volatile long recordsRejected;
  private volatile long callsRetried;
  /** The counters of the writer that are included; null: none of this writer. */
  private WriterStatistics included;

  SinkMetrics(String connector, String task) {
    try {
      name = new ObjectName("dev.oxtsdb.kafka:type=sink-task,connector=" + ObjectName.quote(connector) + ",task=" + task);
      close();
      ManagementFactory.getPlatformMBeanServer().registerMBean(this, name);
    } catch (JMException error) {
      throw new ConnectException("metrics of task " + task + " cannot be registered with JMX", error);
    }
  }

  /** Adds what a writer has done since the last call. */
  void add(WriterStatistics statistics) {
    pointsWritten += statistics.acknowledged() - (included == null ? 0 : included.acknowledged());
    pointsRejected += statistics.failed() - (included == null ? 0 : included.failed());
    pointsRetried += statistics.retries() - (included == null ? 0 : included.retries());
    pointsPending = statistics.appended() - statistics.acknowledged() - statistics.failed();
    included = statistics;
  }

  /** The next call of {@link #add} has the counters of another writer. */
  void endWriter() {
    included = null;
  }

  void countRejectedRecord() {
    recordsRejected++;
  }

  void countRetriedCall() {
    callsRetried++;
  }

  @Override
  public long getPointsWritten() {
    return pointsWritten;
  }

  @Override
  public long getPointsRejected() {
    return pointsRejected;
  }

  @Override
  public long getPointsRetried() {
    return pointsRetried;
  }

  @Override
  public long getPointsPending() {
    return pointsPending;
  }

  @Override
  public long getRecordsRejected() {
    return recordsRejected;
  }

  @Override
  public long getCallsRetried() {
    return callsRetried;
  }

  /** Takes the counters off JMX. */
  @Override
  public void close() {
    try {
      if (ManagementFactory.getPlatformMBeanServer().isRegistered(name)) {
        ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
      }
    } catch (JMException error) {
      throw new ConnectException("metrics " + name + " cannot be taken off JMX", error);
    }
  }
}
