import { expect, it } from "vitest";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import type { MixCaller } from "../mixes/mix.ts";
import { runMix } from "../mixes/run-mix.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";

const FOR_MS = 6_000;

it.each([
  { keys: 21, replicas: 2 },
  { keys: 30, replicas: 1 },
  { keys: 30, replicas: 2 },
  { keys: 40, replicas: 2 },
])(
  "$keys keys with their own limits use all of the shared rate, in $replicas replicas",
  async ({ keys, replicas }) => {
    const time = beginVirtualTime();
    const callers = Array.from({ length: keys * 10 }, (_, index): MixCaller => ({
      replica: (index % keys) % replicas,
      key: `key ${index % keys}`,
      cost: 1,
      priority: "normal",
      startMs: index * 0.1,
      thinkMs: 0,
    }));
    const policy = { rate: "100/s", perKey: { rate: "5/s" }, fair: true } as const;
    const mix = { name: "own limits", policy, callers, hasPriorities: false };
    try {
      const store = createMemoryStore(() =>
        Math.floor((performance.timeOrigin + time.now()) * 1_000),
      );
      const { calls } = await runMix(mix, { store, time, seed: 1, forMs: FOR_MS });

      const started = calls.filter(({ wentMs }) => wentMs >= 1_000 && wentMs < FOR_MS).length;
      expect(started / 500).toBeGreaterThanOrEqual(0.98);
    } finally {
      time.end();
    }
  },
);
