import { Redis } from "ioredis";
import { expect, inject } from "vitest";
import type { KeyFilter, Queue, QueuedJob } from "sluice";

/** Has a queue count a worker as alive that there is not, so that something is promised and nothing starts. */
export async function pretendWorker(prefix: string, ...queues: string[]): Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  for (const queue of queues) {
    await redis.hset(`${prefix}:{${queue}}:workers:live`, "pretended", `${2 ** 50} 50`);
  }
  await redis.quit();
}

/** When a job is expected to start; fails unless that is promised. */
export async function etaOf(job: Pick<QueuedJob<unknown>, "eta">) {
  const found = await job.eta();
  expect(found?.reason).toBe(undefined);
  const { position, startsInMs } = found!;
  return { position, startsInMs: startsInMs! };
}

/** What becomes of a queue; fails unless that is promised. */
export async function forecastOf(queue: Pick<Queue<unknown>, "forecast">, of: KeyFilter = {}) {
  const found = await queue.forecast(of);
  expect(found.reason).toBe(undefined);
  return { ...found, emptyInMs: found.emptyInMs! };
}
