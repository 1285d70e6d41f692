import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { createSluice, type Bucket, type Queue, type Sluice } from "sluice";
import { freePort } from "../../support/redis/redis-port.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";

/** A Redis that is no use, and what ends it. */
interface Useless {
  readonly port: number;
  close(): Promise<void>;
}

/** Nobody listens. */
async function dead(): Promise<Useless> {
  return { port: await freePort("127.0.0.1"), close: async () => undefined };
}

/** Takes connections and commands, and never answers. */
async function silent(): Promise<Useless> {
  const server = createServer((socket) => socket.on("error", () => undefined).resume());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const proxy = await startTcpProxy((server.address() as AddressInfo).port);
  proxy.set("stall");
  return {
    port: proxy.port,
    async close() {
      await proxy.close();
      server.close();
      await once(server, "close");
    },
  };
}

/** Takes connections, says that there are too many, and ends them. */
async function refusing(): Promise<Useless> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined).resume();
    socket.end("-ERR max number of clients reached\r\n");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close();
      await once(server, "close");
    },
  };
}

const UNAVAILABLE = "StoreUnavailableError";

/** Every call of a bucket that asks Redis, and what it comes to while Redis is away. */
const bucketCalls: [string, string | undefined, (bucket: Bucket) => unknown][] = [
  ["draw", UNAVAILABLE, (bucket) => bucket.draw()],
  ["draw with maxWaitMs", "WaitTooLongError", (bucket) => bucket.draw({ maxWaitMs: 20 })],
  ["draw with a signal", "TimeoutError", (b) => b.draw({ signal: AbortSignal.timeout(20) })],
  ["tryDraw", UNAVAILABLE, (bucket) => bucket.tryDraw()],
  ["throttled", UNAVAILABLE, (bucket) => bucket.throttled(() => 1)()],
  ["fetch", UNAVAILABLE, (bucket) => bucket.fetch("http://127.0.0.1:1/")],
  ["configure", UNAVAILABLE, (bucket) => bucket.configure({ rate: "1/s" })],
  ["configure back", UNAVAILABLE, (bucket) => bucket.configure("code")],
  ["pause", UNAVAILABLE, (bucket) => bucket.pause()],
  ["resume", UNAVAILABLE, (bucket) => bucket.resume()],
  ["peek", UNAVAILABLE, (bucket) => bucket.peek()],
];

const openCalls: typeof bucketCalls = [
  ["draw", undefined, (bucket) => bucket.draw()],
  ["tryDraw", undefined, (bucket) => bucket.tryDraw()],
  ["throttled", undefined, (bucket) => bucket.throttled(() => 1)()],
  ["peek", UNAVAILABLE, (bucket) => bucket.peek()],
];

const waitCalls: typeof bucketCalls = [
  ["draw with maxWaitMs", "WaitTooLongError", (bucket) => bucket.draw({ maxWaitMs: 700 })],
  ["draw with a signal", "TimeoutError", (b) => b.draw({ signal: AbortSignal.timeout(700) })],
];

const queueCalls: [string, (queue: Queue<number>) => unknown][] = [
  ["enqueue", (queue) => queue.enqueue(1)],
  ["enqueueMany", (queue) => queue.enqueueMany([1, 2])],
  ["counts", (queue) => queue.counts()],
  ["job", (queue) => queue.job("1")],
  ["pause", (queue) => queue.pause()],
  ["failed", (queue) => queue.failed()],
  ["replay", (queue) => queue.replay({})],
  ["forecast", (queue) => queue.forecast()],
];

/** The name of what a call rejects with; undefined if it fulfils. That it comes to anything is what is tested. */
async function outcomeOf(call: () => unknown): Promise<string | undefined> {
  try {
    await call();
    return undefined;
  } catch (error) {
    return (error as Error).name;
  }
}

describe.each([
  ["dead", dead],
  ["silent", silent],
  ["refusing", refusing],
])("while Redis is %s, this ends in time:", (_how, start) => {
  async function withSluice(use: (sluice: Sluice) => Promise<void>): Promise<void> {
    const useless = await start();
    const logger = { warn: () => {}, error: () => {} };
    const redis = `redis://127.0.0.1:${useless.port}`;
    const sluice = createSluice({ redis, storeTimeoutMs: 150, logger });
    try {
      await use(sluice);
    } finally {
      await sluice.close();
      await useless.close();
    }
  }

  it.each([
    ["refuse", bucketCalls],
    ["open", openCalls],
    ["wait", waitCalls],
  ] as const)("each call of a bucket with the mode %s", async (onStoreDown, calls) => {
    // A sluice for each: what one call learns, the next would profit from.
    const outcomes = calls.map(([name, , call]) =>
      withSluice(async (sluice) => {
        const bucket = sluice.bucket("b", { rate: "10/s", onStoreDown });
        found.set(name, await outcomeOf(() => call(bucket)));
      }),
    );
    const found = new Map<string, string | undefined>();
    await Promise.all(outcomes);

    const expected = new Map(calls.map(([name, outcome]) => [name, outcome] as const));
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(expected));
  });

  it("each call of a queue, and the close of a worker", async () => {
    await withSluice(async (sluice) => {
      const bucket = sluice.bucket("b", { rate: "10/s" });
      const queue = sluice.queue<number>("jobs", { bucket });
      const worker = sluice.worker(queue, async () => {});

      const outcomes = await Promise.all(
        queueCalls.map(async ([name, call]) => [name, await outcomeOf(() => call(queue))]),
      );
      await worker.close({ deadlineMs: 10 });

      expect(outcomes).toEqual(queueCalls.map(([name]) => [name, UNAVAILABLE]));
    });
  });

  it("the close of a sluice with pending calls", async () => {
    let waiting: Promise<string | undefined>[] = [];
    await withSluice(async (sluice) => {
      const bucket = sluice.bucket("b", { rate: "10/s", onStoreDown: "wait" });
      waiting = [outcomeOf(() => bucket.draw()), outcomeOf(() => bucket.tryDraw())];
    });

    expect(await Promise.all(waiting)).toEqual(["ClosedError", "ClosedError"]);
  });
});
