import type { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { RetryAfter } from "sluice";
import { upTo } from "../../support/jobs/open-lanes.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** A server of its own, or the commands of other tests would count as well. */
const servers = ownRedisServers();

/** How many commands Redis has done, those of scripts included. */
async function commandsDone(operator: Redis): Promise<number> {
  const stats = await operator.info("commandstats");
  const counts = [...stats.matchAll(/^cmdstat_[^:]+:calls=(\d+)/gm)];
  return counts.reduce((sum, [, calls]) => sum + Number(calls), 0);
}

describe("a job that is tried again after its maxWaitMs", () => {
  it("waits in its lane for room of its key, and costs Redis next to nothing until then", async () => {
    const redis = await servers.start();
    const sluice = redis.open();
    const bucket = sluice.bucket("downstream", { rate: "500/s", perKey: { rate: "1/2s" } });
    const queue = sluice.queue<string>("jobs", { bucket });
    const commands: number[] = [];
    sluice.worker(queue, async (_job, { attempt }) => {
      commands.push(await commandsDone(redis.operator));
      if (attempt === 1) throw new RetryAfter(300);
    });

    await queue.enqueue("once more", { key: "slow", maxWaitMs: 1_500 });
    await waitUntil(() => commands.length === 2, "it is tried again");

    // Let out and sent back all the time, it would be 10,000 a second.
    expect(commands[1]! - commands[0]!).toBeLessThan(2_000);
  });
});

describe("a key that has no room", () => {
  it("costs about as many Redis commands per started job with 5,000 in its lane as with 200", async () => {
    const redis = await servers.start();
    const { operator } = redis;
    const figures: number[] = [];
    for (const backlog of [200, 5_000]) {
      const sluice = redis.open();
      const bucket = sluice.bucket("downstream", { rate: "500/s", perKey: { rate: "25/s" } });
      const queue = sluice.queue<number>("jobs", { bucket });
      const attempts: number[] = [];
      await queue.enqueueMany(upTo(backlog), { key: "slow" });
      const worker = sluice.worker(queue, async (_job, { attempt }) => void attempts.push(attempt));
      await waitUntil(() => attempts.length >= 25, "it is at work");
      const before = { commands: await commandsDone(operator), jobs: attempts.length };
      await waitUntil(() => attempts.length >= before.jobs + 75, "75 more have started");
      figures.push(
        ((await commandsDone(operator)) - before.commands) / (attempts.length - before.jobs),
      );
      await worker.close();
      await queue.drain();
      expect(new Set(attempts)).toEqual(new Set([1]));
    }

    const [few, many] = figures as [number, number];
    console.log(`commands per job: ${few.toFixed(1)} of 200, ${many.toFixed(1)} of 5,000`);
    expect(many / few).toBeLessThan(1.5);
    expect(many).toBeLessThan(250);
  });
});
