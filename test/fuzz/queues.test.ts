import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { createSluice, type Bucket, type Queue, type QueuedJob, type Sluice } from "sluice";
import {
  hostileName,
  hostileNumber,
  hostileOptions,
  hostileText,
  hostileValue,
} from "./support/hostile.ts";
import { forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

/** The bucket and the queue have one name, and so one hash tag. */
const NAME = "shared";

let redis: Redis;
let sluice: Sluice;
let bucket: Bucket;
let queue: Queue<number>;
let job: QueuedJob<number>;
let prefix = "";
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
beforeEach(async () => {
  prefix = `t${randomUUID()}`;
  sluice = createSluice({
    redis: inject("redisUrl"),
    prefix,
    logger: SILENT,
    storeTimeoutMs: 20_000,
  });
  bucket = sluice.bucket(NAME, { rate: "100/s", perKey: { rate: "10/s" } });
  queue = sluice.queue<number>(NAME, { bucket });
  await bucket.draw({ key: "acme" });
  job = await queue.enqueue(1, { key: "acme", dedupeId: "once" });
  await queue.enqueue(2);
  await queue.enqueue(3, { every: 3_600_000, dedupeId: "hourly" });
});
afterEach(() => sluice.close());
afterAll(() => redis.quit());

/** All that the test has in Redis, but for what a look may write: the list of events and the mark of a lane's clock. */
async function stored(): Promise<unknown[]> {
  const keys = (await redis.keys(`${prefix}:*`)).filter(
    (key) => !/:(events|lanes:state)$|\{:fleet\}/.test(key),
  );
  return Promise.all(keys.sort().map(async (key) => [key, await redis.dump(key)]));
}

const ms = fc.oneof(fc.nat(1_000), hostileNumber);
const id = fc.oneof(hostileName, hostileValue) as fc.Arbitrary<string>;

describe("what is no job's id", () => {
  /** The queue's own keys, those of its lanes, of its jobs and of the bucket, as the ends that an id would be. */
  async function names(): Promise<string[]> {
    const tag = `${prefix}:{${NAME}}:`;
    const all = (await redis.keys(`${tag}*`)).map((key) => key.slice(tag.length));
    return [...all.filter((name) => !/^(\d+|repeat:.*:\d+)$/.test(name)), `${job.id}:lock`, "de"];
  }

  it("names no job, and can remove nothing of the queue or of its bucket", async () => {
    const before = await stored();

    for (const name of await names()) {
      expect(await queue.job(name)).toBe(undefined);
      expect(await queue.reprioritise(name, "high")).toBe(false);
      expect(await queue.replay(name)).toBe(0);
      expect(await queue.purge(name)).toBe(0);
      expect(await queue.remove(name)).toBe(false);
    }

    expect(await stored()).toEqual(before);
  });

  it("changes nothing, whatever it is", async () => {
    const unknown = id.filter(
      (text) => text !== job.id && !(typeof text === "string" && /^\d+$/.test(text)),
    );
    const before = await stored();
    await forAll(150, fc.tuple(unknown, hostileText), async ([given, priority]) => {
      await outcomeOf(() => queue.job(given));
      await outcomeOf(() => queue.reprioritise(given, priority as "low"));
      if (given !== "hourly") await outcomeOf(() => queue.unschedule(given));
      await outcomeOf(() => queue.remove(given));
      await outcomeOf(() => (typeof given === "string" ? queue.purge(given) : 0));
    });
    expect(await stored()).toEqual(before);
  });
});

it("filters failed jobs by whatever it can read, and says what is wrong with the rest", async () => {
  const filter = hostileOptions({
    key: hostileName,
    since: fc.oneof(fc.date(), ms),
    reason: fc.oneof(hostileText, fc.constantFrom(/a/g, /^(a+)+$/)),
    code: hostileText,
    limit: ms,
  });
  await forAll(300, filter, async (given) => {
    const found = await outcomeOf(() => queue.failed(given));
    if (found.worked) expect(found.value).toEqual([]);
    const [replayed, purged] = [
      await outcomeOf(() => queue.replay(given)),
      await outcomeOf(() => queue.purge(given)),
    ];
    for (const each of [replayed, purged]) if (each.worked) expect(each.value).toBe(0);
  });
});

const bounded = (value: unknown): never =>
  (typeof value === "number" ? Math.min(value, 5) : (value ?? -1)) as never;

it("makes queues of any options, or says what is wrong", async () => {
  const queueing = hostileOptions({
    weights: fc.oneof(hostileOptions({ acme: hostileNumber }), fc.func(hostileNumber)),
    schema: hostileValue,
    maxJobBytes: ms,
    keepDone: hostileOptions({ count: ms, forMs: ms }),
    keepFailed: hostileOptions({ count: ms, forMs: ms }),
    maxBacklog: fc.oneof(ms, hostileOptions({ all: ms, perKey: ms })),
    ordered: fc.oneof(
      fc.boolean(),
      fc.func(hostileValue),
      hostileOptions({ keys: fc.func(hostileValue), stuck: fc.constantFrom("skip", "hold") }),
      hostileValue,
    ),
  });
  let queues = 0;
  await forAll(100, fc.tuple(queueing, hostileValue, fc.boolean()), async ([given, of, isOurs]) => {
    queues += 1;
    const options = (): never => ({ ...(given as object), bucket: isOurs ? bucket : of }) as never;
    const made = await outcomeOf(() => sluice.queue<number>(`q${queues}`, options()));
    if (!made.worked) return;
    await outcomeOf(() => made.value.enqueue(1, { key: "acme", maxWaitMs: 1 }));
  });
});

it("accepts listeners and waits of any kind, or says what is wrong", async () => {
  const event = fc.oneof(fc.constantFrom("done", "failed"), hostileText) as fc.Arbitrary<"done">;
  await forAll(200, fc.tuple(event, hostileValue), async ([name, value]) => {
    await outcomeOf(() => queue.on(name, value as never));
    await outcomeOf(() => queue.off(name, value as never));
    await outcomeOf(() => job.finished({ timeoutMs: bounded(value) }));
  });
});

it("starts workers of any handler and options, or says what is wrong", async () => {
  const idle = sluice.queue<number>("idle", { bucket });
  const handler = fc.oneof(
    fc.constant(async () => {}),
    fc.constantFrom("a\0b", "a".repeat(5_000), "file://[", "file://host/a", "/", "file:///%00"),
    hostileValue,
  );
  const working = hostileOptions({ concurrency: ms, timeoutMs: ms, lockMs: ms, patienceMs: ms });
  const given = fc.tuple(handler, working, hostileValue);
  await forAll(80, given, async ([handle, options, value]) => {
    await outcomeOf(() => sluice.worker(value as never, async () => {}));
    const started = await outcomeOf(() => sluice.worker(idle, handle as never, options));
    if (!started.worked) return;
    await outcomeOf(() => started.value.close({ deadlineMs: bounded(value) }));
    await started.value.close({ deadlineMs: 0 });
  });
});
