import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import type { EnqueueOptions } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { openQueue, type OpenedQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const LOCK = { lockMs: 1_000 };

/** As it is noted of a job whose workers have died so often: by BullMQ, and of those deaths while it ran. */
async function noteDeaths(id: string, deaths: number, whileItRan = deaths): Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  // Of the first one nobody knows what the job did.
  const fields = { stc: deaths, "sluice:deaths": Math.max(0, whileItRan - 1) };
  await redis.hset(`${sluices.prefix()}:{jobs}:${id}`, fields);
  await redis.quit();
}

/** Gives the job to a worker that is lost as soon as it runs: whether it ran. */
async function loseWorker({ sluice, queue }: OpenedQueue<string>, id: string): Promise<boolean> {
  const begun = deferred();
  let hasBegun = false;
  const handler = (job: { id: string }): Promise<void> => {
    hasBegun ||= job.id === id;
    if (hasBegun) begun.resolve();
    return new Promise(() => {});
  };
  const worker = sluice.worker(queue, handler, LOCK);
  queue.on("failed", () => begun.resolve());
  await begun.promise;
  await worker.close({ deadlineMs: 0 });
  return hasBegun;
}

const KINDS: readonly [string, EnqueueOptions][] = [
  ["that is enqueued once", {}],
  ["that recurs", { every: 3_600_000, dedupeId: "sync" }],
  ["that recurs, with a key", { every: 3_600_000, dedupeId: "sync", key: "acme" }],
];

describe("a job whose workers keep dying", () => {
  it.each(KINDS)(
    "%s is given up after the tenth death, with a reason, and can be replayed",
    async (_name, options) => {
      const opened = openQueue<string>(sluices);
      const { sluice, queue } = opened;
      const { id } = await queue.enqueue("deadly", options);
      await noteDeaths(id, 8);

      const ran = [];
      for (let round = 0; round < 3; round += 1) ran.push(await loseWorker(opened, id));
      const [letter] = await queue.failed();
      await queue.replay(id);
      const done: string[] = [];
      sluice.worker(queue, async (job) => void done.push(job.id), LOCK);
      await waitUntil(() => done.length > 0, "it has run");

      expect(ran).toEqual([true, true, false]);
      expect(letter).toMatchObject({ id, reason: expect.stringContaining("stalled") });
      expect(done).toContain(id);
    },
  );

  it.each(KINDS)("%s runs if these workers only held it", async (_name, options) => {
    const { sluice, queue } = openQueue<string>(sluices);
    const { id } = await queue.enqueue("innocent", options);
    await noteDeaths(id, 30, 0);
    const ended: string[] = [];
    queue.on("failed", () => void ended.push("failed"));

    sluice.worker(queue, async () => void ended.push("done"), LOCK);
    await waitUntil(() => ended.length > 0, "it has ended");

    expect(ended).toEqual(["done"]);
  });
});
