// A drain between frames: what the first server did not acknowledge goes to the second.
import { Stream } from "./stream.js";
import { type Client, type Data, UNAVAILABLE, check, rejected } from "./support.js";
import { columns } from "./writes.js";

const FRAMES = 20;

export async function drain(client: Client, first: Data, second: Data, firstServer: number): Promise<void> {
  const frame = (number: number, isFirst: boolean) =>
    columns(`${client.name}.drain`, number * 100, 100, isFirst);
  const stream = new Stream(first);
  const idle = new Stream(first);
  await Promise.all([stream.read(), idle.read()]);
  for (let number = 0; number < 10; number++) {
    stream.send(frame(number, number === 0));
  }
  let acked = (await stream.ack()).sequence;
  process.kill(firstServer, "SIGTERM");
  let isDraining = false;
  while (!isDraining || acked < stream.sequence) {
    const response = await stream.read();
    if (response?.case === "draining") {
      isDraining = true;
      check("it waits", response.value.grace !== undefined, true);
    } else if (response?.case === "ack") {
      acked = response.value.sequence;
    } else {
      throw new Error(`expected draining or an ack, got ${response?.case}`);
    }
  }
  stream.close();
  check("a closed stream ends with OK", await stream.read(), undefined);

  const what = "a stream that is not closed";
  const details = await rejected(client, what, UNAVAILABLE, "DRAINING", async () => {
    while (await idle.read());
  });
  check("when to retry", details.retry?.retryDelay !== undefined, true);
  idle.close();

  const resent = new Stream(second);
  await resent.read();
  for (let number = Number(acked); number < FRAMES; number++) {
    resent.send(frame(number, number === Number(acked)));
  }
  resent.close();
  let written = 0n;
  for (let response = await resent.read(); response; response = await resent.read()) {
    written += response.case === "ack" ? response.value.written : 0n;
  }
  check("points written to the second server", written, BigInt(FRAMES - Number(acked)) * 100n);
}
