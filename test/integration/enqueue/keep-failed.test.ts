import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { InvalidOptionError, JobFailedError, type QueueOptions } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const DAY_MS = 86_400_000;
const sluices = realSluices();
let redis: Redis;
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
afterAll(() => redis.disconnect());

const keyOf = (name: string): string => `${sluices.prefix()}:{jobs}:${name}`;

function open(keepFailed?: QueueOptions["keepFailed"]) {
  const warnings: { readonly facts: object; readonly text: string }[] = [];
  const logger = {
    warn: (facts: object, text: string) => void warnings.push({ facts, text }),
    error: () => {},
  };
  const sluice = sluices.open({ logger });
  const bucket = sluice.bucket("downstream", { rate: "10000/s" });
  const queue = sluice.queue<number>("jobs", { bucket, keepFailed });
  const work = () =>
    sluice.worker(queue, async ({ data }, { log }) => {
      await log("a line");
      throw new Error(`no ${data}`);
    });
  const removals = () => warnings.filter(({ text }) => text.startsWith("Removed"));
  return { sluice, queue, work, removals };
}

/** Jobs that fail, by a worker that keeps all of them. */
async function failMany(count: number): Promise<readonly string[]> {
  const { queue, work } = open();
  const ids: string[] = [];
  for (let job = 0; job < count; job += 1) {
    const { id } = await queue.enqueue(job, { attempts: 1, key: job % 2 === 0 ? "a" : undefined });
    ids.push(id);
  }
  const worker = work();
  await waitUntil(async () => (await queue.counts()).failed === count, "all have failed");
  await worker.close();
  for (const [index, id] of ids.entries()) await redis.zadd(keyOf("failed"), 1e12 + index, id);
  return ids;
}

describe("dead letters", () => {
  it("stay forever unless keepFailed says otherwise", async () => {
    await failMany(3);

    const { queue, work, removals } = open();
    await work().close();

    expect(await queue.failed()).toHaveLength(3);
    expect(removals()).toEqual([]);
  });

  it("beyond keepFailed.count are removed completely, the oldest first, and that is logged", async () => {
    const ids = await failMany(8);

    const { queue, work, removals } = open({ count: 3 });
    const worker = work();
    await waitUntil(async () => (await queue.counts()).failed === 3, "five are removed");
    await worker.close();

    expect((await queue.failed()).map(({ id }) => id)).toEqual(ids.slice(5).toReversed());
    for (const id of ids.slice(0, 5)) expect(await redis.keys(`${keyOf(id)}*`)).toEqual([]);
    expect(removals()).toMatchObject([
      { facts: { queue: "jobs", removed: 5, keepFailed: { count: 3 } } },
    ]);
    expect(removals()[0]!.text).toContain('5 dead letters of queue "jobs"');
  });

  it("are removed once they failed longer ago than keepFailed.forMs, though no other job fails", async () => {
    const [old, ...others] = await failMany(3);
    for (const id of others) await redis.zadd(keyOf("failed"), Date.now() - DAY_MS + 600_000, id);
    await redis.zadd(keyOf("failed"), Date.now() - DAY_MS - 600_000, old!);

    const { queue, work, removals } = open({ forMs: DAY_MS });
    work();
    await waitUntil(async () => (await queue.counts()).failed === 2, "the old one is removed");

    expect(await queue.job(old!)).toBeUndefined();
    await waitUntil(() => removals().length === 1, "that is logged");
    expect(removals()).toMatchObject([{ facts: { removed: 1 } }]);
  });

  it("are all logged, however many fail while a worker works", async () => {
    const { queue, work, removals } = open({ count: 10 });
    const worker = work();

    await queue.enqueueMany([...Array(300).keys()], { attempts: 1 });
    await waitUntil(async () => {
      const { waiting, active, failed } = await queue.counts();
      return waiting + active === 0 && failed === 10;
    }, "ten are kept");
    await worker.close();

    const facts = removals().map((each) => each.facts as { removed: number });
    expect(facts.reduce((sum, { removed }) => sum + removed, 0)).toBe(290);
    expect(facts.length).toBeLessThan(290);
  });

  it("that a caller waits for are reported first", async () => {
    const { queue, work } = open({ count: 0 });
    const jobs = await queue.enqueueMany([...Array(20).keys()], { attempts: 1 });
    const ends = jobs.map((job) => rejectionOf(job.finished()));
    work();

    for (const reason of await Promise.all(ends)) expect(reason).toBeInstanceOf(JobFailedError);
  });

  it("stay until the waiting caller has read them, though it got no event", async () => {
    const { queue, work } = open({ count: 0 });
    const job = await queue.enqueue(1, { attempts: 1 });
    const mark = keyOf(`awaited:${job.id}`);
    // As of a process that missed the event.
    await redis.zadd(mark, 0, "another process");
    work();
    await waitUntil(async () => (await job.state()) === "failed", "it has failed");

    const other = await queue.enqueue(2, { attempts: 1 });
    await waitUntil(async () => (await other.state()) === undefined, "others are removed");
    const whileAwaited = await job.state();
    await redis.del(mark);
    await queue.enqueue(3, { attempts: 1 });
    await waitUntil(async () => (await job.state()) === undefined, "nobody waits for it any more");

    expect(whileAwaited).toBe("failed");
  });

  it("are never removed during a replay: each runs again or stays", async () => {
    const ids = await failMany(250);
    const { sluice, queue } = open();
    const keeping = open({ count: 1, forMs: 1 });
    await queue.pause();
    const replaying = queue.replay({});
    const cleaners = Array.from({ length: 4 }, () => keeping.work());
    const replayed = await replaying;
    await Promise.all(cleaners.map((worker) => worker.close()));

    const { waiting, failed } = await queue.counts();
    expect([replayed, waiting + failed]).toEqual([250, 250]);
    expect(keeping.removals()).toEqual([]);
    const runs: string[] = [];
    sluice.worker(queue, async ({ id }) => void runs.push(id));
    await queue.resume();
    await waitUntil(async () => (await queue.counts()).done === 250, "all have run");
    expect(runs.toSorted()).toEqual([...ids].toSorted());
  });

  it.each([5, null, { count: -1 }, { count: 1.5 }, { forMs: 0 }, { age: 5 }])(
    "are not kept by an invalid keepFailed, which is refused by name: %j",
    (keepFailed) => {
      const refused = (): unknown => open(keepFailed as object);

      expect(refused).toThrow(InvalidOptionError);
      expect(refused).toThrow(/option "keepFailed/);
    },
  );
});
