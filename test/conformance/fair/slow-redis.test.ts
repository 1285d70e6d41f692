import { expect, it } from "vitest";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { randomOf, type MixCaller } from "../mixes/mix.ts";
import { runMix } from "../mixes/run-mix.ts";
import { beginVirtualTime } from "../mixes/virtual-time.ts";

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
      const near = createMemoryStore(() =>
        Math.floor((performance.timeOrigin + time.now()) * 1_000),
      );
      const store: Store = {
        ...near,
        async draw(request) {
          await pass();
          const drawn = await near.draw(request);
          await pass();
          return drawn;
        },
      };
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
