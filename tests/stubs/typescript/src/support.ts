// What all checks use: the count of checks, the names of series, statuses with their details.
import { isDeepStrictEqual } from "node:util";
import type { MessageShape } from "@bufbuild/protobuf";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../gen/google/rpc/error_details_pb.js";
import type { DataService } from "../gen/oxtsdb/data/v1/data_service_pb.js";
import type { Calls, Failure } from "./calls.js";

export type Data = Calls<typeof DataService>;

export const HOUR_MS = 3_600_000;
/** QueryLast looks back from the server's clock, so all points are recent; rows are hours. */
export const START_MS = (Math.floor(Date.now() / HOUR_MS) - 2) * HOUR_MS;

/** Codes of gRPC. */
export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const UNAVAILABLE = 14;

/** One of both clients: its name is that of the metrics. */
export interface Client {
  name: string;
  failure(error: unknown): Failure;
}

let checks = 0;

export function passedChecks(): number {
  return checks;
}

export function check(what: string, actual: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(actual, expected)) {
    const text = (value: unknown) => JSON.stringify(value, (_, part) => (typeof part === "bigint" ? `${part}n` : part));
    throw new Error(`${what}: expected ${text(expected)}, got ${text(actual)}`);
  }
  checks++;
}

export function seriesName(metric: string, host: string) {
  return { metric, tags: [{ key: "host", value: host }] };
}

export interface Details {
  info?: MessageShape<typeof ErrorInfoSchema>;
  badRequest?: MessageShape<typeof BadRequestSchema>;
  retry?: MessageShape<typeof RetryInfoSchema>;
}

/** The details of the error that a call ends with. */
export async function rejected(
  client: Client,
  what: string,
  code: number,
  reason: string,
  call: () => Promise<unknown>,
): Promise<Details> {
  try {
    await call();
  } catch (error) {
    const failure = client.failure(error);
    check(`${what}: code`, failure.code, code);
    const [info] = failure.details(ErrorInfoSchema);
    check(`${what}: domain`, info?.domain, "oxtsdb.dev");
    check(`${what}: reason`, info?.reason, reason);
    const [badRequest] = failure.details(BadRequestSchema);
    const [retry] = failure.details(RetryInfoSchema);
    return { info, badRequest, retry };
  }
  throw new Error(`${what}: not rejected`);
}
