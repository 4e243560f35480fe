package dev.oxtsdb.stubs;

import static dev.oxtsdb.stubs.Writes.MILLISECONDS;

import dev.oxtsdb.proto.data.v1.Columns;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingV2Stub;
import dev.oxtsdb.proto.data.v1.WriteStreamRequest;
import dev.oxtsdb.proto.data.v1.WriteStreamResponse;
import io.grpc.stub.BlockingClientCall;

/** A write stream; frames get their sequence numbers here. */
final class Stream {
  private final BlockingClientCall<WriteStreamRequest, WriteStreamResponse> call;
  private WriteStreamResponse.Opened opened;
  private long sequence;

  private Stream(BlockingClientCall<WriteStreamRequest, WriteStreamResponse> call) {
    this.call = call;
  }

  static Stream open(DataServiceBlockingV2Stub stub) throws Exception {
    Stream stream = new Stream(stub.writeStream());
    WriteStreamRequest.Open open =
        WriteStreamRequest.Open.newBuilder().setClientName("check in Java").setOptions(MILLISECONDS).build();
    stream.call.write(WriteStreamRequest.newBuilder().setOpen(open).build());
    stream.opened = stream.read().getOpened();
    return stream;
  }

  WriteStreamResponse.Opened opened() {
    return opened;
  }

  /** Sequence number of the last frame sent. */
  long sequence() {
    return sequence;
  }

  void send(Columns columns) throws Exception {
    sequence++;
    WriteStreamRequest.Frame frame =
        WriteStreamRequest.Frame.newBuilder().setSequence(sequence).setColumns(columns).build();
    call.write(WriteStreamRequest.newBuilder().setFrame(frame).build());
  }

  /** The next response; null when the stream has ended with OK. */
  WriteStreamResponse read() throws Exception {
    return call.read();
  }

  /** Closes our side. */
  void close() {
    call.halfClose();
  }
}
