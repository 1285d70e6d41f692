import { clockAt, type BucketState } from "./bucket-state.ts";
import { leaseName, WAITER_GONE_US } from "./limits/concurrency.ts";
import type { Limit } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";
import { keptName, type LimitRecord, type Scope } from "./scope.ts";
import type { LeasesRequest } from "./store.ts";

type Kept = { leases: Map<string, number>; waiters: Map<string, number> };

/** Lets leases last for another lease's time; those that were lost already. Twin of `lua/leases-renew.lua`. */
export function renewLeases(
  state: BucketState,
  request: LeasesRequest,
  serverUs: number,
): number[] {
  const nowUs = clockAt(state, serverUs);
  const lost = new Set<number>();
  for (const { limit, state: kept } of keepers(state, request)) {
    const { leases } = kept as Kept;
    for (const lease of request.leases) {
      const name = leaseName(request.asker, lease);
      if ((leases.get(name) ?? 0) <= nowUs) lost.add(lease);
      else leases.set(name, nowUs + limit.periodUs);
    }
  }
  return [...lost];
}

/** Gives leases back; who has waited the longest for what is free now, and is to be woken. Twin of `lua/leases-release.lua`. */
export function releaseLeases(
  state: BucketState,
  request: LeasesRequest,
  serverUs: number,
): string[] {
  const nowUs = clockAt(state, serverUs);
  const woken = new Set<string>();
  for (const { limit, state: kept } of keepers(state, request)) {
    const { leases, waiters } = kept as Kept;
    for (const lease of request.leases) leases.delete(leaseName(request.asker, lease));
    const held = [...leases.values()].filter((endUs) => endUs > nowUs).length;
    const waiting = [...waiters].filter(([, askedUs]) => askedUs > nowUs - WAITER_GONE_US);
    const names = waiting.map(([name]) => name).sort();
    for (const name of names.slice(0, Math.max(0, limit.count - held))) {
      woken.add(name.slice(name.indexOf(" ") + 1));
    }
  }
  return [...woken];
}

/** The asker's own limits say where its leases are, whatever policy is in force by now. */
function keepers(
  { shared, keys }: BucketState,
  { key, terms, keyLimits }: LeasesRequest,
): LimitRecord[] {
  const own = key === undefined ? undefined : keys.get(key);
  return [...keptBy(shared, terms.limits), ...(own === undefined ? [] : keptBy(own, keyLimits))];
}

function keptBy({ kept }: Scope, limits: readonly Limit[]): LimitRecord[] {
  return limits.flatMap((limit, index) => {
    const rule = ruleOf(limit.kind);
    if (rule.isKept !== true) return [];
    return [{ limit, state: kept.get(keptName(limits, index)) ?? rule.fresh() }];
  });
}
