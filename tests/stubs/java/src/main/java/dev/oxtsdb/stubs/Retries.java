package dev.oxtsdb.stubs;

import dev.oxtsdb.proto.uid.v1.GetUidLayoutRequest;
import dev.oxtsdb.proto.uid.v1.GetUidLayoutResponse;
import dev.oxtsdb.proto.uid.v1.UidServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;

/** The service config is in effect: a call that fails with UNAVAILABLE once is retried. */
final class Retries {
  private Retries() {}

  private static final class FailsOnce extends UidServiceGrpc.UidServiceImplBase {
    final AtomicInteger calls = new AtomicInteger();

    @Override
    public void getUidLayout(GetUidLayoutRequest request, StreamObserver<GetUidLayoutResponse> response) {
      if (calls.incrementAndGet() == 1) {
        response.onError(Status.UNAVAILABLE.withDescription("the first call").asException());
        return;
      }
      response.onNext(GetUidLayoutResponse.getDefaultInstance());
      response.onCompleted();
    }
  }

  static void run(Path serviceConfig) throws Exception {
    FailsOnce service = new FailsOnce();
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(service).build().start();
    ManagedChannel channel = Support.connect("127.0.0.1:" + server.getPort(), serviceConfig);
    UidServiceGrpc.newBlockingV2Stub(channel).getUidLayout(GetUidLayoutRequest.getDefaultInstance());
    Support.check("calls until one succeeds", service.calls.get(), 2);
    channel.shutdownNow();
    server.shutdownNow();
  }
}
