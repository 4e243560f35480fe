package dev.oxtsdb.reader;

import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.QueryRequest;
import dev.oxtsdb.proto.data.v1.QueryResponse;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.function.Consumer;

/** A data service whose queries a test responds to. */
final class FakeServer extends DataServiceGrpc.DataServiceImplBase implements AutoCloseable {
  private final Server server;
  private final Consumer<ServerCallStreamObserver<QueryResponse>> respond;
  private int queries;

  FakeServer(Consumer<ServerCallStreamObserver<QueryResponse>> respond) throws IOException {
    this.respond = respond;
    server = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(this).build().start();
  }

  String endpoint() {
    return "127.0.0.1:" + server.getPort();
  }

  synchronized int queries() {
    return queries;
  }

  @Override
  public void query(QueryRequest request, StreamObserver<QueryResponse> observer) {
    synchronized (this) {
      queries++;
    }
    respond.accept((ServerCallStreamObserver<QueryResponse>) observer);
  }

  @Override
  public void close() throws InterruptedException {
    server.shutdownNow().awaitTermination();
  }

  static QueryResponse series(int number) {
    QueryResponse.Series.Builder series = QueryResponse.Series.newBuilder().setSeries(number).setMetric("m");
    return QueryResponse.newBuilder().setSeries(series.putTags("host", "h" + number)).build();
  }

  static QueryResponse points(QueryResponse.Points.Builder points) {
    return QueryResponse.newBuilder().setPoints(points).build();
  }

  static QueryResponse statistics() {
    return QueryResponse.newBuilder().setStatistics(QueryResponse.Statistics.getDefaultInstance()).build();
  }
}
