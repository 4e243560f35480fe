// The four mistakes, none of which stores a point.
import { ErrorReason } from "../gen/oxtsdb/common/v1/common_pb.js";
import type { WriteColumnsResponse, WriteResponse } from "../gen/oxtsdb/data/v1/data_service_pb.js";
import { Stream } from "./stream.js";
import { type Client, type Data, INVALID_ARGUMENT, START_MS, check, rejected } from "./support.js";
import { MILLISECONDS, columns, timeSeries, timestamps, withDeltas } from "./writes.js";

export async function mistakes(client: Client, data: Data): Promise<void> {
  await repeatedDeclaration(client, data);
  const metric = `${client.name}.mistake`;
  for (const [what, deltas] of [
    ["offsets as deltas", [1000n, 2000n, 3000n]],
    ["absolute timestamps as deltas", timestamps(1, 3)],
  ] as const) {
    const message = withDeltas(columns(metric, 0, 4, true), [...deltas]);
    const result = await data.writeColumns({ columns: message, options: MILLISECONDS });
    notStored(what, result, 4n, ErrorReason.INVALID_TIMESTAMP);
  }
  const seconds = BigInt(START_MS / 1000);
  const series = [{ ...timeSeries(metric, "a", 0), timestamps: [seconds, seconds + 1n], values: [1, 2] }];
  const result = await data.write({ series, options: MILLISECONDS });
  notStored("seconds as milliseconds", result, 2n, ErrorReason.IMPLAUSIBLE_TIMESTAMP);
  await rejected(client, "no unit", INVALID_ARGUMENT, "INVALID_FIELD", () => data.write({ series }));
}

async function repeatedDeclaration(client: Client, data: Data): Promise<void> {
  const stream = new Stream(data);
  await stream.read();
  stream.send(columns(`${client.name}.declared`, 7, 1, true));
  const ack = await stream.ack();
  check("the frame before the mistake", ack.sequence, 1n);
  check("its point", ack.written, 1n);
  stream.send(columns(`${client.name}.other`, 7, 1, true));
  const what = "symbols declared from 0 again";
  const details = await rejected(client, what, INVALID_ARGUMENT, "DECLARATION_OUT_OF_SEQUENCE", () => stream.read());
  check("the expected number", details.info?.metadata["expected"], "3");
  stream.close();
}

function notStored(what: string, result: WriteResponse | WriteColumnsResponse, count: bigint, reason: ErrorReason) {
  check(`${what}: nothing is stored`, result.written, 0n);
  check(`${what}: all points fail`, result.failed, count);
  check(`${what}: from the first`, result.failures?.permanent?.first, [0n]);
  check(`${what}: to the last`, result.failures?.permanent?.count, [count]);
  check(`${what}: why`, result.failures?.errors[0].error?.reason, reason);
}
