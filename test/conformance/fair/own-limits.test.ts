import { expect, it } from "vitest";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import type { MixCaller } from "../mixes/mix.ts";
import { runMix } from "../mixes/run-mix.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";

const FOR_MS = 6_000;
const SHARED = 100;

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
    const time = beginVirtualTime();
    const callers = Array.from({ length: keys * 10 }, (_, index): MixCaller => ({
      replica: (isSpread ? Math.floor(index / keys) : index % keys) % replicas,
      key: `key ${index % keys}`,
      cost: 1,
      priority: "normal",
      startMs: index * 0.1,
      thinkMs: 0,
    }));
    const policy = { rate: `${SHARED}/s`, perKey: { rate: `${perKey}/s` }, fair: true } as const;
    const mix = { name: "own limits", policy, callers, hasPriorities: false };
    try {
      const store = createMemoryStore(() =>
        Math.floor((performance.timeOrigin + time.now()) * 1_000),
      );
      const { calls } = await runMix(mix, { store, time, seed: 1, forMs: FOR_MS });

      const started = calls.filter(({ wentMs }) => wentMs >= 1_000 && wentMs < FOR_MS).length;
      const allowed = (Math.min(SHARED, keys * perKey) * (FOR_MS - 1_000)) / 1_000;
      expect(started / allowed).toBeGreaterThanOrEqual(0.98);
    } finally {
      time.end();
    }
  },
);
