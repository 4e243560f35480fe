// The service config is in effect: a call that fails with UNAVAILABLE once is retried.
import * as grpc from "@grpc/grpc-js";
import type { UidService } from "../gen/oxtsdb/uid/v1/uid_service_pb.js";
import type { Calls } from "./calls.js";
import { UNAVAILABLE, check } from "./support.js";

export async function retries(connect: (address: string) => Calls<typeof UidService>): Promise<void> {
  let calls = 0;
  const server = new grpc.Server();
  // Empty messages are no bytes.
  const empty = () => Buffer.alloc(0);
  const method = {
    path: "/oxtsdb.uid.v1.UidService/GetUidLayout",
    requestStream: false,
    responseStream: false,
    requestSerialize: empty,
    requestDeserialize: empty,
    responseSerialize: empty,
    responseDeserialize: empty,
  };
  server.addService(
    { getUidLayout: method },
    {
      getUidLayout: (_: unknown, respond: grpc.sendUnaryData<Buffer>) =>
        ++calls === 1 ? respond({ code: UNAVAILABLE, details: "the first call" }) : respond(null, empty()),
    },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, port) =>
      error ? reject(error) : resolve(port),
    ),
  );
  await connect(`127.0.0.1:${port}`).getUidLayout({});
  check("calls until one succeeds", calls, 2);
  server.forceShutdown();
}
