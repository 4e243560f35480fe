package dev.oxtsdb.proto;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** Why a call failed: its status, with the details that a server adds. */
public final class ErrorDetails {
  private static final String REASON_PREFIX = "ERROR_REASON_";
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final StatusRuntimeException error;
  private final com.google.rpc.Status details;

  /**
   * Reads the details of an error.
   *
   * @param error what a stub throws, or what an observer gets
   */
  public ErrorDetails(Throwable error) {
    this.error = Status.fromThrowable(error).asRuntimeException(Status.trailersFromThrowable(error));
    details = StatusProto.fromThrowable(this.error);
  }

  /**
   * Returns the error itself.
   *
   * @return the status, as an exception
   */
  public StatusRuntimeException error() {
    return error;
  }

  /**
   * Returns the code of the status.
   *
   * @return the code
   */
  public Status.Code code() {
    return error.getStatus().getCode();
  }

  /**
   * Returns why the server failed the call.
   *
   * @return the reason; {@code ERROR_REASON_UNSPECIFIED} if the server names none, or one of a later contract
   */
  public ErrorReason reason() {
    String name = REASON_PREFIX + detail(ErrorInfo.class).map(ErrorInfo::getReason).orElse("");
    for (ErrorReason reason : ErrorReason.values()) {
      if (reason.name().equals(name)) {
        return reason;
      }
    }
    return ErrorReason.ERROR_REASON_UNSPECIFIED;
  }

  /**
   * Returns what the reason says it carries.
   *
   * @return names and values
   */
  public Map<String, String> metadata() {
    return detail(ErrorInfo.class).map(ErrorInfo::getMetadataMap).orElse(Map.of());
  }

  /**
   * Returns how long to wait before a retry.
   *
   * @return the delay; zero if the server names none
   */
  public Duration retryDelay() {
    return detail(RetryInfo.class)
        .map(RetryInfo::getRetryDelay)
        .map(delay -> Duration.ofSeconds(delay.getSeconds(), delay.getNanos()))
        .orElse(Duration.ZERO);
  }

  /**
   * Returns whether the stream was reset on its way. Proxies report that as INTERNAL; a server says in the details why it failed.
   *
   * @return true for INTERNAL without details
   */
  public boolean isReset() {
    Metadata trailers = error.getTrailers();
    return code() == Status.Code.INTERNAL && (trailers == null || !trailers.containsKey(DETAILS));
  }

  private <T extends Message> Optional<T> detail(Class<T> type) {
    if (details == null) {
      return Optional.empty();
    }
    for (Any detail : details.getDetailsList()) {
      if (detail.is(type)) {
        try {
          return Optional.of(detail.unpack(type));
        } catch (InvalidProtocolBufferException malformed) {
          return Optional.empty();
        }
      }
    }
    return Optional.empty();
  }

  /** Returns the code and the description: {@code UNAVAILABLE: io exception}. */
  @Override
  public String toString() {
    return error.getMessage();
  }
}
