import { causeOf, SLOWED, type Drawn, type Granted } from "../../core/store.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import { RECHECK_MS, type AskTimes, type Received } from "./ask-times.ts";
import type { Dispatcher } from "./dispatch.ts";
import { MOST_ASKED_ABOUT, type AskedSlots } from "./draw-request.ts";
import type { Caller, Group, EarliestStart, CachedReply } from "./group.ts";

/**
 * Caches the earliest start times of calls from Redis's replies. A call whose deadline is before
 * that time is rejected immediately. Some entries are certain:
 *
 * - A pause or a cooldown of the bucket or the key lasts until the end time in the latest reply.
 * - A limit has no room before the time in the latest reply. This is certain while this process
 *   holds no slot that it may give back.
 *
 * The length of a line and the end of a lease are never certain, because other callers may leave. A
 * change notification clears the cache. Entries also expire, because a notification can be lost.
 */
export interface EarliestStartCache {
  /**
   * Stores a reply, unless the reply is stale or the cache was cleared after the request was sent.
   */
  learn(reply: Drawn, asked: AskedSlots, learned: Received & { readonly epoch: number }): void;
  /**
   * The number of times that the cache was cleared. Replies to requests from an earlier epoch are
   * ignored.
   */
  readonly epoch: number;
  /** Clears the cache. */
  forget(): void;
  /**
   * Returns the earliest start of a group's calls according to all valid replies. Undefined if no
   * valid reply delays them.
   */
  of(group: Group, nowMs: number): EarliestStart | undefined;
  /**
   * Returns the time before which certainly no call of this group can start. 0 if no such time is
   * known.
   */
  surelyNotBeforeMs(group: Group, nowMs: number): number;
  /** Returns true if a call of this group may miss its deadline, even if that is not certain. */
  mayMissDeadline(group: Group, nowMs: number): boolean;
  /**
   * The time before which the bucket itself lets no call start, from the latest reply. 0 if it is
   * not known.
   */
  readonly ofBucketMs: number;
  /** Returns true if a recent reply included this group, within `LIMIT_FRESH_MS`. */
  hasFreshReply(group: Group, nowMs: number): boolean;
  /** Returns true if a reply of the current epoch included this group. */
  hasReply(group: Group): boolean;
}

/** A reply about a limit of the bucket. It applies to calls whose costs are at least `costs`. */
interface CachedBucketReply extends CachedReply {
  readonly costs: readonly number[];
}

/**
 * A reply about a limit expires after this time, because another process may give slots back
 * without a notification.
 */
const LIMIT_FRESH_MS = HORIZON_MS;
/** The maximum error of this process's estimate of the bucket's clock, in ms. */
const MARGIN_MS = 5;

export function createEarliestStartCache(
  dispatcher: Pick<Dispatcher, "holdsSlots">,
): EarliestStartCache {
  let epoch = 0;
  let closed: CachedReply | undefined;
  let ofBucket: CachedBucketReply | undefined;

  function isValid(reply: CachedReply | undefined, nowMs: number): reply is CachedReply {
    return reply !== undefined && reply.epoch === epoch && reply.atMs > nowMs;
  }

  /** Yields the valid replies that apply to calls of this group. */
  function* repliesOf(group: Group, nowMs: number): Iterable<CachedReply> {
    if (isValid(closed, nowMs)) yield closed;
    if (isValid(group.cachedReply, nowMs)) yield group.cachedReply;
    const costs = ofBucket?.costs;
    const isAsLarge = costs?.every((cost, index) => group.callTerms.costs[index]! >= cost) ?? false;
    if (isAsLarge && isValid(ofBucket, nowMs)) yield ofBucket;
  }

  function isSure(reply: CachedReply, group: Group, nowMs: number): boolean {
    const ageMs = nowMs - reply.arrivedMs;
    if (reply.bindsAt < 0 && causeOf(reply.bindsAt).cause !== SLOWED) return ageMs < RECHECK_MS;
    const isOfKey = reply.bindsAt > group.callTerms.shared.length;
    return (
      ageMs < LIMIT_FRESH_MS && !dispatcher.holdsSlots(isOfKey ? group : undefined, reply.bindsAt)
    );
  }

  function later<T extends EarliestStart>(a: T | undefined, b: T): T {
    return a === undefined || b.atMs > a.atMs ? b : a;
  }

  function latestOf(group: Group, nowMs: number): CachedReply | undefined {
    let latest: CachedReply | undefined;
    for (const reply of repliesOf(group, nowMs)) latest = later(latest, reply);
    return latest;
  }

  function hasReply({ cachedReply: reply }: Group): boolean {
    return reply !== undefined && reply.epoch === epoch;
  }

  return {
    get epoch() {
      return epoch;
    },
    learn(reply, asked, { arrivedMs, offsetMs, isStale, epoch: learnedIn }) {
      if (isStale || learnedIn !== epoch) return;
      const cached = (us: number, bindsAt: number): CachedReply => {
        const atMs = us === 0 ? 0 : us / 1_000 + offsetMs;
        return { atMs, bindsAt, arrivedMs, epoch };
      };
      closed = cached(reply.closedUntilUs, reply.closedBy);
      ofBucket = undefined;
      for (const [index, granted] of firstUnmet(reply.granted, asked.groups)) {
        const group = asked.groups[index]!;
        const { shared, costs } = group.callTerms;
        const { soonestUs, bindsAt, notBeforeUs } = granted;
        const ofGroup = cached(soonestUs, bindsAt);
        // If false, the reply may only be about the bucket, and the previous reply about the key
        // stays valid.
        const isOfKey = asked.slotRequests[index]!.isBounded || notBeforeUs > 0;
        const isWhole = isOfKey || group.scopes.length === 0;
        // If all calls got slots, nothing is known about the next call. A spent budget rejects
        // calls with its own error.
        if (soonestUs === 0 || granted.spent !== undefined) group.cachedReply = undefined;
        else if (isWhole) group.cachedReply = ofGroup;
        if (bindsAt > 0 && bindsAt <= shared.length && granted.spent === undefined) {
          ofBucket = later(ofBucket, { ...ofGroup, costs: costs.slice(0, shared.length) });
        }
      }
    },
    forget() {
      epoch += 1;
    },
    of: latestOf,
    surelyNotBeforeMs(group, nowMs) {
      let latestMs = 0;
      for (const reply of repliesOf(group, nowMs)) {
        if (reply.atMs > latestMs && isSure(reply, group, nowMs)) latestMs = reply.atMs;
      }
      return Math.max(0, latestMs - MARGIN_MS);
    },
    mayMissDeadline(group, nowMs) {
      const latest = latestOf(group, nowMs);
      return latest !== undefined && group.leastUntilMs < latest.atMs - MARGIN_MS;
    },
    get ofBucketMs() {
      return Math.max(closed?.atMs ?? 0, ofBucket?.atMs ?? 0);
    },
    hasFreshReply: (group, nowMs) =>
      hasReply(group) && nowMs - group.cachedReply!.arrivedMs < LIMIT_FRESH_MS,
    hasReply,
  };
}

