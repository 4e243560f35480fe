// Calls of connect-es over gRPC.
import type { DescService } from "@bufbuild/protobuf";
import { ConnectError, type Transport, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { Calls, Failure } from "./calls.js";
import { retry } from "./retry.js";

export function connect(address: string, serviceConfig: string): Transport {
  return createGrpcTransport({ baseUrl: `http://${address}`, interceptors: [retry(serviceConfig)] });
}

export function calls<S extends DescService>(service: S, transport: Transport): Calls<S> {
  return createClient(service, transport) as unknown as Calls<S>;
}

/** A failed call, if `error` is one. */
export function failure(error: unknown): Failure {
  const failed = ConnectError.from(error);
  return { code: failed.code, details: (schema) => failed.findDetails(schema) };
}
