import { isLeased } from "../../core/limits/registry.ts";
import { RANKS } from "../../core/input/options.ts";
import type { Limit } from "../../core/limits/rule.ts";
import {
  isNone,
  limitsOfCall,
  NO_PLACE,
  type KeyScope,
  type Place,
  type Wish,
} from "../../core/store.ts";
import { rankOf, type Arrival, type GroupSchedule } from "./group-schedule.ts";
import { lacking, lackingInOrder, type Group, type Lacking } from "./group.ts";

/**
 * What to ask for: a wish is what one request asks for one group and priority; the groups are in the wishes' order. The
 * last wishes may want nothing: they only ask when calls of their groups could start.
 */
export interface Wishes {
  readonly groups: readonly Group[];
  readonly wishes: readonly Wish[];
  /** The first call of each wish. */
  readonly firsts: readonly Arrival[];
}

/** The first request of a bucket has this many wishes at most; the rest come with the next one. */
const FIRST_WISHES = 12;
/** However many slots replies bring, a request has no more wishes than this. */
const MOST_WISHES = 128;
/** A request asks when calls of up to this many other groups could start. */
const MOST_LOOKS = 12;
/** How many groups one reply surely covers. */
export const MOST_ASKED_ABOUT: number = FIRST_WISHES + MOST_LOOKS;

/** How much of the largest recent turn is expected of the next one. */
const KEPT_OF_TURN = 0.9;

/** How many wishes a request has at most. */
export interface WishCount {
  readonly most: number;
  /** A reply brought `granted` slots for the `wanted` calls that were asked for. */
  granted(granted: number, wanted: number): void;
}

/**
 * A request asks for what one turn brings, and a few calls more: Redis spends time on each wish, also on those that it has
 * no slot for. If all are granted, the turn may have brought more.
 */
export function createWishCount(): WishCount {
  let most = FIRST_WISHES;
  /** How many slots this turn has brought so far. */
  let ofTurn = 0;
  let ofRecentTurns = 0;

  return {
    get most() {
      return most;
    },
    granted(granted, wanted) {
      ofTurn += granted;
      ofRecentTurns = Math.max(ofRecentTurns, ofTurn);
      if (granted === wanted) {
        if (wanted >= most) most = Math.min(MOST_WISHES, most * 2);
        return;
      }
      if (ofTurn > 0) {
        ofRecentTurns = Math.max(ofTurn, ofRecentTurns * KEPT_OF_TURN);
        most = Math.min(MOST_WISHES, Math.max(FIRST_WISHES, Math.ceil(ofRecentTurns) + 2));
      }
      ofTurn = 0;
    },
  };
}

/**
 * What to ask for: the most urgent calls first, then those that came first, or were deferred by their key first. If no
 * group's time has come, the one whose time is nearest is asked for, to notice whether anything has changed. Those
 * of `untold` are asked about too, even if they are not among these.
 */
export function nextWishes(
  schedule: GroupSchedule,
  untold: ReadonlySet<Group>,
  linePlaces: LinePlaces,
  { nowMs, bucketUs, most }: At,
): Wishes {
  const ready = schedule.next(most, nowMs);
  ready.sort(byArrival);
  const limitsOf = new Map<string, readonly Limit[]>();
  const asked = ready.filter((group) => joinLimits(limitsOf, group));
  const isPlain =
    asked.length === 1 && asked[0]!.callTerms.areDrains && !hasSiblings(schedule, asked[0]!);
  const all = asked.flatMap((group) => {
    const wishes = isPlain ? lacking(group) : lackingInOrder(group, most);
    return wishes.map((each) => ({ group, ...each }));
  });
  if (all.length > 1) all.sort((a, b) => a.rank - b.rank || a.sinceMs - b.sinceMs);
  const drawn = all.length > most ? firstOf(all, most) : all;
  const first = [...drawn, ...looksAt(untold, new Set(asked), limitsOf)];
  return {
    groups: first.map(({ group }) => group),
    firsts: first,
    wishes: first.map(({ group, rank, wanted, sinceMs, nextSinceMs, lastSinceMs }) => {
      const { name, scopes, callTerms, leastUntilMs } = group;
      return {
        name,
        scopes: linePlaces.in(scopes),
        costs: callTerms.costs,
        shadowCosts: callTerms.shadowCosts,
        wanted,
        rank,
        isBounded: leastUntilMs < Infinity || untold.has(group),
        sinceUs: bucketUs(sinceMs),
        nextSinceUs: bucketUs(nextSinceMs),
        lastSinceUs: bucketUs(lastSinceMs),
      };
    }),
  };
}

