package dev.oxtsdb.writer;

import dev.oxtsdb.proto.ErrorDetails;
import io.grpc.Status;
import java.util.EnumSet;
import java.util.Set;

/** Why a stream broke. */
final class StreamFailure {
  private static final Set<Status.Code> TRANSIENT =
      EnumSet.of(Status.Code.UNAVAILABLE, Status.Code.ABORTED, Status.Code.DEADLINE_EXCEEDED, Status.Code.CANCELLED);

  private final String endpoint;
  private final ErrorDetails details;

  StreamFailure(String endpoint, Throwable error) {
    this.endpoint = endpoint;
    details = new ErrorDetails(error);
  }

  ErrorDetails details() {
    return details;
  }

  /** Returns whether a retry may help. */
  boolean isTransient() {
    return TRANSIENT.contains(details.code()) || details.isReset();
  }

  @Override
  public String toString() {
    return endpoint + ": " + details;
  }
}
