// Writes in every form.
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ErrorReason } from "../gen/oxtsdb/common/v1/common_pb.js";
import { type ColumnsSchema, TimeUnit } from "../gen/oxtsdb/data/v1/point_pb.js";
import { Stream } from "./stream.js";
import { type Client, type Data, START_MS, check, seriesName } from "./support.js";

export const MILLISECONDS = { timeUnit: TimeUnit.MILLISECONDS };

const range = (first: number, count: number) => Array.from({ length: count }, (_, number) => first + number);

export function timestamps(first: number, count: number): bigint[] {
  return range(first, count).map((second) => BigInt(START_MS + second * 1000));
}

export function timeSeries(metric: string, host: string, count: number) {
  return {
    series: { case: "name" as const, value: seriesName(metric, host) },
    timestamps: timestamps(0, count),
  };
}

export async function write(client: Client, data: Data): Promise<void> {
  const metric = `${client.name}.metric`;
  const result = await data.write({
    series: [
      { ...timeSeries(metric, "a", 10), intValues: range(0, 10).map(BigInt) },
      { ...timeSeries(metric, "b", 10), values: range(0, 10).map((second) => second + 0.5) },
      { ...timeSeries("not a name", "a", 1), intValues: [1n] },
    ],
    options: MILLISECONDS,
  });
  check("points written", result.written, 20n);
  check("points failed", result.failed, 1n);
  check("failed for good", result.failures?.permanent?.first, [20n]);
  check("one point", result.failures?.permanent?.count, [1n]);
  check("nothing to retry", result.failures?.retryable?.first ?? [], []);
  check("the failed point", result.failures?.errors[0].first, 20n);
  check("why", result.failures?.errors[0].error?.reason, ErrorReason.INVALID_NAME);
}

/** Points of one series, which the first message of a table declares. */
export function columns(metric: string, first: number, count: number, isFirst: boolean) {
  const block = {
    series: [0],
    timestamps: timestamps(first, count),
    intValues: range(first, count).map(BigInt),
  };
  return {
    newSymbols: isFirst ? [metric, "host", "a"] : [],
    newSeries: isFirst ? [{ metricSymbol: 0, tagSymbols: [1, 2] }] : [],
    blocks: [block],
  };
}

/** The same with an encoding of timestamps. */
export function withDeltas(
  message: ReturnType<typeof columns>,
  deltas: bigint[],
): MessageInitShape<typeof ColumnsSchema> {
  const [{ timestamps, ...block }] = message.blocks;
  const deltaTimestamps = { first: timestamps[0], deltas, last: timestamps[timestamps.length - 1] };
  return { ...message, blocks: [{ ...block, deltaTimestamps }] };
}

export async function writeColumns(client: Client, data: Data): Promise<void> {
  const deltas = Array<bigint>(999).fill(1000n);
  for (const message of [
    columns(`${client.name}.columns`, 0, 1000, true),
    withDeltas(columns(`${client.name}.deltas`, 0, 1000, true), deltas),
  ]) {
    const result = await data.writeColumns({ columns: message, options: MILLISECONDS });
    check("points written in columns", result.written, 1000n);
    check("points failed in columns", result.failed, 0n);
  }
}

export async function writeStream(client: Client, data: Data): Promise<void> {
  const stream = new Stream(data);
  const opened = await stream.read();
  const limits = opened?.case === "opened" ? opened.value : undefined;
  check("windows", Number(limits?.windowFrames) > 0 && Number(limits?.windowPoints) > 0, true);
  check("limit of points", Number(limits?.maxFramePoints) > 0, true);
  check("limits of declarations", Number(limits?.maxSeries) > 0 && Number(limits?.maxSymbolBytes) > 0, true);
  check("limit of bytes", Number(limits?.maxMessageBytes) > 0, true);
  for (let frame = 0; frame < 10; frame++) {
    stream.send(columns(`${client.name}.stream`, frame * 100, 100, frame === 0));
  }
  let sequence = 0n;
  let written = 0n;
  while (sequence < 10n) {
    const ack = await stream.ack();
    check("acks are in order", ack.sequence > sequence, true);
    sequence = ack.sequence;
    written += ack.written;
  }
  check("points written on the stream", written, 1000n);
  stream.close();
  check("a closed stream ends with OK", await stream.read(), undefined);
}
