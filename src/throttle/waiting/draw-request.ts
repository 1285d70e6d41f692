import { isLeased } from "../../core/limits/registry.ts";
import { RANKS } from "../../core/input/options.ts";
import type { Limit } from "../../core/limits/rule.ts";
import {
  isNone,
  limitsOfCall,
  NO_POSITION,
  type KeyScope,
  type WaitPosition,
  type SlotRequest,
} from "../../core/store.ts";
import { rankOf, type Arrival, type GroupSchedule } from "./group-schedule.ts";
import { unservedByPriority, unservedInOrder, type Group, type Unserved } from "./group.ts";

/**
 * The contents of one draw request. Each slot request asks for slots of one group and one priority; `groups` has the group of
 * each slot request. The last slot requests may want no slots: these are lookups of when calls of their groups could start.
 */
export interface AskedSlots {
  readonly groups: readonly Group[];
  readonly slotRequests: readonly SlotRequest[];
  /** The first call of each slot request. */
  readonly firsts: readonly Arrival[];
}

/** The most slot requests in the first request of a bucket; the rest come with the next one. */
const FIRST_WISHES = 12;
/** The most slot requests in any request. */
const MOST_WISHES = 128;
/** The most lookups in a request. */
const MOST_LOOKUPS = 12;
/** The number of groups that one reply certainly covers. */
export const MOST_ASKED_ABOUT: number = FIRST_WISHES + MOST_LOOKUPS;

/** Each turn forgets a tenth of the largest recent turn, so that an old peak does not count forever. */
const KEPT_OF_TURN = 0.9;

/** Limits the number of slot requests in a request. */
export interface SlotRequestCount {
  readonly most: number;
  /** A reply brought `granted` slots for the `wanted` calls of its request. */
  granted(granted: number, wanted: number): void;
}

/**
 * Adapts the number of slot requests to the number of slots that a turn usually brings, plus a few. More slot requests would
 * only cost time in Redis. When Redis grants all slots of a full request, the next request doubles the number.
 */
