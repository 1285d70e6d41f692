import type { BucketState } from "../core/bucket-state.ts";
import { draw } from "../core/draw.ts";
import { giveBack } from "../core/give-back.ts";
import type { Store } from "../core/store.ts";

const SWEEP_EVERY_US = 60_000_000;
/** As long as Redis keeps an idle bucket. */
const KEEP_US = 3_600_000_000;

/**
 * Buckets in this process's memory: the same arithmetic as in Redis, for one process.
 * `nowUs` is the clock; it defaults to this process's monotonic one.
 */
export function createMemoryStore(nowUs: () => number = monotonicUs): Store {
  const states = new Map<string, BucketState>();
  let sweepAtUs = nowUs() + SWEEP_EVERY_US;

  function forgetIdle(now: number): void {
    if (now < sweepAtUs) return;
    sweepAtUs = now + SWEEP_EVERY_US;
    for (const [bucket, { level, clockUs, policy }] of states) {
      if (now - clockUs > level / policy.count + KEEP_US) states.delete(bucket);
    }
  }

  return {
    async draw(request) {
      const now = nowUs();
      const { state, reply } = draw(states.get(request.bucket), request, now);
      states.set(request.bucket, state);
      forgetIdle(now);
      return { ...reply, sentAtMs: performance.now() };
    },
    async giveBack(request) {
      const found = states.get(request.bucket);
      if (found !== undefined) states.set(request.bucket, giveBack(found, request, nowUs()));
    },
    async close() {
      states.clear();
    },
  };
}

function monotonicUs(): number {
  return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
}
