// Checks the contract with the stubs of protoc-gen-es; tests/stubs/README.md lists the checks.
//
//   node check.js connect-es|grpc-js DATA_ADDRESS UID_ADDRESS SECOND_DATA_ADDRESS FIRST_SERVER_PID SERVICE_CONFIG
//
// Exits with 1 at the first result that is not as the contract says.
import { readFileSync } from "node:fs";
import { ErrorReason, UidKind } from "../gen/oxtsdb/common/v1/common_pb.js";
import { DataService } from "../gen/oxtsdb/data/v1/data_service_pb.js";
import { UidService } from "../gen/oxtsdb/uid/v1/uid_service_pb.js";
import type { Calls } from "./calls.js";
import * as connectEs from "./connect-es.js";
import { drain } from "./drain.js";
import * as grpcJs from "./grpc-js.js";
import { mistakes } from "./mistakes.js";
import { errors, lastPoints, queries } from "./reads.js";
import { retries } from "./retries.js";
import { type Client, NOT_FOUND, check, passedChecks } from "./support.js";
import { write, writeColumns, writeStream } from "./writes.js";

async function names(client: Client, uids: Calls<typeof UidService>): Promise<void> {
  const names = [
    { kind: UidKind.METRIC, name: `${client.name}.metric` },
    { kind: UidKind.TAG_KEY, name: "host" },
    { kind: UidKind.TAG_VALUE, name: "pümpernickel" },
  ];
  const assigned = (await uids.getOrCreateUids({ names })).results;
  const again = (await uids.getOrCreateUids({ names })).results;
  const values = names.map(({ kind }, number) => {
    const { outcome, created } = assigned[number];
    const uid = outcome.case === "uid" ? outcome.value : new Uint8Array();
    check("a new name is created", created, true);
    check("the first UID", [...uid], [0, 0, 1]);
    check("a known name is not created", again[number].created, false);
    return { kind, uid };
  });
  const found = (await uids.lookupNames({ uids: values })).results;
  check("names of the UIDs", found.map(({ outcome }) => outcome.value), names.map(({ name }) => name));
  const unknown = { kind: UidKind.METRIC, name: "unknown" };
  const looked = (await uids.lookupUids({ names: [names[0], unknown] })).results;
  check("a known name", looked[0].outcome.case, "uid");
  const { outcome } = looked[1];
  const error = outcome.case === "error" ? outcome.value : undefined;
  check("an unknown name", error?.reason, ErrorReason.NAME_NOT_FOUND);
  check("its code", error?.code, NOT_FOUND);
}

const [name, dataAddress, uidAddress, secondAddress, firstServer, serviceConfigFile] = process.argv.slice(2);
const serviceConfig = readFileSync(serviceConfigFile, "utf8");

function data(address: string): Calls<typeof DataService> {
  return name === "grpc-js"
    ? grpcJs.calls(DataService, grpcJs.connect(address, serviceConfig))
    : connectEs.calls(DataService, connectEs.connect(address, serviceConfig));
}

function uids(address: string): Calls<typeof UidService> {
  return name === "grpc-js"
    ? grpcJs.calls(UidService, grpcJs.connect(address, serviceConfig))
    : connectEs.calls(UidService, connectEs.connect(address, serviceConfig));
}

const client = { name, failure: name === "grpc-js" ? grpcJs.failure : connectEs.failure };
await names(client, uids(uidAddress));
const first = data(dataAddress);
await write(client, first);
await writeColumns(client, first);
await writeStream(client, first);
await mistakes(client, first);
await queries(client, first);
await lastPoints(client, first);
await errors(client, first);
await retries(uids);
await drain(client, first, data(secondAddress), Number(firstServer));
console.log(`stubs in TypeScript (${name}): ${passedChecks()} checks passed`);
// Channels are left open.
process.exit(0);
