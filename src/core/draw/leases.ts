import { leaseName, WAITER_GONE_US } from "../limits/concurrency.ts";
import { ruleOf } from "../limits/registry.ts";
import type { Limit } from "../limits/rule.ts";
import type { LeasesRequest } from "../store.ts";
import { clockAt, type BucketState } from "./bucket-state.ts";
import { keptName, type LimitRecord, type Scope } from "./scope.ts";

type Kept = { leases: Map<string, number>; waiters: Map<string, number> };

/** Lets leases last for another lease's time; those that were lost already. Twin of `lua/bucket/leases-renew.lua`. */
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

/** Who is to be woken, since a lease is free for it: one of this key's, or of the bucket's own. */
interface Woken {
  readonly asker: string;
  readonly key: string | undefined;
}

/** Gives leases back; who has waited the longest for what is free now, and is to be woken. Twin of `lua/bucket/leases-release.lua`. */
export function releaseLeases(
  state: BucketState,
  request: LeasesRequest,
  serverUs: number,
): Woken[] {
  const nowUs = clockAt(state, serverUs);
  const woken = new Map<string, Woken>();
  for (const { limit, state: kept, isOfKey } of keepers(state, request)) {
    const key = isOfKey ? request.key : undefined;
    const { leases, waiters } = kept as Kept;
    for (const lease of request.leases) leases.delete(leaseName(request.asker, lease));
    const held = [...leases.values()].filter((endUs) => endUs > nowUs).length;
    const waiting = [...waiters].filter(([, askedUs]) => askedUs > nowUs - WAITER_GONE_US);
    const names = waiting.map(([name]) => name).sort();
    for (const name of names.slice(0, Math.max(0, limit.count - held))) {
      const asker = name.slice(name.indexOf(" ") + 1);
      woken.set(`${isOfKey} ${asker}`, { asker, key });
    }
  }
  return [...woken.values()];
}

interface Keeper extends LimitRecord {
  readonly isOfKey: boolean;
}

/** The asker's own limits say where its leases are, whatever policy is in force by now. */
function keepers(
  { shared, keys }: BucketState,
  { key, terms, keyLimits }: LeasesRequest,
): Keeper[] {
  const own = key === undefined ? undefined : keys.get(key);
  const ofBucket = keptBy(shared, terms.limits).map((each) => ({ ...each, isOfKey: false }));
  const ofKey = own === undefined ? [] : keptBy(own, keyLimits);
  return [...ofBucket, ...ofKey.map((each) => ({ ...each, isOfKey: true }))];
}

function keptBy({ kept }: Scope, limits: readonly Limit[]): LimitRecord[] {
  return limits.flatMap((limit, index) => {
    const rule = ruleOf(limit.kind);
    if (rule.isKept !== true) return [];
    return [{ limit, state: kept.get(keptName(limits, index)) ?? rule.fresh() }];
  });
}
