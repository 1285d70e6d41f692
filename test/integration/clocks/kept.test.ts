import { expect, it } from "vitest";
import type { QueueMember } from "../../support/jobs/queue-members.ts";
import { withWrongClocks } from "../../support/jobs/wrong-clocks.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const HOUR_MS = 3_600_000;
/** More than either process does before it looks for done jobs that are no longer kept. */
const BATCH = 200;

interface Times {
  readonly id: string;
  readonly enqueuedAtMs: number;
  readonly dueAtMs: number;
  readonly startedAtMs: number;
  readonly endedAtMs: number;
}

withWrongClocks(
  (members) => {
    async function untilDone(id: string): Promise<void> {
      const isDone = async () => (await members.producer.call("job.state", id)) === "done";
      await waitUntil(isDone, "it is done");
    }

    async function doMany(before: number): Promise<void> {
      const jobs = Array.from({ length: BATCH }, () => ({ name: "many", takesMs: 5 }));
      await members.producer.call("enqueueMany", jobs);
      const haveRun = ({ attempts }: QueueMember) => attempts.length;
      await waitUntil(
        () => haveRun(members.producer) + haveRun(members.worker) >= before + BATCH,
        "all have run",
      );
      const isIdle = async () =>
        (await members.producer.call<{ active: number }>("counts")).active === 0;
      await waitUntil(isIdle, "all are done");
    }

    it("done jobs are kept for the time of keepDone, whichever process ran them", async () => {
      await doMany(0);
      await doMany(BATCH);

      expect(members.producer.attempts.length).toBeGreaterThan(64);
      expect(members.worker.attempts.length).toBeGreaterThan(64);
      expect(await members.producer.call("counts")).toMatchObject({ done: 2 * BATCH });
    });

    it("a job's times are in order, and from Redis' clock", async () => {
      const { id } = await members.producer.call<Times>(
        "enqueue",
        { name: "timed" },
        { delayMs: 200 },
      );
      await untilDone(id);

      const { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs } = await readTimes(id);
      expect(Math.abs(enqueuedAtMs - Date.now())).toBeLessThan(HOUR_MS);
      expect(dueAtMs).toBe(enqueuedAtMs + 200);
      expect(startedAtMs).toBeGreaterThanOrEqual(dueAtMs);
      expect(endedAtMs).toBeGreaterThanOrEqual(startedAtMs);
    });

    it("a job without a delay starts no sooner than it was enqueued", async () => {
      const jobs = Array.from({ length: 20 }, (_, index) => ({ name: `quick ${index}` }));
      const enqueued = await members.producer.call<Times[]>("enqueueMany", jobs);
      for (const { id } of enqueued) await untilDone(id);

      const times = await Promise.all(enqueued.map(({ id }) => readTimes(id)));
      const lagsMs = times.map(({ startedAtMs, enqueuedAtMs }) => startedAtMs - enqueuedAtMs);
      expect(Math.min(...lagsMs)).toBeGreaterThanOrEqual(0);
    });

    async function readTimes(id: string): Promise<Times> {
      return members.producer.call<Times>("job", id);
    }

    it("a dedupeId holds for its dedupeMs in all processes", async () => {
      const options = { dedupeId: "once", dedupeMs: 60_000 };

      const first = await members.producer.call<Times>("enqueue", { name: "first" }, options);
      await untilDone(first.id);
      const second = await members.worker.call<Times>("enqueue", { name: "second" }, options);
      await members.worker.call(
        "enqueue",
        { name: "third" },
        { ...options, dedupeId: "b", dedupeMs: 1 },
      );

      expect(second.id).toBe(first.id);
    });

    it("a paused bucket starts jobs again after its forMs", async () => {
      const pausedAtMs = performance.now();

      await members.producer.call("bucket.pause", { forMs: 700 });
      const { id } = await members.worker.call<Times>("enqueue", { name: "paused" });
      await untilDone(id);

      expect(performance.now() - pausedAtMs).toBeGreaterThanOrEqual(700);
    });
  },
  { queue: { keepDone: { forMs: HOUR_MS } }, worker: { concurrency: 5 }, doAllWork: true },
);
