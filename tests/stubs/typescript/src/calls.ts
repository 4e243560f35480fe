// Typed calls of a service, as the client of connect-es has them too.
import type {
  DescMessage,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";

type Call<M> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageInitShape<I>) => Promise<MessageShape<O>>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>) => AsyncIterable<MessageShape<O>>
      : M extends DescMethodBiDiStreaming<infer I, infer O>
        ? (requests: AsyncIterable<MessageInitShape<I>>) => AsyncIterable<MessageShape<O>>
        : never;

/** The calls of a service, under the names of its methods in lower camel case. */
export type Calls<S extends DescService> = { [M in keyof S["method"]]: Call<S["method"][M]> };

/** A failed call: its gRPC code, and the details of a type. */
export interface Failure {
  code: number;
  details<D extends DescMessage>(schema: D): MessageShape<D>[];
}
