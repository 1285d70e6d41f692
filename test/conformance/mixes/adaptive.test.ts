import { describe, expect, it } from "vitest";
import { createGradient2 } from "../../../bench/limiters/gradient2.ts";
import { concurrency } from "../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { randomOf } from "./mix.ts";
import { createDownstream, runAdaptive, type AdaptiveRun } from "./run-adaptive.ts";
import { beginVirtualTime, type VirtualTime } from "./virtual-time.ts";

const LIMIT = concurrency("auto", { target: "latency", initial: 10 });
const LONG_MS = 600_000;

/** The mean of the limit over the last two seconds before a time. */
function limitBefore({ limits }: AdaptiveRun, ms: number): number {
  const last = limits.slice(ms / 100 - 20, ms / 100);
  return last.reduce((sum, limit) => sum + limit, 0) / last.length;
}

async function inVirtualTime<T>(run: (time: VirtualTime) => Promise<T>): Promise<T> {
  const time = beginVirtualTime();
  try {
    return await run(time);
  } finally {
    time.end();
  }
}

describe("a concurrency limit that adapts to latency", () => {
  it.each([1, 4, 16])(
    "is within 10 % of the capacity after 10 s, with %i replicas",
    async (replicas) => {
      const run = await inVirtualTime((time) =>
        runAdaptive(time, {
          store: createMemoryStore(),
          limit: LIMIT,
          replicas,
          downstream: createDownstream(time, { capacity: 24, random: randomOf(7) }),
          steps: [{ atMs: 10_000, capacity: 16 }],
          forMs: 20_000,
        }),
      );

      expect(run.errors).toEqual([]);
      expect(Math.abs(limitBefore(run, 10_000) / 24 - 1)).toBeLessThanOrEqual(0.1);
      expect(Math.abs(limitBefore(run, 20_000) / 16 - 1)).toBeLessThanOrEqual(0.1);
    },
    LONG_MS,
  );

  it(
    "queues fewer calls at the downstream than a limiter in each of 16 processes",
    async () => {
      const run = await inVirtualTime((time) =>
        runAdaptive(time, {
          store: createMemoryStore(),
          limit: LIMIT,
          limiterOf: () => createGradient2({ initial: 10 }),
          replicas: 16,
          downstream: createDownstream(time, { capacity: 24, random: randomOf(7) }),
          forMs: 10_000,
        }),
      );

      expect(limitBefore(run, 10_000)).toBeGreaterThan(1.5 * 24);
    },
    LONG_MS,
  );

  it(
    "keeps its value when the downstream gets slower without a queue",
    async () => {
      const run = await inVirtualTime((time) =>
        runAdaptive(time, {
          store: createMemoryStore(),
          limit: LIMIT,
          replicas: 2,
          downstream: createDownstream(time, { capacity: 12, random: randomOf(7) }),
          steps: [{ atMs: 6_000, slowness: 1.5 }],
          forMs: 12_000,
        }),
      );

      expect(run.windows.map(({ reason }) => reason)).toContain("baseline");
      // One call more or less is 8 % of so small a capacity.
      expect(Math.abs(limitBefore(run, 12_000) / 12 - 1)).toBeLessThanOrEqual(0.15);
    },
    LONG_MS,
  );

  it(
    "stays near the capacity of a downstream that refuses calls instead of queueing them",
    async () => {
      const run = await inVirtualTime((time) =>
        runAdaptive(time, {
          store: createMemoryStore(),
          limit: LIMIT,
          replicas: 2,
          downstream: createDownstream(time, {
            capacity: 20,
            random: randomOf(7),
            refuses: true,
          }),
          forMs: 10_000,
        }),
      );

      expect(run.windows.map(({ reason }) => reason)).toContain("drops");
      expect(Math.abs(limitBefore(run, 10_000) / 20 - 1)).toBeLessThanOrEqual(0.15);
    },
    LONG_MS,
  );

  it(
    "lets the maximum bind in shadow, and computes a value near the capacity",
    async () => {
      const run = await inVirtualTime((time) =>
        runAdaptive(time, {
          store: createMemoryStore(),
          limit: concurrency("auto", { initial: 10, max: 30, shadow: true }),
          replicas: 2,
          downstream: createDownstream(time, { capacity: 40, random: randomOf(7) }),
          forMs: 4_000,
        }),
      );

      expect(new Set(run.windows.map(({ bound }) => bound))).toEqual(new Set([30]));
      expect(Math.abs(run.windows.at(-1)!.value - 30)).toBeLessThan(1.5);
    },
    LONG_MS,
  );
});
