package dev.oxtsdb.kafka;

import dev.oxtsdb.proto.common.v1.ItemError;
import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.Failures;
import dev.oxtsdb.proto.data.v1.PointError;
import dev.oxtsdb.proto.data.v1.WriteStreamRequest;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Ack;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.FrameFailures;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse.Opened;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** A data service that stores points in a list, rejects negative values, and fails on demand. */
final class StubServer extends DataServiceGrpc.DataServiceImplBase implements ServerInterceptor, AutoCloseable {
  private final Server server;
  /** Points as telnet has them, in the order of their writes. */
  private final List<String> stored = new ArrayList<>();
  /** What streams end with; null: they do not. */
  private Status failure;
  private String authorization;

  StubServer() throws IOException {
    server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(this)
            .intercept(this)
            .build()
            .start();
  }

  String endpoint() {
    return "127.0.0.1:" + server.getPort();
  }

  @Override
  public void close() throws InterruptedException {
    server.shutdownNow().awaitTermination();
  }

  synchronized void failWith(Status status) {
    failure = status;
  }

  synchronized List<String> stored() {
    return new ArrayList<>(stored);
  }

  /** Returns the credentials of the last call. */
  synchronized String authorization() {
    return authorization;
  }

  @Override
  public <Q, R> ServerCall.Listener<Q> interceptCall(ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
    synchronized (this) {
      authorization = headers.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER));
    }
    return next.startCall(call, headers);
  }

  @Override
  public StreamObserver<WriteStreamRequest> writeStream(StreamObserver<WriteStreamResponse> responses) {
    List<String> symbols = new ArrayList<>();
    List<Columns.SeriesDeclaration> series = new ArrayList<>();
    return new StreamObserver<>() {
      private boolean hasEnded;

      @Override
      public void onNext(WriteStreamRequest request) {
        synchronized (StubServer.this) {
          if (hasEnded) {
            return;
          }
          if (failure != null) {
            hasEnded = true;
            responses.onError(failure.asRuntimeException());
          } else if (request.hasOpen()) {
            responses.onNext(WriteStreamResponse.newBuilder().setOpened(limits()).build());
          } else {
            Columns columns = request.getFrame().getColumns();
            symbols.addAll(columns.getNewSymbolsList());
            series.addAll(columns.getNewSeriesList());
            responses.onNext(WriteStreamResponse.newBuilder().setAck(store(request.getFrame().getSequence(), columns)).build());
          }
        }
      }

      private Ack store(long sequence, Columns columns) {
        Ack.Builder ack = Ack.newBuilder().setSequence(sequence);
        Failures.Builder failures = Failures.newBuilder();
        int index = 0;
        for (Columns.Block block : columns.getBlocksList()) {
          long timestamp = block.getDeltaTimestamps().getFirst();
          for (int at = 0; at <= block.getDeltaTimestamps().getDeltasCount(); at++, index++) {
            timestamp += at == 0 ? 0 : block.getDeltaTimestamps().getDeltas(at - 1);
            Number value = block.getIntValuesCount() > 0 ? (Number) block.getIntValues(at) : (Number) block.getValues(at);
            if (value.doubleValue() < 0) {
              failures.getPermanentBuilder().addFirst(index).addCount(1);
              ItemError error = ItemError.newBuilder().setMessage("value is negative").build();
              failures.addErrors(PointError.newBuilder().setFirst(index).setCount(1).setError(error));
            } else {
              ack.setWritten(ack.getWritten() + 1);
              int number = block.getSeries(block.getSeriesCount() == 1 ? 0 : at);
              stored.add(name(series.get(number)) + " " + timestamp + " " + value);
            }
          }
        }
        if (failures.getErrorsCount() > 0) {
          ack.addFailures(FrameFailures.newBuilder().setSequence(sequence).setFailures(failures));
        }
        return ack.build();
      }

      private String name(Columns.SeriesDeclaration declaration) {
        return symbols.get(declaration.getMetricSymbol());
      }

      @Override
      public void onError(Throwable error) {}

      @Override
      public void onCompleted() {
        responses.onCompleted();
      }
    };
  }

  private static Opened limits() {
    return Opened.newBuilder()
        .setWindowFrames(16)
        .setWindowPoints(1000)
        .setMaxFramePoints(1000)
        .setMaxSeries(1000)
        .setMaxSymbolBytes(1 << 20)
        .setMaxMessageBytes(1 << 24)
        .build();
  }
}
