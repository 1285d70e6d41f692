import fc from "fast-check";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { concurrency, fixedWindow } from "../../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { jobSlotOf, runWithJobSlot } from "../../../../src/throttle/slot/job-slot.ts";
import type { DrawnSlot } from "../../../../src/throttle/slot/slot.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Windows show exactly what is booked. */
const COUNTED = [fixedWindow(900, "30d"), fixedWindow(900, "30d", { unit: "tokens" })];
const CALL_MS = 10;

const tokens = fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined });
const call = fc.record({
  key: fc.constantFrom(undefined, "a", "b"),
  tokens,
  priority: fc.constantFrom("critical" as const, "normal" as const, "low" as const),
});
type Call = typeof call extends fc.Arbitrary<infer Value> ? Value : never;

const mix = fc.record({
  fair: fc.boolean(),
  most: fc.constantFrom(undefined, 1, 2, 3),
  ofKey: fc.constantFrom(
    undefined,
    { limits: COUNTED },
    { concurrency: 1 },
    { limits: [...COUNTED, concurrency(2)] },
  ),
  jobs: fc.array(
    fc.record({ job: call, first: call, second: fc.option(call, { nil: undefined }) }),
    {
      minLength: 1,
      maxLength: 8,
    },
  ),
  others: fc.array(call, { maxLength: 5 }),
});

const optionsOf = ({ key, tokens: amount, priority }: Call) => ({
  key,
  priority,
  cost: amount === undefined ? undefined : { tokens: amount },
});

it("jobs of any mix with their calls all end, and each is charged once", async () => {
  let running = 0;
  let mostRunning = 0;

  async function send(bucket: OwnedBucket, each: Call): Promise<void> {
    const slot = await bucket.draw(optionsOf(each));
    running += 1;
    mostRunning = Math.max(mostRunning, running);
    await new Promise((resolve) => setTimeout(resolve, CALL_MS));
    running -= 1;
    slot.release();
  }

  const property = fc.asyncProperty(mix, async ({ fair, most, ofKey, jobs, others }) => {
    const options: BucketOptions = {
      limits: most === undefined ? COUNTED : [...COUNTED, concurrency(most)],
      perKey: ofKey,
      fair,
    };
    const store = createMemoryStore(() => Math.floor(performance.now() * 1_000) + 1e15);
    const replicas = [1, 2].map(() => createTestBucket(options, { store }).bucket);
    let ended = 0;
    mostRunning = 0;
    const works = jobs.map(async ({ job, first, second }, index) => {
      const bucket = replicas[index % 2]!;
      const drawnFor = optionsOf(job);
      const slot = (await bucket.drawForJob(drawnFor, new Set())) as DrawnSlot;
      await runWithJobSlot(jobSlotOf({ bucket, slot }, drawnFor), async () => {
        await send(bucket, first);
        if (second !== undefined) await send(bucket, second);
      });
      slot.release();
      ended += 1;
    });
    const direct = others.map((each, index) => send(replicas[index % 2]!, each));

    await vi.advanceTimersByTimeAsync(30_000);

    expect(ended).toBe(jobs.length);
    await Promise.all([...works, ...direct]);
    expect(mostRunning).toBeLessThanOrEqual(most ?? Infinity);
    const sent = [
      ...jobs.map(({ job, first }) => first.tokens ?? job.tokens ?? 0),
      ...jobs.flatMap(({ second }) => (second === undefined ? [] : [second.tokens ?? 0])),
      ...others.map((each) => each.tokens ?? 0),
    ];
    const { limits } = await replicas[0]!.peek();
    const booked = limits.slice(0, 2).map(({ capacity, remaining }) => capacity - remaining);
    expect(booked).toEqual([sent.length, sent.reduce((sum, each) => sum + each, 0)]);
    await Promise.all(replicas.map((bucket) => bucket.close()));
  });
  await fc.assert(property, { numRuns: 200 });
});
