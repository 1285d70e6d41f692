import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { Redis } from "ioredis";
import { StoreUnavailableError, createSluice, type Slot, type Sluice } from "sluice";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf, timesOf } from "../../support/draws/steady-draws.ts";
import { startTcpProxy, type TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { hearCommands } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
let redis: LocalRedis;
let proxy: TcpProxy;
let sluice: Sluice;
beforeEach(async () => {
  redis = await startRedis({ fresh: true });
  proxy = await startTcpProxy(Number(new URL(redis.url).port));
  sluice = createSluice({ redis: `redis://127.0.0.1:${proxy.port}`, storeTimeoutMs: 30_000 });
});
afterEach(async () => {
  await sluice.close();
  await proxy.close();
  await redis.stop();
});

/** That many calls of a bucket. */
function callAll(count: number): Promise<Slot[]> {
  const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
  return Promise.all(Array.from({ length: count }, () => bucket.draw()));
}

/** The smallest gap between two slots, in ms. */
function smallestGapMs(slots: readonly Slot[]): number {
  const atMs = slots.map((slot) => slot.atMs).sort((a, b) => a - b);
  return Math.min(...atMs.slice(1).map((at, index) => at - atMs[index]!));
}

describe("a reply that is lost on the wire", () => {
  it("lets every call start in the end, each on a separate slot", async () => {
    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    await bucket.draw();
    const calls = callAll(60);
    proxy.set("lose replies");
    await waitUntil(() => proxy.kept > 0, "a reply is lost");

    proxy.set("pass");
    proxy.cut();
    const slots = await calls;

    reportFigures("a reply is lost on the wire", figuresOf(timesOf(slots), RATE));
    expect(smallestGapMs(slots)).toBeGreaterThanOrEqual(4.99);
  });

  it("fails its callers in time, and the request is not repeated", async () => {
    const hasty = createSluice({ redis: `redis://127.0.0.1:${proxy.port}`, storeTimeoutMs: 1_000 });
    const bucket = hasty.bucket("b", { rate: `${RATE}/s` });
    await bucket.draw();
    const scriptsRun = await watchScripts();
    proxy.set("lose replies");
    const reason = await rejectionOf(bucket.draw());

    proxy.set("pass");
    proxy.cut();
    // A look goes over the new connection; a draw might be held up here, and then rightly draws once more.
    await bucket.peek();
    const scripts = await scriptsRun();
    await bucket.draw();

    expect(reason).toBeInstanceOf(StoreUnavailableError);
    // The draw whose reply was lost, and the look.
    expect(scripts).toBe(2);
    await hasty.close();
  });
});

/** Counts the scripts that the server is asked to run of a bucket; what a process tells of itself is none. */
async function watchScripts(): Promise<() => Promise<number>> {
  const client = new Redis(redis.url);
  onTestFinished(() => client.disconnect());
  let count = 0;
  let seen = "";
  await hearCommands(redis.url, ({ args: [command, ...args] }) => {
    if (command === "evalsha" && args[2]?.includes("{b}") === true) count += 1;
    if (command === "echo") seen = args[0]!;
  });
  return async () => {
    const mark = randomUUID();
    await client.echo(mark);
    await waitUntil(() => seen === mark, "all commands are seen");
    return count;
  };
}

describe("a connection that breaks repeatedly", () => {
  it("delays calls, loses none, and gives no slot to two calls", async () => {
    const calls = callAll(150);
    let isDone = false;
    void calls.then(() => (isDone = true));

    const bucket = sluice.bucket("b", { rate: `${RATE}/s` });
    let lastWaiting = bucket.waiting;
    await waitUntil(() => {
      const isMoving = bucket.waiting < lastWaiting - 20;
      if (isMoving) {
        lastWaiting = bucket.waiting;
        proxy.cut();
      }
      return isDone;
    }, "all calls have left");

    const slots = await calls;
    reportFigures("a connection is cut again and again", figuresOf(timesOf(slots), RATE));
    expect(smallestGapMs(slots)).toBeGreaterThanOrEqual(4.99);
  });
});