interface At {
  readonly nowMs: number;
  readonly bucketUs: (ms: number) => number;
  /** How many wishes the request has at most, beside one for each of its groups. */
  readonly most: number;
}

/** Whether other groups wait for the same limits: then it matters when each call of a group came, and not only the first. */
function hasSiblings(schedule: GroupSchedule, { scopes: [widest] }: Group): boolean {
  let count = 0;
  for (const _ of widest === undefined ? schedule : schedule.ofKey(widest.key)) {
    count += 1;
    if (count > 1) return true;
  }
  return false;
}

/** Wishes that only ask when calls of some groups could start, beside those that are asked for. */
function looksAt(
  untold: ReadonlySet<Group>,
  asked: ReadonlySet<Group>,
  limitsOf: Map<string, readonly Limit[]>,
): (Lacking & { readonly group: Group })[] {
  const groups: Group[] = [];
  for (const group of untold) {
    if (groups.length === MOST_LOOKS) break;
    if (!asked.has(group) && joinLimits(limitsOf, group)) groups.push(group);
  }
  const since = { sinceMs: 0, nextSinceMs: 0, lastSinceMs: 0 };
  const rank = RANKS.normal;
  return groups.map((group) => ({ group, rank, number: Infinity, wanted: 0, ...since }));
}

/** The first wishes, and of each group one at least: one that is not asked for would be due again at once. */
function firstOf<W extends { readonly group: Group }>(wishes: readonly W[], most: number): W[] {
  const firsts = new Set<W>();
  const groups = new Set<Group>();
  for (const wish of wishes) {
    if (groups.has(wish.group)) continue;
    groups.add(wish.group);
    firsts.add(wish);
  }
  for (const wish of wishes) if (firsts.size < most) firsts.add(wish);
  return wishes.filter((wish) => firsts.has(wish));
}

/** Which group one script serves first. */
function byArrival(a: Group, b: Group): number {
  return rankOf(a) - rankOf(b) || a.line.head!.number - b.line.head!.number;
}

/**
 * Adds the limits of a group's keys to those of a request; false if a key has others there. A key whose tier has changed
 * may wait under both, and one draw takes one set of limits for it.
 */
function joinLimits(limitsOf: Map<string, readonly Limit[]>, { scopes }: Group): boolean {
  for (const { key, limits } of scopes) {
    const known = limitsOf.get(key);
    if (known !== undefined && known !== limits) return false;
  }
  for (const { key, limits } of scopes) limitsOf.set(key, limits);
  return true;
}

/** How many leases a draw with these wishes can be given at most. */
export function mostLeases(limits: readonly Limit[], wishes: readonly Wish[]): number {
  let most = 0;
  for (const { wanted, scopes } of wishes) {
    const bounds = limitsOfCall(limits, scopes).filter(isLeased);
    if (bounds.length > 0) most += Math.min(wanted, ...bounds.map(({ count }) => count));
  }
  return most;
}

/** This process's places in the lines of a bucket. */
export interface LinePlaces {
  /** Its place in the line of the bucket itself. */
  shared: Place;
  /** Its place in the line of one key. */
  of(key: string): Place;
  /** The same scopes, with its places in their lines. */
  in(scopes: readonly KeyScope[]): readonly KeyScope[];
  keep(key: string, place: Place): void;
  /** The same, and gives those places up, but none of a key that others here wait for. */
  giveUp(scopes: readonly KeyScope[], isWaitedFor: (key: string) => boolean): readonly KeyScope[];
  /**
   * Another generation has begun: the turns in the line of the bucket itself are others, but an asker that waited for a
   * lease does so since then. The turns of keys go on.
   */
  forgetSharedTurn(): void;
}

export function createLinePlaces(): LinePlaces {
  const ofKeys = new Map<string, Place>();
  const placeOf = (key: string): Place => ofKeys.get(key) ?? NO_PLACE;

  return {
    shared: NO_PLACE,
    of: placeOf,
    in: (scopes) =>
      ofKeys.size === 0 ? scopes : scopes.map((scope) => ({ ...scope, place: placeOf(scope.key) })),
    keep(key, place) {
      if (isNone(place)) ofKeys.delete(key);
      else ofKeys.set(key, place);
    },
    giveUp: (scopes, isWaitedFor) =>
      scopes.map((scope) => {
        if (isWaitedFor(scope.key)) return { ...scope, place: NO_PLACE };
        const place = placeOf(scope.key);
        ofKeys.delete(scope.key);
        return { ...scope, place };
      }),
    forgetSharedTurn() {
      const { leaseOrder } = this.shared;
      this.shared = { ...NO_PLACE, leaseOrder };
    },
  };
}
