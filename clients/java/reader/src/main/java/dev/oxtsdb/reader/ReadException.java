package dev.oxtsdb.reader;

import dev.oxtsdb.proto.ErrorDetails;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import io.grpc.Status;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

/** A query failed. What was read before is not the whole result. */
public class ReadException extends IOException {
  private static final long serialVersionUID = 1;

  /** The code of the status. */
  private final Status.Code code;
  /** Why the server failed the call. */
  private final ErrorReason reason;
  /** What the reason carries. */
  private final HashMap<String, String> metadata;
  /** Whether the same query may succeed later. */
  private final boolean isTransient;

  ReadException(String endpoint, ErrorDetails details) {
    super(endpoint + ": " + details, details.error());
    code = details.code();
    reason = details.reason();
    metadata = new HashMap<>(details.metadata());
    isTransient = isTransient(details);
  }

  static boolean isTransient(ErrorDetails details) {
    return details.code() == Status.Code.UNAVAILABLE || details.isReset();
  }

  /**
   * Returns the code of the status.
   *
   * @return the code: {@code NOT_FOUND}, {@code RESOURCE_EXHAUSTED}, …
   */
  public Status.Code code() {
    return code;
  }

  /**
   * Returns why the server failed the query.
   *
   * @return the reason, for example {@code ERROR_REASON_NAME_NOT_FOUND}; {@code ERROR_REASON_UNSPECIFIED} if the server names none, or
   *     could not be reached
   */
  public ErrorReason reason() {
    return reason;
  }

  /**
   * Returns what the reason says it carries.
   *
   * @return names and values, for example {@code kind} and {@code name}
   */
  public Map<String, String> metadata() {
    return Map.copyOf(metadata);
  }

  /**
   * Returns whether the same query may succeed later.
   *
   * @return true if no server could be reached, or all are overloaded or shutting down
   */
  public boolean isTransient() {
    return isTransient;
  }
}
