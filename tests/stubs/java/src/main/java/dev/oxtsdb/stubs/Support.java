package dev.oxtsdb.stubs;

import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.oxtsdb.proto.common.v1.SeriesName;
import dev.oxtsdb.proto.common.v1.Tag;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status.Code;
import io.grpc.StatusException;
import io.grpc.protobuf.StatusProto;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Objects;

/** What all checks use: the count of checks, channels, statuses with their details. */
final class Support {
  static final long HOUR_MS = 3_600_000;
  /** QueryLast looks back from the server's clock, so all points are recent; rows are hours. */
  static final long START_MS = (System.currentTimeMillis() / HOUR_MS - 2) * HOUR_MS;

  static int checks;

  private Support() {}

  static void check(String what, Object actual, Object expected) {
    if (!Objects.equals(actual, expected)) {
      throw new AssertionError(what + ": expected " + expected + ", got " + actual);
    }
    checks++;
  }

  /** A channel with the deadlines and retries of the contract; Gson reads numbers as Double, as grpc-java requires. */
  static ManagedChannel connect(String address, Path serviceConfig) throws IOException {
    Map<String, ?> config =
        new Gson().fromJson(Files.readString(serviceConfig), new TypeToken<Map<String, Object>>() {}.getType());
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
        .defaultServiceConfig(config)
        .enableRetry()
        .build();
  }

  static SeriesName seriesName(String metric, String host) {
    return SeriesName.newBuilder()
        .setMetric(metric)
        .addTags(Tag.newBuilder().setKey("host").setValue(host))
        .build();
  }

  /** A call that must fail. */
  interface Call {
    void run() throws Exception;
  }

  /** The details of a status. */
  record Details(ErrorInfo info, BadRequest badRequest, RetryInfo retry) {}

  static Details rejected(String what, Code code, String reason, Call call) throws Exception {
    try {
      call.run();
    } catch (StatusException error) {
      check(what + ": code", error.getStatus().getCode(), code);
      Details details = details(error);
      check(what + ": domain", details.info().getDomain(), "oxtsdb.dev");
      check(what + ": reason", details.info().getReason(), reason);
      return details;
    }
    throw new AssertionError(what + ": not rejected");
  }

  private static Details details(StatusException error) throws InvalidProtocolBufferException {
    ErrorInfo info = ErrorInfo.getDefaultInstance();
    BadRequest badRequest = BadRequest.getDefaultInstance();
    RetryInfo retry = RetryInfo.getDefaultInstance();
    for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        info = detail.unpack(ErrorInfo.class);
      } else if (detail.is(BadRequest.class)) {
        badRequest = detail.unpack(BadRequest.class);
      } else if (detail.is(RetryInfo.class)) {
        retry = detail.unpack(RetryInfo.class);
      }
    }
    return new Details(info, badRequest, retry);
  }
}
