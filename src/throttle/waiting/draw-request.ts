import { isLeased } from "../../core/limits/registry.ts";
import { HORIZON_US } from "../../core/policy/limit-makers.ts";
import { firstOfText } from "../../core/key-path.ts";
import { RANKS } from "../../core/input/options.ts";
import type { Limit } from "../../core/limits/rule.ts";
import type { PoolPolicy } from "../../core/policy/pool.ts";
import {
  isNone,
  limitsOfCall,
  NO_POSITION,
  type DrawRequest,
  type KeyTurns,
  type KeyScope,
  type LimitedKey,
  type WaitPosition,
  type SlotRequest,
} from "../../core/store.ts";
import {
  arrivalOf,
  BEFORE_TURNS,
  compareArrivals,
  type Arrival,
  type GroupSchedule,
} from "./group-schedule.ts";
import {
  MOST_PASSED,
  unservedByPriority,
  unservedInOrder,
  type Group,
  type Unserved,
} from "./group.ts";

/**
 * The contents of one draw request. Each slot request asks for slots of one group and one priority.
 * `groups` contains the group of each slot request. The last slot requests may want no slots. These
 * are lookups: they ask when calls of their groups could start.
 */
export interface AskedSlots {
  readonly groups: readonly Group[];
  readonly slotRequests: readonly SlotRequest[];
  /** The first call of each slot request. */
  readonly firsts: readonly Arrival[];
}

/**
 * The maximum number of slot requests in a bucket's first request. Further slot requests come with
 * the next request.
 */
const FIRST_SLOT_REQUESTS = 12;
/**
 * The same where keys take turns, because each key has a slot request of its own. With fewer, a turn
 * brings fewer slots, and more requests are needed.
 */
const FIRST_TURN_REQUESTS = 24;
/** The maximum number of slot requests in any request. */
const MOST_SLOT_REQUESTS = 128;
/** The maximum number of lookups in a request. */
const MOST_LOOKUPS = 12;
/** The number of groups that one request can always include. */
export const MOST_ASKED_ABOUT: number = FIRST_SLOT_REQUESTS + MOST_LOOKUPS;

/**
 * The factor by which the size of the largest recent turn shrinks with each turn, so that an old
 * peak does not count forever.
 */
const KEPT_OF_TURN = 0.9;

/** A round trip of this length, in ms, doubles the number of slot requests in a request. */
const DOUBLING_TRIP_MS = 10;

/**
 * Returns how many slot requests a request may contain if a round trip takes `tripMs`. A process has one request in
 * flight at a time, so a slow request asks for more keys.
 */
export function slotRequestsOver(tripMs: number, most: number): number {
  return Math.min(MOST_SLOT_REQUESTS, Math.floor(most * (1 + tripMs / DOUBLING_TRIP_MS)));
}

/** The longest horizon, in µs. */
const LONGEST_HORIZON_US = 1_000_000;

/**
 * Returns how far ahead a process books slots, in µs: two round trips, at least {@link HORIZON_US}. A process that is far
 * from Redis would otherwise start its last slot before the reply to its next request arrives.
 */
export function horizonOver(tripUs: number): number {
  return Math.min(LONGEST_HORIZON_US, Math.max(HORIZON_US, 2 * tripUs));
}

/** Limits the number of slot requests in a request. */
export interface SlotRequestCount {
  readonly most: number;
  /**
   * Call this with the number of slots that a reply contained, the number of calls that its request
   * wanted slots for, and how late the reply arrived, in ms.
   */
  granted(granted: number, wanted: number, lateMs: number): void;
}

/** A reply that is later than this, in ms, had too many slot requests, because its slots may be too late to use. */
const LATE_REPLY_MS = 4;
/** Only after a reply that is no later than this, in ms, the next request may have more slot requests. */
const PROMPT_REPLY_MS = 2;