/**
 * Rejects calls that cannot start before their deadline. For a group without a known start time, it
 * adds a lookup to the next draw request. A lookup asks when a call could start, without drawing a
 * slot.
 */
export interface EarlyRejection {
  /** True if a new caller must be rejected immediately. */
  isTooLate(caller: Caller): boolean;
  /** Call this when a caller has joined its line. */
  joined(caller: Caller): void;
  /**
   * Looks up the start time of a group for a call that waits elsewhere. Resolves when the start
   * time is known, or cannot be determined.
   */
  lookUp(group: Group): Promise<void>;
  /** True if a lookup is requested. */
  readonly hasLookups: boolean;
  /**
   * Schedules a request soon, so that callers that can no longer meet their deadline are rejected.
   */
  scheduleSoon(): void;
  /** Soon looks up the start times of the groups that have a caller with a deadline. */
  requestStartTimes(groups: Iterable<Group>): void;
  /** Returns the groups that the next request looks up. */
  next(): ReadonlySet<Group>;
  /**
   * Call this when a reply included `groups`. `isVoid` is true if a change notification arrived
   * after the request was sent, so the reply is outdated.
   */
  onReply(groups: readonly Group[], isVoid: boolean): void;
  /**
   * Marks `groups` for the next `refuse`. Marks all groups if the reply moved the bucket's own
   * start time past a deadline.
   */
  check(groups: Iterable<Group>): void;
  /** Rejects the waiting callers that cannot start before their deadline. */
  refuse(): void;
  endLookups(): void;
  /** Forgets all groups without a known start time, because no callers wait any more. */
  clear(): void;
}

