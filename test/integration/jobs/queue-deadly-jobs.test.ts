import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import type { EnqueueOptions } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { openQueue, type OpenedQueue } from "../../support/jobs/open-queue.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const LOCK = { lockMs: 1_000 };

/** As BullMQ notes it of a job whose workers have died so often. */
async function noteDeaths(id: string, deaths: number): Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  await redis.hset(`${sluices.prefix()}:{jobs}:${id}`, "stc", deaths);
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

describe("a job whose workers keep dying", () => {
  it.each<[string, EnqueueOptions]>([
    ["that is enqueued once", {}],
    ["that recurs", { every: 3_600_000, dedupeId: "sync" }],
    ["that recurs, with a key", { every: 3_600_000, dedupeId: "sync", key: "acme" }],
  ])(
    "%s is given up after the tenth, with a reason, and can be replayed",
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
});