/**
 * Adapts the number of slot requests to the number of slots that a turn usually brings, plus a few.
 * More slot requests would only cost time in Redis. If Redis grants all slots of a full request,
 * the next request doubles the number. If that reply was late, the next request halves it, because
 * a slot that is due at once would otherwise be too late, and would have to be drawn again.
 */
export function createSlotRequestCount(): SlotRequestCount {
  let most = FIRST_SLOT_REQUESTS;
  /** The number of slots granted in this turn so far. */
  let ofTurn = 0;
  let ofRecentTurns = 0;

  return {
    get most() {
      return most;
    },
    granted(granted, wanted, lateMs) {
      ofTurn += granted;
      ofRecentTurns = Math.max(ofRecentTurns, ofTurn);
      if (granted === wanted) {
        if (lateMs > LATE_REPLY_MS) most = Math.max(FIRST_SLOT_REQUESTS, Math.floor(most / 2));
        else if (wanted >= most && lateMs <= PROMPT_REPLY_MS)
          most = Math.min(MOST_SLOT_REQUESTS, most * 2);
        return;
      }
      if (ofTurn > 0) {
        ofRecentTurns = Math.max(ofTurn, ofRecentTurns * KEPT_OF_TURN);
        most = Math.min(
          MOST_SLOT_REQUESTS,
          Math.max(FIRST_SLOT_REQUESTS, Math.ceil(ofRecentTurns) + 2),
        );
      }
      ofTurn = 0;
    },
  };
}

/**
 * Builds the next request. The most urgent calls come first. Among equally urgent calls, the order
 * is by arrival, or by the time when their key deferred them. If no group's time has come, the
 * request asks for the group whose time is nearest, to detect changes. It also looks up the groups
 * in `toLookUp`.
 */
export function nextSlotRequests(
  schedule: GroupSchedule,
  toLookUp: ReadonlySet<Group>,
  waitPositions: WaitPositions,
  { nowMs, bucketUs, isFair, horizonUs = HORIZON_US, most: mostAsked }: At,
): AskedSlots {
  const most = isFair ? Math.max(mostAsked, FIRST_TURN_REQUESTS) : mostAsked;
  const ready = schedule.next(most, nowMs);
  ready.sort((a, b) => compareArrivals(arrivalOf(a), arrivalOf(b)));
  const limitsOf = new Map<string, readonly Limit[]>();
  const asked = ready.filter((group) => joinLimits(limitsOf, group));
  const isPlain =
    asked.length === 1 && asked[0]!.callTerms.areDrains && !hasSiblings(schedule, asked[0]!);
  const takeTurns = isFair && asked[0]?.turns !== undefined;
  const all: GroupRequest[] = takeTurns ? inTurns(asked, most, horizonUs) : [];
  for (const group of takeTurns ? [] : asked)
    all.push(...(isPlain ? unservedByPriority(group) : unservedInOrder(group, most)));
  if (all.length > 1 && !takeTurns) all.sort((a, b) => a.rank - b.rank || a.sinceMs - b.sinceMs);
  const some = all.length <= most ? all : takeTurns ? all.slice(0, most) : firstOf(all, most);
  const first =
    toLookUp.size === 0 ? some : [...some, ...lookupsOf(toLookUp, new Set(asked), limitsOf)];
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
        reserves: callTerms.reserves,
        home: group.pool?.home,
        sinceUs: bucketUs(sinceMs),
        nextSinceUs: bucketUs(nextSinceMs),
        lastSinceUs: bucketUs(lastSinceMs),
        turns: isFair ? turnsOf(group) : undefined,
      };
    }),
  };
}

interface At {
  readonly nowMs: number;
  readonly bucketUs: (ms: number) => number;
  /**
   * The maximum number of slot requests. If necessary, it is exceeded so that each group of the
   * request has one.
   */
  readonly most: number;
  /** Whether keys take turns. */
  readonly isFair: boolean;
  /** How far ahead slots are booked. Defaults to {@link HORIZON_US}. */
  readonly horizonUs?: number;
}

