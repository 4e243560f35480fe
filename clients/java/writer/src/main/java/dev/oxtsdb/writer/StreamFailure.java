package dev.oxtsdb.writer;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.RetryInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.EnumSet;
import java.util.Set;

/** Why a stream broke. */
final class StreamFailure {
  private static final Set<Status.Code> TRANSIENT =
      EnumSet.of(Status.Code.UNAVAILABLE, Status.Code.ABORTED, Status.Code.DEADLINE_EXCEEDED, Status.Code.CANCELLED);
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final String endpoint;
  private final StatusRuntimeException status;

  StreamFailure(String endpoint, Throwable error) {
    this.endpoint = endpoint;
    Metadata trailers = Status.trailersFromThrowable(error);
    status = Status.fromThrowable(error).asRuntimeException(trailers);
  }

  StatusRuntimeException status() {
    return status;
  }

  /** Returns whether a retry may help. */
  boolean isTransient() {
    return TRANSIENT.contains(status.getStatus().getCode()) || isReset();
  }

  /** A proxy reports a stream that was reset as INTERNAL; a server says in the details why it failed. */
  private boolean isReset() {
    Metadata trailers = status.getTrailers();
    return status.getStatus().getCode() == Status.Code.INTERNAL && (trailers == null || !trailers.containsKey(DETAILS));
  }

  /** Returns the pause in nanoseconds that the server asks for; 0 if it names none. */
  long retryDelayNanos() {
    com.google.rpc.Status details = StatusProto.fromThrowable(status);
    if (details == null) {
      return 0;
    }
    for (Any detail : details.getDetailsList()) {
      if (detail.is(RetryInfo.class)) {
        try {
          return Backoff.nanos(detail.unpack(RetryInfo.class).getRetryDelay());
        } catch (InvalidProtocolBufferException malformed) {
          return 0;
        }
      }
    }
    return 0;
  }

  @Override
  public String toString() {
    return endpoint + ": " + status.getMessage();
  }
}
