import { describe, expect, it } from "vitest";
import type { Queue, Sluice } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { openSluice, startOwnRedis, startProxy } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** So long that none ends during the test. */
const LOCK_MS = 3_600_000;

function openQueue(sluice: Sluice): Queue<string> {
  return sluice.queue<string>("jobs", { bucket: sluice.bucket("b", { rate: "1000/s" }) });
}

describe("a fetched job whose reply was lost with the connection", () => {
  it.each([
    ["without a key", undefined],
    ["with a key", "acme"],
  ])("is done long before its lock expires, %s", async (_name, key) => {
    const redis = await startOwnRedis();
    const proxy = await startProxy(redis);
    const producer = openQueue(openSluice({ redis: redis.url }));
    const behind = openSluice({ redis: `redis://127.0.0.1:${proxy.port}` });
    const [begun, ended] = [deferred(), deferred()];
    const handled: string[] = [];
    await producer.enqueueMany(["first", "second", "third"], { key });
    behind.worker(
      openQueue(behind),
      async ({ data }) => {
        handled.push(data);
        begun.resolve();
        if (data === "first") await ended.promise;
      },
      { concurrency: 1, lockMs: LOCK_MS },
    );
    await begun.promise;

    // The end of the first job fetches the second.
    proxy.set("lose replies");
    ended.resolve();
    await waitUntil(async () => (await producer.counts()).done === 1, "the first is done");
    proxy.set("pass");
    proxy.cut();
    await waitUntil(async () => (await producer.counts()).done === 3, "all are done");

    expect(handled.toSorted()).toEqual(["first", "second", "third"]);
    expect((await producer.counts()).failed).toBe(0);
  });
});