type GroupRequest = Unserved & Pick<Arrival, "turnTags">;

/** The most parts into which the calls of one group are split. */
const MOST_PARTS = 4;
/** How many horizons the calls of one request may fill. Other replicas see those that get no slot. */
const HORIZONS_ASKED = 2;

/**
 * Splits the calls of groups into parts, because their keys take turns within one request. All calls of a part are
 * served together. The part that the floor of a key guarantees within a horizon is separate.
 */
function inTurns(groups: readonly Group[], most: number, horizonUs: number): GroupRequest[] {
  const partCount = Math.min(MOST_PARTS, Math.max(1, Math.floor(most / groups.length)));
  const parts: GroupRequest[] = [];
  const floors = new Set<string>();
  for (const group of groups) {
    const { names, floorUs, weights } = group.turns!;
    const hasFloor = floorUs > 0 && !floors.has(firstOfText(names));
    if (hasFloor) floors.add(firstOfText(names));
    const [widest = 0, ...narrower] = group.turnTags;
    const { sharedStepMs } = group.callTerms;
    const inHorizons = (HORIZONS_ASKED * horizonUs) / 1_000 / sharedStepMs / groups.length;
    const unserved = unservedByPriority(group);
    const wanted = unserved.reduce((sum, each) => sum + each.wanted, 0);
    const even =
      groups.length === 1 ? Infinity : Math.ceil(Math.min(inHorizons, wanted) / MOST_PARTS);
    let size = hasFloor ? Math.max(1, Math.floor(horizonUs / floorUs)) : even;
    let taken = 0;
    let left = partCount;
    for (const each of unserved) {
      for (let from = 0; from < each.wanted && left > 0; size = even) {
        const count = Math.min(size, each.wanted - from);
        const isFloor = hasFloor && taken === 0;
        const startTag = widest + (taken * sharedStepMs * 1_000) / weights[0]!;
        const turnTags = isFloor ? BEFORE_TURNS : [startTag, ...narrower];
        parts.push(partOf(each, from, count, turnTags));
        taken += count;
        from += count;
        left -= 1;
      }
    }
  }
  return parts.sort(compareArrivals);
}

/** Returns the slot request for a part of the calls of another one. */
function partOf(
  all: Unserved,
  from: number,
  count: number,
  turnTags: readonly number[],
): GroupRequest {
  const { group, rank, number, first } = all;
  const at = (index: number): number => arrivalAt(all, Math.min(index, all.wanted - 1));
  return {
    group,
    rank,
    number,
    wanted: count,
    sinceMs: at(from),
    nextSinceMs: at(from + 1),
    lastSinceMs: at(from + count - 1),
    first,
    turnTags,
  };
}

/** Returns when one of the calls arrived that a slot request is for, by its number from 0. */
function arrivalAt({ first, wanted, sinceMs, lastSinceMs }: Unserved, index: number): number {
  if (first === undefined || index > MOST_PASSED) {
    return sinceMs + ((lastSinceMs - sinceMs) * index) / Math.max(1, wanted - 1);
  }
  let caller = first;
  for (let passed = 0; passed < index; passed++) caller = caller.next ?? caller;
  return caller.queuedMs;
}

/** How the key of a group takes turns: it keeps its tags only if its calls have waited since the last reply. */
function turnsOf({ turns, keepsTags }: Group): KeyTurns | undefined {
  return turns && { ...turns, isPending: keepsTags };
}

/**
 * Returns true if other groups wait for the same limits. Then the arrival of each call matters, not
 * only the arrival of the group's first call.
 */
function hasSiblings(schedule: GroupSchedule, { scopes: [widest] }: Group): boolean {
  let count = 0;
  for (const _ of widest === undefined ? schedule : schedule.ofKey(widest.key)) {
    count += 1;
    if (count > 1) return true;
  }
  return false;
}

