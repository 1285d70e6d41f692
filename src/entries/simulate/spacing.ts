import { isLeased } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import type { Group } from "../../throttle/waiting/group.ts";

/** One limit of the bucket or of a key, as a leaky bucket. Its level drains at the rate of the limit. */
interface Drain {
  readonly limit: Limit;
  /** When the level is empty again, in ms. */
  emptyAtMs: number;
}

/** Finds the limit that spaced a call if replies name none, because all calls got slots within the horizon. */
export interface Spacing {
  /** Adds a call that starts now. */
  add(group: Group, atMs: number): void;
  /** Returns the index of the limit that had room last for the group's next call. Leased limits space no calls. */
  latestOf(group: Group): number;
}

/** @param shared The limits that all keys share. */
export function createSpacing(shared: readonly Limit[]): Spacing {
  const ofScopes = new Map<string, readonly Drain[]>();
  const ofGroups = new WeakMap<Group, readonly Drain[]>();
  const sharedDrains = drainsOf(shared);

  function drains(group: Group): readonly Drain[] {
    let found = ofGroups.get(group);
    if (found === undefined) {
      found = [...sharedDrains, ...group.scopes.flatMap(({ key, limits }) => inScope(key, limits))];
      ofGroups.set(group, found);
    }
    return found;
  }

  function inScope(key: string, limits: readonly Limit[]): readonly Drain[] {
    let found = ofScopes.get(key);
    if (found === undefined) {
      found = drainsOf(limits);
      ofScopes.set(key, found);
    }
    return found;
  }

  return {
    add(group, atMs) {
      const { costs } = group.callTerms;
      const all = drains(group);
      for (let index = 0; index < all.length; index++) {
        const drain = all[index]!;
        drain.emptyAtMs = Math.max(drain.emptyAtMs, atMs) + msToDrain(drain.limit, costs[index]!);
      }
    },
    latestOf(group) {
      const { costs } = group.callTerms;
      let [latest, latestMs] = [0, -Infinity];
      const all = drains(group);
      for (let index = 0; index < all.length; index++) {
        const { limit, emptyAtMs } = all[index]!;
        const cost = costs[index]!;
        if (isLeased(limit) || cost === 0) continue;
        const roomAtMs = emptyAtMs - msToDrain(limit, limit.capacity - cost);
        if (roomAtMs > latestMs) [latest, latestMs] = [index, roomAtMs];
      }
      return latest;
    },
  };
}

function drainsOf(limits: readonly Limit[]): readonly Drain[] {
  return limits.map((limit) => ({ limit, emptyAtMs: 0 }));
}

function msToDrain({ count, periodUs }: Limit, units: number): number {
  return (units * periodUs) / count / 1_000;
}
