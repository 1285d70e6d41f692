import { COOLING, PAUSED, type Drawn, type Granted } from "../../core/store.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import { RECHECK_MS, type Received } from "./ask-times.ts";
import type { Group, Known, Told } from "./group.ts";

/**
 * What is known of when calls can start: a call whose `maxWaitMs` is over before that is hopeless, and is refused at
 * once. This is the one place that decides what is known:
 *
 * - a pause or a cooldown, of the bucket or the key, lasts until the end that the last reply told of;
 * - a limit has no room before the time that the last reply told of, while no call here holds a slot that it may leave.
 *
 * How long a line is, or when a lease comes free, is not known: others may leave. News of a change voids all of it, and
 * so does time, since news may get lost.
 */
export interface KnownTimes {
  /** Takes in the reply to a request that left in this epoch; a stale one says nothing. */
  learn(
    reply: Drawn,
    groups: readonly Group[],
    learned: Received & { readonly epoch: number },
  ): void;
  /** Counts how often all was forgotten: a reply to an older request says nothing. */
  readonly epoch: number;
  /** There is news: nothing is known until the next reply. */
  forget(): void;
  /** What is known of a group's calls, however old; undefined if nothing holds them back. */
  of(group: Group, nowMs: number): Known | undefined;
  /** Before when no call of this group can start, surely; 0: that is not known. */
  surelyNotBeforeMs(group: Group, nowMs: number): number;
  /** Before when calls of several groups cannot start: what is known of the bucket itself; 0: nothing is. */
  readonly ofBucketMs: number;
  /** Whether a reply has just told of this group. */
  isFresh(group: Group, nowMs: number): boolean;
}

/** What one reply told of a limit of the bucket holds for calls that cost as much or more. */
interface ToldOfBucket extends Told {
  readonly costs: readonly number[];
}

/** Another process may have given back what a limit counted; nothing tells this one. */
const LIMIT_FRESH_MS = HORIZON_MS;
/** The clocks of this process and the bucket are compared this closely, or a little less so. */
const MARGIN_MS = 5;

export function createKnownTimes(holdsSlots: (beside: Group | undefined) => boolean): KnownTimes {
  let epoch = 0;
  let closed: Told | undefined;
  let ofBucket: ToldOfBucket | undefined;

  function isValid(told: Told | undefined, nowMs: number): told is Told {
    return told !== undefined && told.epoch === epoch && told.atMs > nowMs;
  }

  /** All that a reply told of calls of this group. */
  function* toldOf(group: Group, nowMs: number): Iterable<Told> {
    if (isValid(closed, nowMs)) yield closed;
    if (isValid(group.told, nowMs)) yield group.told;
    const costs = ofBucket?.costs;
    const isAsLarge = costs?.every((cost, index) => group.callTerms.costs[index]! >= cost) ?? false;
    if (isAsLarge && isValid(ofBucket, nowMs)) yield ofBucket;
  }

  function isSure(told: Told, group: Group, nowMs: number): boolean {
    const ageMs = nowMs - told.arrivedMs;
    if (told.bindsAt === COOLING || told.bindsAt === PAUSED) return ageMs < RECHECK_MS;
    const isOfKey = told.bindsAt > group.callTerms.shared.length;
    return ageMs < LIMIT_FRESH_MS && !holdsSlots(isOfKey ? group : undefined);
  }

  function later<T extends Known>(a: T | undefined, b: T): T {
    return a === undefined || b.atMs > a.atMs ? b : a;
  }

  return {
    get epoch() {
      return epoch;
    },
    learn(reply, groups, { arrivedMs, offsetMs, isStale, epoch: learnedIn }) {
      if (isStale || learnedIn !== epoch) return;
      const told = (us: number, bindsAt: number): Told => {
        const atMs = us === 0 ? 0 : us / 1_000 + offsetMs;
        return { atMs, bindsAt, arrivedMs, epoch };
      };
      closed = told(reply.closedUntilUs, reply.closedBy);
      ofBucket = undefined;
      for (const [index, granted] of firstUnmet(reply.granted, groups)) {
        const group = groups[index]!;
        const { shared, costs } = group.callTerms;
        const { soonestUs, bindsAt } = granted;
        group.told = told(soonestUs, bindsAt);
        if (bindsAt > 0 && bindsAt <= shared.length) {
          ofBucket = later(ofBucket, { ...group.told, costs: costs.slice(0, shared.length) });
        }
      }
    },
    forget() {
      epoch += 1;
    },
    of(group, nowMs) {
      let latest: Told | undefined;
      for (const told of toldOf(group, nowMs)) latest = later(latest, told);
      return latest;
    },
    surelyNotBeforeMs(group, nowMs) {
      let latestMs = 0;
      for (const told of toldOf(group, nowMs)) {
        if (told.atMs > latestMs && isSure(told, group, nowMs)) latestMs = told.atMs;
      }
      return Math.max(0, latestMs - MARGIN_MS);
    },
    get ofBucketMs() {
      return Math.max(closed?.atMs ?? 0, ofBucket?.atMs ?? 0);
    },
    isFresh({ told }, nowMs) {
      return told !== undefined && told.epoch === epoch && nowMs - told.arrivedMs < LIMIT_FRESH_MS;
    },
  };
}

/** Of each group the first wish that lacks slots, or else its last: that says that nothing holds it back. */
function firstUnmet(granted: readonly Granted[], groups: readonly Group[]): Map<number, Granted> {
  const ofGroups = new Map<Group, number>();
  for (const [index, group] of groups.entries()) {
    const found = ofGroups.get(group);
    if (found === undefined || granted[found]!.soonestUs === 0) ofGroups.set(group, index);
  }
  return new Map([...ofGroups.values()].map((index) => [index, granted[index]!]));
}
