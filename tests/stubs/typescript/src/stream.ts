// A write stream: frames go into a queue, responses are read one by one.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { WriteStreamRequestSchema, WriteStreamResponse } from "../gen/oxtsdb/data/v1/data_service_pb.js";
import type { ColumnsSchema } from "../gen/oxtsdb/data/v1/point_pb.js";
import type { Data } from "./support.js";
import { MILLISECONDS } from "./writes.js";

type Request = MessageInitShape<typeof WriteStreamRequestSchema>;

export class Stream {
  /** Sequence number of the last frame sent. */
  sequence = 0n;
  private queue: Request[] = [];
  private isClosed = false;
  private wake = () => {};
  private responses: AsyncIterator<WriteStreamResponse>;

  constructor(data: Data) {
    const open = { clientName: "check in TypeScript", options: MILLISECONDS };
    this.request({ message: { case: "open", value: open } });
    this.responses = data.writeStream(this.requests())[Symbol.asyncIterator]();
  }

  private async *requests(): AsyncGenerator<Request> {
    for (;;) {
      const request = this.queue.shift();
      if (request) {
        yield request;
      } else if (this.isClosed) {
        return;
      } else {
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    }
  }

  private request(request: Request): void {
    this.queue.push(request);
    this.wake();
  }

  send(columns: MessageInitShape<typeof ColumnsSchema>): void {
    this.sequence++;
    this.request({ message: { case: "frame", value: { sequence: this.sequence, columns } } });
  }

  /** The next response; undefined when the stream has ended with OK. */
  async read(): Promise<WriteStreamResponse["message"] | undefined> {
    const { value, done } = await this.responses.next();
    return done ? undefined : value.message;
  }

  /** The next response, which is an ack. */
  async ack() {
    const message = await this.read();
    if (message?.case !== "ack") {
      throw new Error(`expected an ack, got ${message?.case}`);
    }
    return message.value;
  }

  /** Closes our side. */
  close(): void {
    this.isClosed = true;
    this.wake();
  }
}