export function createEarlyRejection({
  dispatcher,
  earliestStarts,
  askTimes,
}: {
  readonly dispatcher: Pick<Dispatcher, "waiting" | "schedule" | "takeExpiring">;
  readonly earliestStarts: EarliestStartCache;
  readonly askTimes: Pick<AskTimes, "scheduleSoon">;
}): EarlyRejection {
  const { schedule } = dispatcher;
  /** Groups whose callers may miss their deadlines. */
  const toCheck = new Set<Group>();
  /** Groups whose callers have a deadline, and whose start times are unknown. */
  const withoutStartTime = new Set<Group>();
  const lookups = new Map<
    Group,
    { readonly replied: Promise<void>; readonly resolve: () => void }
  >();
  /** A lower bound of all callers' deadlines, on `performance.now()`. */
  let leastUntilMs = Infinity;
  /** An upper bound of all callers' deadlines, on `performance.now()`. */
  let lastUntilMs = -Infinity;

  function scheduleSoon(): void {
    const nowMs = performance.now();
    if (dispatcher.waiting > 0 && nowMs < lastUntilMs) askTimes.scheduleSoon(nowMs);
  }

  function requestStartTime(group: Group): void {
    const nowMs = performance.now();
    withoutStartTime.add(group);
    askTimes.scheduleSoon(nowMs);
    if (group.notBeforeMs > nowMs) schedule.deferUntil(group, 0);
  }

  function requestStartTimes(groups: Iterable<Group>): void {
    for (const group of groups) if (group.leastUntilMs < Infinity) requestStartTime(group);
  }

  function check(groups: Iterable<Group>): void {
    const areOthers = leastUntilMs < earliestStarts.ofBucketMs;
    if (areOthers) leastUntilMs = Infinity;
    for (const group of areOthers ? schedule : groups) {
      if (group.leastUntilMs < Infinity) toCheck.add(group);
      leastUntilMs = Math.min(leastUntilMs, group.leastUntilMs);
    }
  }

  /** Removes the callers that cannot start before their deadline, and returns them. */
  function takeTooLate(): Caller[] {
    const nowMs = performance.now();
    const tooLate: Caller[] = [];
    for (const group of toCheck) {
      const mayBe = (): boolean => !group.isIdle && earliestStarts.mayMissDeadline(group, nowMs);
      const sureMs = mayBe() ? earliestStarts.surelyNotBeforeMs(group, nowMs) : 0;
      if (group.leastUntilMs < sureMs) tooLate.push(...dispatcher.takeExpiring(group, sureMs));
      // The group stays marked while its reply is fresh: an uncertain time may become certain after
      // this process has used its held slots.
      const isOpen = mayBe();
      if (isOpen && earliestStarts.hasFreshReply(group, nowMs)) continue;
      toCheck.delete(group);
      if (isOpen) requestStartTime(group);
    }
    return tooLate;
  }

  function refuse(): void {
    if (toCheck.size === 0) return;
    const refused = takeTooLate();
    if (refused.length === 0) return;
    // All refused callers have already left their lines, so the wait estimates in their errors do
    // not count each other.
    for (const caller of refused) caller.refuse();
    // The next callers need a new request, because no reply about them has arrived yet.
    scheduleSoon();
  }

  function endLookup(group: Group): void {
    lookups.get(group)?.resolve();
    lookups.delete(group);
  }

  return {
    isTooLate({ group, untilMs }) {
      if (untilMs === Infinity) return false;
      lastUntilMs = Math.max(lastUntilMs, untilMs);
      if (untilMs >= earliestStarts.surelyNotBeforeMs(group, performance.now())) return false;
      // Without a reply about the key, the call is looked up instead, because the key may delay it
      // for longer than the bucket does. If too many calls need a lookup, the bucket's time
      // decides.
      const isKnown = group.scopes.length === 0 || earliestStarts.hasReply(group);
      return isKnown || withoutStartTime.size >= MOST_ASKED_ABOUT;
    },
    joined({ group, untilMs, patienceMs }) {
      if (untilMs === Infinity) return;
      leastUntilMs = Math.min(leastUntilMs, untilMs);
      if (earliestStarts.hasFreshReply(group, performance.now())) {
        toCheck.add(group);
        return;
      }
      // A call with limited patience is requested at its key's time anyway. It needs an early
      // request only if its deadline is before that time.
      if (patienceMs === Infinity || untilMs < group.notBeforeMs) requestStartTime(group);
      else withoutStartTime.add(group);
    },
    lookUp(group) {
      askTimes.scheduleSoon(performance.now());
      const found = lookups.get(group);
      if (found !== undefined) return found.replied;
      let resolve = (): void => {};
      const replied = new Promise<void>((done) => (resolve = done));
      lookups.set(group, { replied, resolve: () => resolve() });
      return replied;
    },
    get hasLookups() {
      return lookups.size > 0;
    },
    scheduleSoon,
    requestStartTimes,
    next() {
      const groups = new Set([...lookups.keys()].slice(0, MOST_ASKED_ABOUT));
      for (const group of withoutStartTime) {
        if (groups.size >= MOST_ASKED_ABOUT) break;
        if (group.isIdle || group.line.size <= group.held.size) withoutStartTime.delete(group);
        else groups.add(group);
      }
      return groups;
    },
    onReply(groups, isVoid) {
      for (const group of groups) {
        withoutStartTime.delete(group);
        if (!isVoid) endLookup(group);
      }
      if (isVoid) requestStartTimes(groups);
      refuse();
      if (withoutStartTime.size > 0 || lookups.size > 0) askTimes.scheduleSoon(performance.now());
    },
    check,
    refuse,
    endLookups() {
      for (const group of lookups.keys()) endLookup(group);
    },
    clear: () => withoutStartTime.clear(),
  };
}

/**
 * Returns, for each group, the result of its first slot request that did not get all its slots. If
 * all slot requests got their slots, returns the last result, which proves that nothing delays the
 * group.
 */
function firstUnmet(granted: readonly Granted[], groups: readonly Group[]): Map<number, Granted> {
  const ofGroups = new Map<Group, number>();
  for (const [index, group] of groups.entries()) {
    const found = ofGroups.get(group);
    if (found === undefined || granted[found]!.soonestUs === 0) ofGroups.set(group, index);
  }
  return new Map([...ofGroups.values()].map((index) => [index, granted[index]!]));
}
