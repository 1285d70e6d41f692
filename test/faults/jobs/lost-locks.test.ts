import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { children } from "../../support/children/child.ts";
import { jobCalls, startLaneWorkers } from "../../support/jobs/lane-workers.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { startProxy } from "../../support/redis/for-one-test.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const JOBS = 150;
/** What one worker holds at a time: waiting for slots, nearly all of them. */
const CONCURRENCY = 50;

const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

/** A lone worker with all of 150 jobs before it; its Redis may be reached by another way. */
function startWork(redis?: string) {
  const sluice = sluices.open();
  const policy = { rate: "20/s" };
  const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", policy) });
  const settings = { prefix: sluices.prefix(), policy, url: downstream.url };
  const locked = { concurrency: CONCURRENCY, lockMs: 1_000, ...(redis && { redis }) };
  const [worker] = startLaneWorkers(processes, 1, { ...settings, ...locked });
  let stalls = 0;
  queue.on("stalled", () => void (stalls += 1));
  return {
    worker: worker!,
    enqueue: () => queue.enqueueMany(Array.from({ length: JOBS }, (_, index) => `job ${index}`)),
    async untilAtWork() {
      await waitUntil(() => downstream.arrivals.length > 5, "it is at work");
    },
    async untilLocksHaveEnded() {
      const direct = new Redis(inject("redisUrl"));
      onTestFinished(async () => void (await direct.quit()));
      const pattern = `${sluices.prefix()}:{jobs}:*:lock`;
      await waitUntil(
        async () => (await direct.keys(pattern)).length === 0,
        "all locks have ended",
      );
    },
    async outcome() {
      await waitUntil(async () => {
        const { done, failed } = await queue.counts();
        return done + failed === JOBS;
      }, "all have ended");
      const calls = jobCalls(downstream.arrivals).map(({ job }) => job);
      const { failed } = await queue.counts();
      const times = new Map<string, number>();
      for (const job of calls) times.set(job, (times.get(job) ?? 0) + 1);
      return { stalls, failed, different: times.size, mostOften: Math.max(...times.values()) };
    },
  };
}

describe("a single worker whose locks have all expired once", () => {
  it("repeats only the jobs that were running when it hung", async () => {
    const work = startWork();
    await work.enqueue();
    await work.untilAtWork();

    work.worker.signal("SIGSTOP");
    await work.untilLocksHaveEnded();
    work.worker.signal("SIGCONT");
    const { stalls, failed, different, mostOften } = await work.outcome();

    expect({ failed, different }).toEqual({ failed: 0, different: JOBS });
    expect(mostOften).toBeLessThanOrEqual(2);
    expect(stalls).toBeLessThanOrEqual(CONCURRENCY);
  });

  it("repeats only the jobs that were running when Redis became unreachable", async () => {
    const proxy = await startProxy({ url: inject("redisUrl") });
    const work = startWork(`redis://127.0.0.1:${proxy.port}`);
    await work.enqueue();
    await work.untilAtWork();

    proxy.set("stall");
    await work.untilLocksHaveEnded();
    proxy.set("pass");
    proxy.cut();
    const { stalls, failed, different, mostOften } = await work.outcome();

    expect({ failed, different }).toEqual({ failed: 0, different: JOBS });
    expect(mostOften).toBeLessThanOrEqual(2);
    expect(stalls).toBeLessThanOrEqual(CONCURRENCY + 1);
  });
});
