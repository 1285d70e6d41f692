import { expect, it } from "vitest";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../src/throttle/bucket/bucket-options.ts";
import type { MixCaller } from "../mixes/mix.ts";
import { runMix } from "../mixes/run-mix.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";

const FOR_MS = 6_000;
const SHARED = 100;

/** Returns the part of what the limits allow that calls used, after the first second. */
async function usedBy(
  policy: BucketOptions,
  callers: readonly MixCaller[],
  perSecond: number,
): Promise<number> {
  const time = beginVirtualTime();
  const mix = { name: "use", policy, callers, hasPriorities: false };
  try {
    const store = createMemoryStore(() =>
      Math.floor((performance.timeOrigin + time.now()) * 1_000),
    );
    const { calls } = await runMix(mix, { store, time, seed: 1, forMs: FOR_MS });

    const started = calls.filter(({ wentMs }) => wentMs >= 1_000 && wentMs < FOR_MS).length;
    return started / ((perSecond * (FOR_MS - 1_000)) / 1_000);
  } finally {
    time.end();
  }
}

/** Ten callers of each key, spread over the replicas. */
function callersOf(keys: number, replicas: number, isSpread: boolean): MixCaller[] {
  return Array.from({ length: keys * 10 }, (_, index): MixCaller => ({
    replica: (isSpread ? Math.floor(index / keys) : index % keys) % replicas,
    key: `key ${index % keys}`,
    cost: 1,
    priority: "normal",
    startMs: index * 0.1,
    thinkMs: 0,
  }));
}

it.each([
  { keys: 21, perKey: 5, replicas: 2 },
  { keys: 30, perKey: 5, replicas: 1 },
  { keys: 30, perKey: 5, replicas: 2 },
  { keys: 40, perKey: 5, replicas: 2 },
  // The callers of each key are in all replicas.
  { keys: 2, perKey: 10, replicas: 4, isSpread: true },
  { keys: 5, perKey: 10, replicas: 4, isSpread: true },
  { keys: 5, perKey: 22, replicas: 4, isSpread: true },
  { keys: 20, perKey: 5, replicas: 3, isSpread: true },
  { keys: 20, perKey: 5, replicas: 4, isSpread: true },
])(
  "$keys keys with $perKey/s each use all that their limits and the shared rate allow, in $replicas replicas",
  async ({ keys, perKey, replicas, isSpread = false }) => {
    const policy = { rate: `${SHARED}/s`, perKey: { rate: `${perKey}/s` }, fair: true };
    const allowed = Math.min(SHARED, keys * perKey);

    const used = await usedBy(policy, callersOf(keys, replicas, isSpread), allowed);

    expect(used).toBeGreaterThanOrEqual(0.98);
  },
);

// A horizon has fewer slots than there are keys in all replicas together.
it.each([
  { rate: 100, keys: 4, replicas: 8 },
  { rate: 100, keys: 10, replicas: 4 },
  { rate: 50, keys: 10, replicas: 4 },
  { rate: 200, keys: 10, replicas: 8 },
])(
  "$keys keys with calls in each of $replicas replicas use all of $rate/s",
  async ({ rate, keys, replicas }) => {
    const used = await usedBy({ rate: `${rate}/s` }, callersOf(keys, replicas, true), rate);

    expect(used).toBeGreaterThanOrEqual(0.98);
  },
);
