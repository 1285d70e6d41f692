import { newBucket, type BucketState } from "../../core/draw/bucket-state.ts";
import { draw } from "../../core/draw/draw.ts";
import { giveBack, settle } from "../../core/draw/give-back.ts";
import { releaseLeases, renewLeases } from "../../core/draw/leases.ts";
import { closedUntilUs } from "../../core/draw/fit.ts";
import { learn, type Ratios } from "../../core/policy/ratios.ts";
import { drainedAtUs, type Scope } from "../../core/draw/scope.ts";
import { peek, steer } from "../../core/draw/steer.ts";
import { addResets } from "../../core/limits/calendar-windows.ts";
import { countLeases, type Leases } from "../../core/limits/concurrency.ts";
import { createMemorySlots } from "./memory-slots.ts";
import { OUTAGE_KEPT_MS, type SettleRequest, type Store, type Wake } from "../../core/store.ts";

const SWEEP_EVERY_US = 60_000_000;
/** How long an idle bucket is kept, one that was configured or paused by hand, and a key; as in Redis. */
const KEEP_US = 3_600_000_000;
const KEEP_OVERRIDE_US = 2_592_000_000_000;
const KEEP_KEY_US = 60_000_000;

/**
 * Buckets in this process's memory: the arithmetic of the Lua scripts, for one process.
 * `nowUs` is the clock, in µs. Defaults to this process's monotonic clock.
 */
export function createMemoryStore(nowUs: () => number = monotonicUs): Store {
  const states = new Map<string, BucketState>();
  const wakes = new Map<string, Wake>();
  const learned = new Map<string, Ratios>();
  const away = new Map<string, Map<string | undefined, { coolMs: number; nextMs: number }>>();
  const slots = createMemorySlots();
  let sweepAtUs = nowUs() + SWEEP_EVERY_US;

  function forgetIdle(now: number): void {
    if (now < sweepAtUs) return;
    sweepAtUs = now + SWEEP_EVERY_US;
    for (const [bucket, state] of states) {
      for (const [key, scope] of state.keys) {
        if (now > usedUntilUs(scope, now) + KEEP_KEY_US) state.keys.delete(key);
      }
      // Those of its keys are its own: what one of them still needs, the bucket does.
      const scopes = [state.shared, ...state.keys.values()];
      const usedUs = Math.max(state.clockUs, ...scopes.map((scope) => usedUntilUs(scope, now)));
      const isKept = state.source !== "code" || scopes.some((scope) => closedUntilUs(scope) > now);
      if (now - usedUs > (isKept ? KEEP_OVERRIDE_US : KEEP_US)) states.delete(bucket);
    }
  }

  function settleAt(request: SettleRequest, now: number): void {
    const found = states.get(request.bucket);
    if (found !== undefined) settle(found, addResets(request, now), now);
  }

  return {
    async draw(request) {
      const now = nowUs();
      const { state, reply } = draw(states.get(request.bucket), addResets(request, now), now);
      states.set(request.bucket, state);
      forgetIdle(now);
      return { ...reply, sentAtMs: performance.now() };
    },
    async giveBack(request) {
      const now = nowUs();
      const found = states.get(request.bucket);
      if (found !== undefined) giveBack(found, addResets(request, now), now);
    },
    async settle(request) {
      settleAt(request, nowUs());
    },
    async noteSlot(note, settling) {
      const now = nowUs();
      const noted = slots.note(note, Math.floor(now / 1_000));
      if (settling !== undefined && noted.state === "held") settleAt(settling, now);
      return noted;
    },
    async renew(request) {
      const now = nowUs();
      const found = states.get(request.bucket) ?? newBucket(request.terms, now);
      return renewLeases(found, request, now);
    },
    async release(request) {
      const found = states.get(request.bucket);
      const woken = found === undefined ? [] : releaseLeases(found, request, nowUs());
      for (const { asker, key } of woken) wakes.get(asker)?.(request.bucket, "lease", key);
    },
    async steer(request) {
      const now = nowUs();
      const { bucket, scope } = request;
      const steered = steer(states.get(bucket), addResets(request, now), now);
      const { state, hasChanged, isStale } = steered;
      states.set(bucket, state);
      if (hasChanged) for (const wake of wakes.values()) wake(bucket, "change", scope?.key);
      return { generation: state.generation, isStale };
    },
    async peek(request) {
      const now = nowUs();
      return peek(states.get(request.bucket), addResets(request, now), now);
    },
    listen(asker, wake) {
      wakes.set(asker, wake);
    },
    async learn({ bucket, seen }) {
      const ratios = learned.get(bucket) ?? new Map();
      learned.set(bucket, ratios);
      return learn(ratios, seen);
    },
    async readOutages({ bucket, keys }) {
      const nowMs = nowUs() / 1_000;
      return keys.map((key) => {
        const { coolMs, nextMs } = away.get(bucket)?.get(key) ?? { coolMs: 0, nextMs: -Infinity };
        if (nowMs >= nextMs + OUTAGE_KEPT_MS) return undefined;
        return { coolMs, inMs: Math.max(1, Math.ceil(nextMs - nowMs)) };
      });
    },
    async noteOutage({ bucket, key, coolMs }) {
      const notes = away.get(bucket) ?? new Map();
      if (coolMs === undefined) notes.delete(key);
      else notes.set(key, { coolMs, nextMs: nowUs() / 1_000 + coolMs });
      if (notes.size > 0) away.set(bucket, notes);
      else away.delete(bucket);
    },
    async close() {
      away.clear();
      states.clear();
      wakes.clear();
      learned.clear();
    },
  };
}

/** Until when a scope holds something back, or a call holds a lease of it: now or later if one does. */
function usedUntilUs(scope: Scope, now: number): number {
  const isHeld = [...scope.kept.values()].some((kept) => countLeases(kept as Leases, now) > 0);
  return isHeld ? now : drainedAtUs(scope, scope.lastUs);
}

function monotonicUs(): number {
  return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
}
