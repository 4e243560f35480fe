package dev.oxtsdb.flink;

import java.time.Duration;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Drops rejected points, and logs them at a bounded rate. */
final class DropRejectedPoints implements RejectedPointHandler {
  private static final long serialVersionUID = 1;
  private static final Logger LOG = LoggerFactory.getLogger(OxtsdbSink.class);
  private static final long INTERVAL_NANOS = Duration.ofSeconds(10).toNanos();

  private transient boolean hasLogged;
  private transient long loggedNanos;
  private transient long dropped;

  @Override
  public void rejected(RejectedPoint point) {
    line(point, System.nanoTime()).ifPresent(LOG::warn);
  }

  /** Counts a point, and returns a line for the log if one is due. */
  Optional<String> line(RejectedPoint point, long nowNanos) {
    dropped++;
    if (hasLogged && nowNanos - loggedNanos < INTERVAL_NANOS) {
      return Optional.empty();
    }
    String line = "dropped " + dropped + (dropped == 1 ? " rejected point: " : " rejected points, the last one: ") + point;
    hasLogged = true;
    loggedNanos = nowNanos;
    dropped = 0;
    return Optional.of(line);
  }

  @Override
  public void close() {
    if (dropped > 0) {
      LOG.warn("dropped {} more rejected points", dropped);
    }
  }
}
