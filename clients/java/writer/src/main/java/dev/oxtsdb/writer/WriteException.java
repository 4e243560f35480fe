package dev.oxtsdb.writer;

import java.io.IOException;

/**
 * Points could not be written. None is lost: the writer keeps what is not acknowledged, and the next {@link Writer#flush()} tries again.
 * The cause, if there is one, is the {@link io.grpc.StatusRuntimeException} of the last attempt.
 */
public class WriteException extends IOException {
  private static final long serialVersionUID = 1;

  private final boolean isTransient;

  WriteException(String message, boolean isTransient, Throwable cause) {
    super(message, cause);
    this.isTransient = isTransient;
  }

  /**
   * Returns whether the failure may pass by itself.
   *
   * @return true if the writer retried for as long as its patience; false if a server said that a retry is of no use (credentials,
   *     rights, a full disk, a violation of the protocol)
   */
  public boolean isTransient() {
    return isTransient;
  }
}