/** Creates lookups for the groups that have no slot request in this request. */
function lookupsOf(
  toLookUp: ReadonlySet<Group>,
  asked: ReadonlySet<Group>,
  limitsOf: Map<string, readonly Limit[]>,
): GroupRequest[] {
  const groups: Group[] = [];
  for (const group of toLookUp) {
    if (groups.length === MOST_LOOKUPS) break;
    if (!asked.has(group) && joinLimits(limitsOf, group)) groups.push(group);
  }
  const none = { number: Infinity, wanted: 0, sinceMs: 0, nextSinceMs: 0, lastSinceMs: 0 };
  return groups.map((group) => ({ group, rank: RANKS.normal, first: undefined, ...none }));
}

/**
 * Returns the first slot requests, and at least one for each group. A group without a slot request
 * would be due again immediately.
 */
function firstOf(slotRequests: readonly GroupRequest[], most: number): GroupRequest[] {
  const firsts = new Set<GroupRequest>();
  const groups = new Set<Group>();
  for (const slotRequest of slotRequests) {
    if (groups.has(slotRequest.group)) continue;
    groups.add(slotRequest.group);
    firsts.add(slotRequest);
  }
  for (const slotRequest of slotRequests) if (firsts.size < most) firsts.add(slotRequest);
  return slotRequests.filter((slotRequest) => firsts.has(slotRequest));
}

/**
 * Adds the limits of a group's keys to the limits of a request. Returns false if the request
 * already contains different limits for one of the keys. After a tier change, a key's calls may
 * wait under the old and the new limits, but a draw accepts only one set of limits per key.
 */
function joinLimits(limitsOf: Map<string, readonly Limit[]>, { scopes }: Group): boolean {
  for (const { key, limits } of scopes) {
    const known = limitsOf.get(key);
    if (known !== undefined && known !== limits) return false;
  }
  for (const { key, limits } of scopes) limitsOf.set(key, limits);
  return true;
}

/** Returns true if calls of this process may use a member of a pool. */
export type UsesMember = (name: string) => boolean;

/** Returns the members from which the store chooses one for each call. */
export function poolRequest(
  { members, stickyUs = 0 }: PoolPolicy,
  usesMember: UsesMember = () => true,
): DrawRequest["pool"] {
  return {
    stickyUs,
    members: members.map(({ name, scope: { key, limits }, isDrained, tier }) => {
      return { key, limits, tier, isUsable: !isDrained && usesMember(name) };
    }),
  };
}

/** Returns the maximum number of leases that a draw with these slot requests can get. */
export function mostLeases(
  limits: readonly Limit[],
  slotRequests: readonly SlotRequest[],
  members: readonly Pick<LimitedKey, "limits">[] = [],
): number {
  // A slot of a pool has a number, even if its member needs no lease.
  const areSome = members.some((member) => member.limits.some(isLeased));
  let most = 0;
  const isNone = !areSome && !limits.some(isLeased);
  for (const { wanted, scopes } of slotRequests) {
    if (isNone && scopes.length === 0) continue;
    const bounds = limitsOfCall(limits, scopes).filter(isLeased);
    const counts = bounds.map(({ count }) => count);
    if (counts.length > 0 || areSome) most += Math.min(wanted, ...counts);
  }
  return most;
}

/** This process's queue positions in a bucket. */
export interface WaitPositions {
  /** The queue position in the bucket itself. */
  shared: WaitPosition;
  /** Returns the queue position of one key. */
  of(key: string): WaitPosition;
  /** Returns copies of the scopes with this process's queue positions filled in. */
  in(scopes: readonly KeyScope[]): readonly KeyScope[];
  keep(key: string, position: WaitPosition): void;
  /**
   * Like `in`, but then forgets the positions. It keeps those of keys for which other callers of
   * this process wait.
   */
  giveUp(scopes: readonly KeyScope[], isWaitedFor: (key: string) => boolean): readonly KeyScope[];
  /**
   * Call this when a new generation of slots begins. The bucket's turn is then invalid and
   * forgotten. The queue position for a lease and the turns of keys stay valid.
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
