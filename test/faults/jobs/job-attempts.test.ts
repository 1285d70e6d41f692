import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const JOBS = 900;
/** How often every lane wakes, and finds no room, so that its jobs go back once more. */
const WAKES = 60;
const KEY_RATE = 100;
const KEYS = ["a", "b", "c"];

/** How often a job was delayed, by the events of its queue, of which the last 10,000 are kept. */
function countDelays(stream: string) {
  const redis = new Redis(inject("redisUrl"));
  onTestFinished(() => redis.disconnect());
  let lastId = "0-0";
  const delays = {
    count: 0,
    async read() {
      const events = await redis.xrange(stream, `(${lastId}`, "+");
      delays.count += events.filter(([, fields]) => fields.includes("delayed")).length;
      lastId = events.at(-1)?.[0] ?? lastId;
    },
  };
  return delays;
}

describe("a job that returns to its lane repeatedly", () => {
  it("has as many attempts as handler calls", async () => {
    const prefix = sluices.prefix();
    const delays = countDelays(`${prefix}:{jobs}:events`);
    const attempts = new Map<number, number[]>();
    const open = () => {
      const sluice = sluices.open();
      const bucket = sluice.bucket("downstream", {
        rate: "1000/s",
        perKey: { rate: `${KEY_RATE}/s` },
      });
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
    for (let wake = 1; wake <= WAKES; wake++) {
      await waitUntil(() => called() >= (wake * JOBS * 3) / (WAKES + 10), "they go on");
      await delays.read();
      await bucket.configure({ perKey: { rate: `${KEY_RATE + (wake % 2)}/s` } });
    }
    await waitUntil(async () => (await queue.counts()).done === JOBS, "all are done");

    await delays.read();
    const waits = delays.count - 2 * JOBS;
    reportFigures("jobs go back to their lanes", { "times back": waits, calls: called() });
    // How often depends on how fast the machine is.
    expect(waits).toBeGreaterThan(3 * JOBS);
    expect((await queue.counts()).failed).toBe(0);
    expect(attempts.size).toBe(JOBS);
    for (const numbers of attempts.values()) expect(numbers).toEqual([1, 2, 3]);
  });
});
