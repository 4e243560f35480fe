// Queries, last points and the details of errors.
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ErrorReason } from "../gen/oxtsdb/common/v1/common_pb.js";
import {
  AggregateFunction,
  type QueryRequestSchema,
  type QueryResponse_Points,
  TagFilter_FilterType,
} from "../gen/oxtsdb/data/v1/query_pb.js";
import {
  type Client,
  type Data,
  HOUR_MS,
  INVALID_ARGUMENT,
  NOT_FOUND,
  START_MS,
  check,
  rejected,
  seriesName,
} from "./support.js";
import { MILLISECONDS } from "./writes.js";

type Request = MessageInitShape<typeof QueryRequestSchema>;
/** Points by second, under the group's tag host ("" if its series differ in it). */
type Groups = Record<string, Record<number, number>>;

/** A query of the hour of all points for one metric. */
function queryOf(metric: string, aggregate?: AggregateFunction, groupByHost = false): Request {
  const byHost = { key: "host", type: TagFilter_FilterType.WILDCARD, pattern: "*", groupBy: true };
  return {
    range: {
      start: { case: "startMs", value: BigInt(START_MS) },
      end: { case: "endMs", value: BigInt(START_MS + HOUR_MS) },
    },
    queries: [
      {
        source: { case: "metric", value: { metric, filters: groupByHost ? [byHost] : [] } },
        aggregator: aggregate ? { kind: { case: "function", value: aggregate } } : undefined,
      },
    ],
  };
}

function timestamps(points: QueryResponse_Points): bigint[] {
  if (!points.deltaTimestamps) {
    return points.timestampsMs;
  }
  const instants = [points.deltaTimestamps.first];
  for (const delta of points.deltaTimestamps.deltas) {
    instants.push(instants[instants.length - 1] + delta);
  }
  check("the encoding adds up", instants[instants.length - 1], points.deltaTimestamps.last);
  return instants;
}

async function query(data: Data, request: Request): Promise<Groups> {
  const groups = new Map<number, Record<number, number>>();
  const result: Groups = {};
  let isComplete = false;
  for await (const { frame } of data.query(request)) {
    check("the statistics are the last frame", isComplete, false);
    if (frame.case === "series") {
      groups.set(frame.value.series, (result[frame.value.tags["host"] ?? ""] = {}));
    } else if (frame.case === "points") {
      const { series, values, intValues } = frame.value;
      timestamps(frame.value).forEach((instant, number) => {
        const value = intValues.length > 0 ? Number(intValues[number]) : values[number];
        groups.get(series)![(Number(instant) - START_MS) / 1000] = value;
      });
    } else if (frame.case === "statistics") {
      isComplete = true;
    }
  }
  check("the result is complete", isComplete, true);
  return result;
}

function points(first: number, count: number, value: (second: number) => number): Record<number, number> {
  return Object.fromEntries(Array.from({ length: count }, (_, number) => [first + number, value(first + number)]));
}

export async function queries(client: Client, data: Data): Promise<void> {
  const { NONE, SUM } = AggregateFunction;
  const same = (second: number) => second;
  for (const form of ["columns", "deltas", "stream"]) {
    check(form, await query(data, queryOf(`${client.name}.${form}`, NONE)), { a: points(0, 1000, same) });
  }
  const declared = await query(data, queryOf(`${client.name}.declared`, NONE));
  check("the point before the mistake", declared, { a: points(7, 1, same) });
  const metric = `${client.name}.metric`;
  check("a group for each host", await query(data, queryOf(metric, SUM, true)), {
    a: points(0, 10, same),
    b: points(0, 10, (second) => second + 0.5),
  });
  const both = { "": points(0, 10, (second) => 2 * second + 0.5) };
  check("the sum over hosts", await query(data, queryOf(metric, SUM)), both);
  const encoded = { ...queryOf(metric, SUM), deltaTimestamps: true };
  check("with delta timestamps", await query(data, encoded), both);
}

export async function lastPoints(client: Client, data: Data): Promise<void> {
  const last: Record<string, number> = {};
  const failed: [number, ErrorReason | undefined][] = [];
  const request = {
    targets: [
      { target: { case: "metric" as const, value: { metric: `${client.name}.metric` } } },
      {
        target: {
          case: "series" as const,
          value: { key: { case: "name" as const, value: seriesName("no.such.metric", "a") } },
        },
      },
    ],
    lookBack: { seconds: 6n * 3600n },
    includeNames: true,
  };
  for await (const response of data.queryLast(request)) {
    for (const point of response.points) {
      check("timestamp of a last point", point.timestampMs, BigInt(START_MS + 9000));
      last[point.name!.tags[0].value] = Number(point.value.value);
    }
    for (const { target, error } of response.errors) {
      failed.push([target, error?.reason]);
    }
  }
  check("last points", last, { a: 9, b: 9.5 });
  check("the target that failed", failed, [[1, ErrorReason.NAME_NOT_FOUND]]);
}

export async function errors(client: Client, data: Data): Promise<void> {
  const unknown = queryOf("no.such.metric", AggregateFunction.SUM);
  let details = await rejected(client, "an unknown metric", NOT_FOUND, "NAME_NOT_FOUND", () => query(data, unknown));
  check("its metadata", { ...details.info?.metadata }, { kind: "UID_KIND_METRIC", name: "no.such.metric" });
  const incomplete = queryOf(`${client.name}.metric`);
  details = await rejected(client, "no aggregator", INVALID_ARGUMENT, "INVALID_FIELD", () => query(data, incomplete));
  check("the field is named", details.badRequest?.fieldViolations[0].field.includes("aggregator"), true);
  await rejected(client, "no points", INVALID_ARGUMENT, "BATCH_TOO_LARGE", () =>
    data.write({ options: MILLISECONDS }),
  );
}