export function createSlotRequestCount(): SlotRequestCount {
  let most = FIRST_WISHES;
  /** The slots that this turn has brought so far. */
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
 * Chooses the next request: the most urgent calls first, then those that arrived first or were deferred first. If no
 * group's time has come, the request asks for the group whose time is nearest, to notice changes. It also looks up the
 * groups in `toLookUp`.
 */
export function nextSlotRequests(
  schedule: GroupSchedule,
  toLookUp: ReadonlySet<Group>,
  waitPositions: WaitPositions,
  { nowMs, bucketUs, most }: At,
): AskedSlots {
  const ready = schedule.next(most, nowMs);
  ready.sort(byArrival);
  const limitsOf = new Map<string, readonly Limit[]>();
  const asked = ready.filter((group) => joinLimits(limitsOf, group));
  const isPlain =
    asked.length === 1 && asked[0]!.callTerms.areDrains && !hasSiblings(schedule, asked[0]!);
  const all = asked.flatMap((group) => {
    const slotRequests = isPlain ? unservedByPriority(group) : unservedInOrder(group, most);
    return slotRequests.map((each) => ({ group, ...each }));
  });
  if (all.length > 1) all.sort((a, b) => a.rank - b.rank || a.sinceMs - b.sinceMs);
  const drawn = all.length > most ? firstOf(all, most) : all;
  const first = [...drawn, ...lookupsOf(toLookUp, new Set(asked), limitsOf)];
  return {
    groups: first.map(({ group }) => group),
    firsts: first,
    slotRequests: first.map(({ group, rank, wanted, sinceMs, nextSinceMs, lastSinceMs }) => {
      const { name, scopes, callTerms, leastUntilMs } = group;
      return {
        name,
        scopes: waitPositions.in(scopes),
        costs: callTerms.costs,
        shadowCosts: callTerms.shadowCosts,
        wanted,
        rank,
        isBounded: leastUntilMs < Infinity || toLookUp.has(group),
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
  /** The most slot requests in the request; one for each of its groups is allowed beyond that. */
  readonly most: number;
}

/** True if other groups wait for the same limits. Then the arrival of each call matters, and not only of the first. */
function hasSiblings(schedule: GroupSchedule, { scopes: [widest] }: Group): boolean {
  let count = 0;
  for (const _ of widest === undefined ? schedule : schedule.ofKey(widest.key)) {
    count += 1;
    if (count > 1) return true;
  }
  return false;
}

/** Creates the lookups for groups that the request does not ask for anyway. */
function lookupsOf(
  toLookUp: ReadonlySet<Group>,
  asked: ReadonlySet<Group>,
  limitsOf: Map<string, readonly Limit[]>,
): (Unserved & { readonly group: Group })[] {
  const groups: Group[] = [];
  for (const group of toLookUp) {
    if (groups.length === MOST_LOOKUPS) break;
    if (!asked.has(group) && joinLimits(limitsOf, group)) groups.push(group);
  }
  const since = { sinceMs: 0, nextSinceMs: 0, lastSinceMs: 0 };
  const rank = RANKS.normal;
  return groups.map((group) => ({ group, rank, number: Infinity, wanted: 0, ...since }));
}

/** The first slot requests, and at least one of each group: a group that is left out would be due again immediately. */
function firstOf<W extends { readonly group: Group }>(
  slotRequests: readonly W[],
  most: number,
): W[] {
  const firsts = new Set<W>();
  const groups = new Set<Group>();
  for (const slotRequest of slotRequests) {
    if (groups.has(slotRequest.group)) continue;
    groups.add(slotRequest.group);
    firsts.add(slotRequest);
  }
  for (const slotRequest of slotRequests) if (firsts.size < most) firsts.add(slotRequest);
  return slotRequests.filter((slotRequest) => firsts.has(slotRequest));
}

/** The order in which one script serves groups. */
function byArrival(a: Group, b: Group): number {
  return rankOf(a) - rankOf(b) || a.line.head!.number - b.line.head!.number;
}

/**
 * Adds the limits of a group's keys to those of a request. Returns false if the request already has other limits for
 * one of the keys. After a change of tier a key may wait under both, but a draw takes one set of limits for each key.
 */
function joinLimits(limitsOf: Map<string, readonly Limit[]>, { scopes }: Group): boolean {
  for (const { key, limits } of scopes) {
    const known = limitsOf.get(key);
    if (known !== undefined && known !== limits) return false;
  }
  for (const { key, limits } of scopes) limitsOf.set(key, limits);
  return true;
}

/** The most leases that a draw with these slot requests can get. */
export function mostLeases(limits: readonly Limit[], slotRequests: readonly SlotRequest[]): number {
  let most = 0;
  for (const { wanted, scopes } of slotRequests) {
    const bounds = limitsOfCall(limits, scopes).filter(isLeased);
    if (bounds.length > 0) most += Math.min(wanted, ...bounds.map(({ count }) => count));
  }
  return most;
}

/** This process's queue positions in a bucket. */
export interface WaitPositions {
  /** The position in the queue of the bucket itself. */
  shared: WaitPosition;
  /** The position in the queue of one key. */
  of(key: string): WaitPosition;
  /** Returns copies of the scopes with this process's queue positions filled in. */
  in(scopes: readonly KeyScope[]): readonly KeyScope[];
  keep(key: string, position: WaitPosition): void;
  /** Like `in`, but then forgets the positions, except for keys that other callers of this process wait for. */
  giveUp(scopes: readonly KeyScope[], isWaitedFor: (key: string) => boolean): readonly KeyScope[];
  /**
   * A new generation of slots has begun, which has new turns for the bucket itself. A process that waited for a lease
   * keeps its position, and so do the turns of keys.
   */
  forgetSharedTurn(): void;
}

export function createWaitPositions(): WaitPositions {
  const ofKeys = new Map<string, WaitPosition>();
  const positionOf = (key: string): WaitPosition => ofKeys.get(key) ?? NO_POSITION;

  return {
    shared: NO_POSITION,
    of: positionOf,
    in: (scopes) =>
      ofKeys.size === 0
        ? scopes
        : scopes.map((scope) => ({ ...scope, position: positionOf(scope.key) })),
    keep(key, position) {
      if (isNone(position)) ofKeys.delete(key);
      else ofKeys.set(key, position);
    },
    giveUp: (scopes, isWaitedFor) =>
      scopes.map((scope) => {
        if (isWaitedFor(scope.key)) return { ...scope, position: NO_POSITION };
        const position = positionOf(scope.key);
        ofKeys.delete(scope.key);
        return { ...scope, position };
      }),
    forgetSharedTurn() {
      const { leaseOrder } = this.shared;
      this.shared = { ...NO_POSITION, leaseOrder };
    },
  };
}
