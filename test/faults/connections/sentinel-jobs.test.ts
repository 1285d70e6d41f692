import { describe, expect, it, onTestFinished } from "vitest";
import { StoreUnavailableError } from "sluice";
import { enqueueConfirmed } from "../../support/jobs/confirmed-jobs.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { startSentinels, type SentinelGroup } from "../../support/redis/sentinel.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** As docs/guides/production/redis.md has them, but for a lag that suits a test. */
const SAFE = ["--appendonly", "yes", "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"];

function openQueue({ redis }: SentinelGroup) {
  const sluice = openSluice({ redis, prefix: "s" });
  const bucket = sluice.bucket("b", { rate: "200/s" });
  return { sluice, queue: sluice.queue<number>("jobs", { bucket }) };
}

const strikes: [string, NodeJS.Signals][] = [
  ["is killed", "SIGKILL"],
  ["stands still", "SIGSTOP"],
];

describe("behind Sentinel, when the primary of running jobs", () => {
  it.each(strikes)(
    "%s, the queue loses no job that a replica has confirmed",
    async (name, signal) => {
      const sentinels = await startSentinels({ args: SAFE });
      onTestFinished(() => sentinels.stop());
      const done = new Set<number>();
      const { sluice, queue } = openQueue(sentinels);
      sluice.worker(queue, async (job) => void done.add(job.data), { lockMs: 2_000 });
      const jobs = enqueueConfirmed(openQueue(sentinels).queue, sentinels.connect());
      await waitUntil(() => done.size > 100, "jobs are done");
      const before = await sentinels.primaryPort();

      process.kill(sentinels.first.pid!, signal);
      await waitUntil(async () => (await sentinels.primaryPort()) !== before, "a new primary");
      const storedThen = jobs.stored.length;
      await waitUntil(() => jobs.stored.length > storedThen + 100, "jobs are stored again");
      await jobs.stop();
      await waitUntil(() => jobs.confirmed.every((job) => done.has(job)), "all are done");
      await waitUntil(async () => {
        const { active, waiting, delayed } = await queue.counts();
        return active + waiting + delayed === 0;
      }, "nothing waits");

      const lost = jobs.stored.filter((job) => !done.has(job));
      reportFigures(`behind Sentinel, the primary of jobs ${name}`, {
        "jobs confirmed": jobs.confirmed.length,
        "lost that were not confirmed": lost.length,
        "refusals of enqueue": jobs.errors.length,
      });
      expect(jobs.errors.filter((error) => !(error instanceof StoreUnavailableError))).toEqual([]);
      expect(jobs.confirmed.length).toBeGreaterThan(100);
    },
  );
});
