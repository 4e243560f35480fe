package dev.oxtsdb.flink;

import java.io.IOException;

/** Fails a job because of a rejected point. A restart repeats the point: it helps only if the server's rules have changed. */
public final class RejectedPointException extends IOException {
  private static final long serialVersionUID = 1;

  RejectedPointException(RejectedPoint point) {
    super("rejected point " + point);
  }
}
