import { describe, expect, it } from "vitest";
import { createGradient2 } from "../../../bench/limiters/gradient2.ts";
import { concurrency } from "../../../src/core/policy/limit-makers.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { randomOf } from "./mix.ts";
import {
  createDownstream,
  runAdaptive,
  type AdaptiveRun,
  type RunOptions,
} from "./run-adaptive.ts";
import { beginVirtualTime } from "./virtual-time.ts";

const LIMIT = concurrency("auto", { target: "latency", initial: 10 });
const LONG_MS = 600_000;

/** The mean of the limit over the last two seconds before a time. */
function limitBefore({ limits }: AdaptiveRun, ms: number): number {
  const last = limits.slice(ms / 100 - 20, ms / 100);
  return last.reduce((sum, limit) => sum + limit, 0) / last.length;
}

/** Runs replicas in virtual time, at a downstream with this capacity. */
async function run(
  given: Partial<RunOptions> & {
    capacity: number;
    forMs: number;
    refuses?: boolean;
    seed?: number;
  },
): Promise<AdaptiveRun> {
  const { capacity, refuses, seed = 7, ...options } = given;
  const time = beginVirtualTime();
  try {
    return await runAdaptive(time, {
      store: createMemoryStore(),
      limit: LIMIT,
      replicas: 2,
      downstream: createDownstream(time, { capacity, refuses, random: randomOf(seed) }),
      ...options,
    });
  } finally {
    time.end();
  }
}

function expectWithin10Percent(adapted: AdaptiveRun, ms: number, capacity: number): void {
  expect(Math.abs(limitBefore(adapted, ms) / capacity - 1)).toBeLessThanOrEqual(0.1);
}

describe("a concurrency limit that adapts to latency", () => {
  it.each([1, 4, 16])(
    "is within 10 % of the capacity after 10 s, with %i replicas",
    async (replicas) => {
      const steps = [{ atMs: 10_000, capacity: 16 }];
      const adapted = await run({ replicas, capacity: 24, steps, forMs: 20_000 });

      expect(adapted.errors).toEqual([]);
      expectWithin10Percent(adapted, 10_000, 24);
      expectWithin10Percent(adapted, 20_000, 16);
    },
    LONG_MS,
  );

  it(
    "does not stay below the capacity when single windows are slow by chance",
    async () => {
      const seeds = Array.from({ length: 10 }, (_, index) => index + 1);
      const shares: number[] = [];
      for (const seed of seeds) {
        const adapted = await run({ seed, replicas: 4, capacity: 24, forMs: 10_000 });
        shares.push(limitBefore(adapted, 10_000) / 24);
      }

      expect(shares.filter((share) => share < 0.9).length).toBeLessThanOrEqual(1);
    },
    LONG_MS,
  );

  it(
    "falls to the capacity within 10 s from an initial value of 2.5 times the capacity",
    async () => {
      const limit = concurrency("auto", { initial: 20 });
      const adapted = await run({ limit, capacity: 8, forMs: 10_000 });

      expect(Math.abs(limitBefore(adapted, 10_000) / 8 - 1)).toBeLessThanOrEqual(0.1);
    },
    LONG_MS,
  );

  it(
    "queues fewer calls at the downstream than a limiter in each of 16 processes",
    async () => {
      const limiterOf = () => createGradient2({ initial: 10 });
      const adapted = await run({ limiterOf, replicas: 16, capacity: 24, forMs: 10_000 });

      expect(limitBefore(adapted, 10_000)).toBeGreaterThan(1.5 * 24);
    },
    LONG_MS,
  );

  it(
    "returns to its value within 10 s after the downstream got slower without a queue",
    async () => {
      const steps = [{ atMs: 6_000, slowness: 1.5 }];
      const adapted = await run({ capacity: 12, steps, forMs: 16_000 });

      expect(adapted.windows.map(({ reason }) => reason)).toContain("baseline");
      expectWithin10Percent(adapted, 16_000, 12);
    },
    LONG_MS,
  );

  it(
    "stays near the capacity of a downstream that refuses calls instead of queueing them",
    async () => {
      const adapted = await run({ capacity: 20, refuses: true, forMs: 10_000 });

      expect(adapted.windows.map(({ reason }) => reason)).toContain("drops");
      expectWithin10Percent(adapted, 10_000, 20);
    },
    LONG_MS,
  );

  it(
    "lets the maximum bind in shadow, and computes a value near the capacity",
    async () => {
      const limit = concurrency("auto", { initial: 10, max: 30, shadow: true });
      const adapted = await run({ limit, capacity: 40, forMs: 4_000 });

      expect(new Set(adapted.windows.map(({ bound }) => bound))).toEqual(new Set([30]));
      expect(Math.abs(adapted.windows.at(-1)!.value - 30)).toBeLessThan(1.5);
    },
    LONG_MS,
  );
});
