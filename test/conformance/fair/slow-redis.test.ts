import { expect, it } from "vitest";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { randomOf, type MixCaller } from "../mixes/mix.ts";
import { runMix } from "../mixes/run-mix.ts";
import { beginVirtualTime, type VirtualTime } from "../mixes/virtual-time.ts";
import type { BucketOptions } from "../../../src/throttle/bucket/bucket-options.ts";

/** A store in memory that each draw reaches, and comes back from, after `pass`. */
function storeBehind(time: VirtualTime, pass: () => Promise<unknown>): Store {
  const near = createMemoryStore(() => Math.floor((performance.timeOrigin + time.now()) * 1_000));
  return {
    ...near,
    async draw(request) {
      await pass();
      const drawn = await near.draw(request);
      await pass();
      return drawn;
    },
  };
}

const FOR_MS = 3_000;
const RATE = 1_000;

/** Each request takes this long to reach Redis, and its reply as long again, within the range. */
it.each([
  { fromMs: 10, toMs: 10, perKey: { rate: "50/s" as const } },
  { fromMs: 25, toMs: 25, perKey: undefined },
  { fromMs: 25, toMs: 25, perKey: { rate: "50/s" as const } },
  { fromMs: 1, toMs: 20, perKey: undefined },
  { fromMs: 1, toMs: 20, perKey: { rate: "50/s" as const } },
])(
  "100 keys in four replicas use the rate if Redis is $fromMs to $toMs ms away, with limits per key: $perKey",
  async ({ fromMs, toMs, perKey }) => {
    const time = beginVirtualTime();
    const random = randomOf(fromMs);
    const callers = Array.from({ length: 800 }, (_, index): MixCaller => ({
      replica: index % 4,
      key: `key ${Math.floor(index / 4) % 100}`,
      cost: 1,
      priority: "normal",
      startMs: index * 0.1,
      thinkMs: 0,
    }));
    const pass = () => time.sleep(fromMs + random() * (toMs - fromMs));
    try {
      const store = storeBehind(time, pass);
      const policy = { rate: `${RATE}/s`, perKey, fair: true } as const;
      const mix = { name: "slow Redis", policy, callers, hasPriorities: false };
      const { calls } = await runMix(mix, { store, time, seed: 1, forMs: FOR_MS });

      const started = calls.filter(({ wentMs }) => wentMs >= 1_000 && wentMs < FOR_MS).length;
      expect(started / (2 * RATE)).toBeGreaterThanOrEqual(0.95);
    } finally {
      time.end();
    }
  },
);

/** Returns the part of what the limits allow that two processes use if a round trip takes this long. */
async function usedAcross(
  tripMs: number,
  policy: BucketOptions,
  { keys, perSecond }: { readonly keys: number; readonly perSecond: number },
): Promise<number> {
  const time = beginVirtualTime();
  const random = randomOf(7);
  const callers = Array.from(
    { length: 12 * Math.max(keys, perSecond / 5) },
    (_, index): MixCaller => ({
      replica: Math.floor(index / keys) % 2,
      key: `key ${index % keys}`,
      cost: 1,
      priority: "normal",
      startMs: index * 0.7,
      thinkMs: 0,
    }),
  );
  const pass = () => time.sleep((tripMs / 2) * (1 + 0.04 * random()));
  try {
    const store = storeBehind(time, pass);
    const mix = { name: "far Redis", policy, callers, hasPriorities: false };
    const { calls } = await runMix(mix, { store, time, seed: 1, forMs: 6_000 });

    const started = calls.filter(({ wentMs }) => wentMs >= 1_000 && wentMs < 6_000).length;
    return started / (5 * perSecond);
  } finally {
    time.end();
  }
}

// Each key has calls in both processes.
it.each([
  { keys: 1, rate: "1000/s" as const, atLeast: 0.98 },
  { keys: 5, rate: "1000/s" as const, atLeast: 0.88 },
  { keys: 20, rate: "1000/s" as const, atLeast: 0.8 },
  { keys: 20, rate: undefined, atLeast: 0.98 },
])(
  "$keys keys with 20/s each use $atLeast of it at a round trip of 50 ms, with the shared rate $rate",
  async ({ keys, rate, atLeast }) => {
    const policy = { ...(rate && { rate }), perKey: { rate: "20/s" } } as const;

    const used = await usedAcross(50, policy, { keys, perSecond: keys * 20 });

    expect(used).toBeGreaterThanOrEqual(atLeast);
  },
);

it.each([
  { tripMs: 200, keys: 1, atLeast: 0.95 },
  { tripMs: 200, keys: 10, atLeast: 0.95 },
  { tripMs: 300, keys: 1, atLeast: 0.9 },
  { tripMs: 300, keys: 10, atLeast: 0.8 },
])(
  "$keys keys use $atLeast of their shared rate at a round trip of $tripMs ms",
  async ({ tripMs, keys, atLeast }) => {
    const used = await usedAcross(tripMs, { rate: "100/s" }, { keys, perSecond: 100 });

    expect(used).toBeGreaterThanOrEqual(atLeast);
  },
);
