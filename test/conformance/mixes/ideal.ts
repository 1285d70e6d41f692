import {
  applyLimits,
  commitAll,
  earliestForAllUs,
  freshScope,
  type Scope,
} from "../../../src/core/draw/scope.ts";
import { noDrawer } from "../../../src/core/limits/rule.ts";
import { keyLimitsOf } from "../../../src/core/policy/per-key.ts";
import type { MixCall, MixRun } from "./run-mix.ts";

const ORIGIN_US = 1_800_000_000_000_000;

/**
 * When each call of a run would have gone in one line for all replicas that takes no time: by priority, then by
 * arrival; a key that is full holds back its own calls only. Calls that would not have gone are left out.
 * `aheadUs` says how far ahead the line gives slots to calls of a rank: more urgent calls that come later do not get those.
 */
export function idealOf(
  { calls, policy, forMs }: MixRun,
  aheadUs: (rank: number) => number = () => 0,
): ReadonlyMap<MixCall, number> {
  const went = new Map<MixCall, number>();
  const shared = scopeUnder(policy.limits);
  const keys = new Map<string, Scope>();
  const arrivals = calls.toSorted((a, b) => a.atMs - b.atMs);
  const line: MixCall[] = [];
  const count = policy.limits.length;

  function keyScopeOf({ key }: MixCall): Scope | undefined {
    if (key === undefined || policy.perKey === undefined) return undefined;
    const found = keys.get(key) ?? scopeUnder(keyLimitsOf(policy, key));
    keys.set(key, found);
    return found;
  }

  /** Gives slots to those who may have one at this time; returns when the next may. */
  function letGo(atMs: number): number {
    const atUs = Math.round(ORIGIN_US + atMs * 1_000);
    const drawer = noDrawer(atUs);
    const full = new Set<string>();
    let nextUs = Infinity;
    const waiting = line.slice();
    for (const call of waiting) {
      if (call.key !== undefined && full.has(call.key)) continue;
      const reachUs = aheadUs(call.rank);
      const [costs, ownCosts] = [call.costs.slice(0, count), call.costs.slice(count)];
      const own = keyScopeOf(call);
      const opensUs = Math.max(atUs, shared.lastUs, own?.lastUs ?? 0);
      const sharedUs = earliestForAllUs(shared, opensUs, costs, drawer);
      const ownUs = own === undefined ? atUs : earliestForAllUs(own, sharedUs, ownCosts, drawer);
      // Beside shared limits a key's limits give nothing ahead: they let a slot pass or not.
      const isHeld = count === 0 ? ownUs > atUs + reachUs : ownUs > sharedUs;
      if (isHeld) {
        nextUs = Math.min(nextUs, ownUs - reachUs);
        full.add(call.key!);
        continue;
      }
      if (sharedUs > atUs + reachUs) return Math.min(nextUs, sharedUs - reachUs);
      const slotUs = Math.max(sharedUs, ownUs);
      commitAll(shared, slotUs, costs, drawer);
      if (own !== undefined) commitAll(own, slotUs, ownCosts, drawer);
      went.set(call, (slotUs - ORIGIN_US) / 1_000);
      line.splice(line.indexOf(call), 1);
    }
    return nextUs;
  }

  let atMs = 0;
  for (let next = 0; ;) {
    for (; arrivals[next] !== undefined && arrivals[next]!.atMs <= atMs; next++) {
      const call = arrivals[next]!;
      const place = line.findLastIndex(({ rank }) => rank <= call.rank);
      line.splice(place + 1, 0, call);
    }
    const nextMs = (letGo(atMs) - ORIGIN_US) / 1_000;
    const dueMs = Math.min(nextMs, arrivals[next]?.atMs ?? Infinity);
    if (dueMs > 3 * forMs) return went;
    atMs = Math.max(dueMs, atMs + 0.001);
  }
}

function scopeUnder(limits: MixRun["policy"]["limits"]): Scope {
  const scope = freshScope();
  applyLimits(scope, limits, 0);
  return scope;
}
