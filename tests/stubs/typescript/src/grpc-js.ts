// Calls of a @grpc/grpc-js client with the stubs of protoc-gen-es.
import {
  type DescMethod,
  type DescService,
  type Message,
  create,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";
import { StatusSchema } from "../gen/google/rpc/error_details_pb.js";
import type { Calls, Failure } from "./calls.js";

export function connect(address: string, serviceConfig: string): grpc.Client {
  return new grpc.Client(address, grpc.credentials.createInsecure(), { "grpc.service_config": serviceConfig });
}

/** The calls of a service over a client. */
export function calls<S extends DescService>(service: S, client: grpc.Client): Calls<S> {
  return Object.fromEntries(service.methods.map((method) => [method.localName, call(client, method)])) as Calls<S>;
}

function call(client: grpc.Client, method: DescMethod) {
  const path = `/${method.parent.typeName}/${method.name}`;
  const serialize = (message: Message) => Buffer.from(toBinary(method.input, create(method.input, message)));
  const deserialize = (bytes: Buffer) => fromBinary(method.output, bytes);
  switch (method.methodKind) {
    case "unary":
      return (request: Message) =>
        new Promise((resolve, reject) => {
          client.makeUnaryRequest(path, serialize, deserialize, request, (error, response) =>
            error ? reject(error) : resolve(response),
          );
        });
    case "server_streaming":
      return (request: Message) => client.makeServerStreamRequest(path, serialize, deserialize, request);
    default:
      return (requests: AsyncIterable<Message>) => {
        const stream = client.makeBidiStreamRequest(path, serialize, deserialize);
        void send(requests, stream);
        return stream;
      };
  }
}

async function send(requests: AsyncIterable<Message>, stream: grpc.ClientDuplexStream<Message, Message>) {
  for await (const request of requests) {
    // False: the buffer is full. A stream that has failed says so to its reader.
    if (!stream.write(request) && !stream.destroyed) {
      await new Promise((resolve) => stream.once("drain", resolve).once("close", resolve));
    }
  }
  stream.end();
}

/** A failed call, if `error` is one. */
export function failure(error: unknown): Failure {
  const { code, metadata } = error as grpc.ServiceError;
  const [bytes] = metadata.get("grpc-status-details-bin") as Buffer[];
  const details = bytes ? fromBinary(StatusSchema, bytes).details : [];
  return { code, details: (schema) => details.flatMap((detail) => anyUnpack(detail, schema) ?? []) };
}
