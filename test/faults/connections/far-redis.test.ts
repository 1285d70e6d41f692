import { expect, it } from "vitest";
import { openSluice, startOwnRedis, startProxy } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const PLACES = 20;

it("a worker that is far from Redis starts each job as soon as it has fetched it", async () => {
  const redis = await startOwnRedis();
  const proxy = await startProxy(redis);
  const near = openSluice({ redis: redis.url });
  const far = openSluice({ redis: `redis://127.0.0.1:${proxy.port}` });
  const policy = { rate: "1000/s" };
  const queue = near.queue<number>("jobs", { bucket: near.bucket("b", policy) });
  await queue.enqueueMany(Array.from({ length: PLACES }, (_, number) => number));
  const fetched: number[] = [];
  proxy.set("delay");

  far.worker(
    far.queue<number>("jobs", { bucket: far.bucket("b", policy) }),
    async () => void fetched.push((await queue.counts()).active),
    { concurrency: PLACES },
  );
  await waitUntil(() => fetched.length === PLACES, "all are done");

  reportFigures("replies to a worker come 200 ms late, 20 places", {
    "jobs fetched when the first starts": fetched[0]!,
  });
  // Some come while the first waits for its slot; BullMQ by itself would have fetched them all by then.
  expect(fetched[0]).toBeLessThan(PLACES / 2);
});

it("a request waits for a reply that takes longer than a second, if storeTimeoutMs allows it", async () => {
  const proxy = await startProxy(await startOwnRedis());
  const redis = `redis://127.0.0.1:${proxy.port}`;
  const sluice = openSluice({ redis, storeTimeoutMs: 20_000 });
  const states: string[] = [];
  sluice.on("store", ({ state }) => states.push(state));
  const bucket = sluice.bucket("b", { rate: "100/s" });
  await bucket.draw();

  proxy.set("delay", 1_500);
  const looks = [await bucket.peek(), await bucket.peek(), await bucket.peek()];
  proxy.set("pass");

  expect(looks.map(({ policy }) => policy)).toEqual(["100/s", "100/s", "100/s"]);
  expect(states).toEqual([]);
});
