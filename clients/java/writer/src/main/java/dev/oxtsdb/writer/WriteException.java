package dev.oxtsdb.writer;

import dev.oxtsdb.proto.common.v1.ErrorReason;
import java.io.IOException;

/**
 * Points could not be written. None is lost: the writer keeps what is not acknowledged, and the next {@link Writer#flush()} tries again.
 * The cause, if there is one, is the {@link io.grpc.StatusRuntimeException} of the last attempt.
 */
public class WriteException extends IOException {
  private static final long serialVersionUID = 1;

  /** Whether the failure may pass by itself. */
  private final boolean isTransient;
  /** Why the server failed the stream. */
  private final ErrorReason reason;

  /**
   * Creates an exception.
   *
   * @param failure the last failure; null if none is known
   */
  WriteException(String message, StreamFailure failure) {
    super(message, failure == null ? null : failure.details().error());
    isTransient = failure == null || failure.isTransient();
    reason = failure == null ? ErrorReason.ERROR_REASON_UNSPECIFIED : failure.details().reason();
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

  /**
   * Returns why the server failed the stream.
   *
   * @return the reason; {@code ERROR_REASON_UNSPECIFIED} if the server named none, or could not be reached
   */
  public ErrorReason reason() {
    return reason;
  }
}
