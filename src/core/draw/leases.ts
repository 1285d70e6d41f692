import { countLeases, leaseName, waitersOf, type Leases } from "../limits/concurrency.ts";
import { isLeased, ruleOf } from "../limits/registry.ts";
import type { Limit } from "../limits/rule.ts";
import type { LeasesRequest } from "../store.ts";
import { clockAt, scopeOfKey, type BucketState } from "./bucket-state.ts";
import { keptName, type Scope } from "./scope.ts";

/** Makes leases last for another period from now. Returns those that were already lost. Twin of `lua/bucket/leases-renew.lua`. */
export function renewLeases(
  state: BucketState,
  request: LeasesRequest,
  serverUs: number,
): number[] {
  const nowUs = clockAt(state, serverUs);
  const lost = new Set<number>();
  for (const { limit, kept } of readLeases(state, request)) {
    for (const lease of request.leases) {
      const name = leaseName(request.asker, lease);
      if ((kept.leases.get(name) ?? 0) <= nowUs) lost.add(lease);
      else kept.leases.set(name, nowUs + limit.periodUs);
    }
  }
  return [...lost];
}

/**
 * How many more calls could start under the limits on calls at once, beside all that wait for one; 0 if there is no such
 * limit. Twin of `spare_leases` in `lua/lib/limits/concurrency.lua`.
 */
export function spareLeases({ records }: Scope, nowUs: number): number {
  const spare = records.flatMap(({ limit, state }) => {
    if (!isLeased(limit)) return [];
    const leases = state as Leases;
    return [limit.count - countLeases(leases, nowUs) - waitersOf(leases, nowUs).length];
  });
  return spare.length === 0 ? 0 : Math.max(0, Math.min(...spare));
}

/** An asker to wake, and the key with a free lease for it; without a key, a shared limit has the free lease. */
interface Woken {
  readonly asker: string;
  readonly key: string | undefined;
}

/** Gives leases back. Returns the askers that have waited longest for what is free now. Twin of `lua/bucket/leases-release.lua`. */
export function releaseLeases(
  state: BucketState,
  request: LeasesRequest,
  serverUs: number,
): Woken[] {
  const nowUs = clockAt(state, serverUs);
  const woken = new Map<string, Woken>();
  for (const { limit, kept, key } of readLeases(state, request)) {
    for (const lease of request.leases) kept.leases.delete(leaseName(request.asker, lease));
    const free = Math.max(0, limit.count - countLeases(kept, nowUs));
    // One that passes an offer on does not get it back, though it may wait.
    const isPassedOn = request.leases.length === 0;
    const askers = waitersOf(kept, nowUs).map((waiter) => waiter.slice(waiter.indexOf(" ") + 1));
    const others = askers.filter((asker) => !isPassedOn || asker !== request.asker);
    for (const asker of others.slice(0, free)) woken.set(`${asker} ${key ?? ""}`, { asker, key });
  }
  return [...woken.values()];
}

/** A limit that calls hold leases of. */
interface Leased {
  readonly limit: Limit;
  readonly kept: Leases;
  /** Of a limit of the key: the key. */
  readonly key: string | undefined;
}

/** Where the asker's leases are. Its own limits say so, whatever policy is in force now. Twin of `lua/lib/request/leases.lua`. */
function readLeases(state: BucketState, { terms, scopes }: LeasesRequest): Leased[] {
  const ofKeys = scopes.flatMap(({ key, limits }) => leasedIn(scopeOfKey(state, key), limits, key));
  return [...leasedIn(state.shared, terms.limits, undefined), ...ofKeys];
}

function leasedIn({ kept }: Scope, limits: readonly Limit[], key: string | undefined): Leased[] {
  return limits.flatMap((limit, index) => {
    const rule = ruleOf(limit.kind);
    if (rule.isKept !== true) return [];
    const found = (kept.get(keptName(limits, index)) ?? rule.fresh()) as Leases;
    return [{ limit, kept: found, key }];
  });
}
