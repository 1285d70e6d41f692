import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { realSluices } from "../support/real-sluice.ts";
import { waitUntil } from "../support/wait-until.ts";

const sluices = realSluices();
const JOBS = 150;
const KEYS = ["a", "b", "c"];

describe("a job that goes back to its lane again and again", () => {
  it("has made as many attempts as its handler has been called", async () => {
    const prefix = sluices.prefix();
    const attempts = new Map<number, number[]>();
    const open = () => {
      const sluice = sluices.open();
      const bucket = sluice.bucket("downstream", { rate: "200/s", perKey: { rate: "15/s" } });
      return { sluice, bucket, queue: sluice.queue<number>("jobs", { bucket }) };
    };
    const opened = [open(), open()];
    const [{ queue, bucket }] = opened as [ReturnType<typeof open>, ...unknown[]];
    const options = { attempts: 3, backoff: { baseMs: 1 } };
    for (const [index, key] of KEYS.entries()) {
      const data = Array.from({ length: JOBS / KEYS.length }, (_, n) => n * KEYS.length + index);
      await queue.enqueueMany(data, { key, ...options });
    }

    for (const each of opened) {
      const handler = async (job: { data: number }, { attempt }: { attempt: number }) => {
        attempts.set(job.data, [...(attempts.get(job.data) ?? []), attempt]);
        if (attempt < 3) throw new Error("not yet");
      };
      each.sluice.worker(each.queue, handler, { patienceMs: 0 });
    }
    const called = (): number => [...attempts.values()].flat().length;
    // Every lane wakes, and finds no room, so that its jobs go back once more.
    for (let share = 1; share <= 20; share++) {
      await waitUntil(() => called() >= (share * JOBS * 3) / 25, "they go on");
      await bucket.configure({ perKey: { rate: `${15 + (share % 2)}/s` } });
    }
    await waitUntil(async () => (await queue.counts()).done === JOBS, "all are done");

    const redis = new Redis(inject("redisUrl"));
    const events = await redis.xrange(`${prefix}:{jobs}:events`, "-", "+");
    await redis.quit();
    const waits = events.filter(([, fields]) => fields.includes("delayed")).length - 2 * JOBS;
    console.log(`${called()} calls, ${waits} times back to the lane`);
    expect((await queue.counts()).failed).toBe(0);
    expect(attempts.size).toBe(JOBS);
    for (const numbers of attempts.values()) expect(numbers).toEqual([1, 2, 3]);
  });
});
