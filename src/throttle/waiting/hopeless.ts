import { causeOf, SLOWED, type Drawn, type Granted } from "../../core/store.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import { RECHECK_MS, type AskTimes, type Received } from "./ask-times.ts";
import type { Dispatcher } from "./dispatch.ts";
import { MOST_ASKED_ABOUT, type Wishes } from "./draw-request.ts";
import type { Caller, Group, EarliestStart, CachedReply } from "./group.ts";

/**
 * Caches the earliest time at which calls can start, from the latest reply of Redis. A call whose `maxWaitMs` ends before
 * that time is hopeless, and is rejected immediately. This cache alone decides what is certain:
 *
 * - A pause or a cooldown, of the bucket or of the key, lasts until the end time in the latest reply.
 * - A limit has no room before the time in the latest reply, while no call here holds a slot that it may give back.
 *
 * The length of a line and the end of a lease are never certain, because other callers may leave. A change notification
 * clears the cache. Entries also expire, because a notification can be lost.
 */
export interface EarliestStartCache {
  /** Stores the reply to a request that was sent in this epoch; ignores a stale reply. */
  learn(reply: Drawn, asked: Wishes, learned: Received & { readonly epoch: number }): void;
  /** How often the cache was cleared: a reply to a request of an older epoch is ignored. */
  readonly epoch: number;
  /** Clears the cache. */
  forget(): void;
  /** The latest reply about a group's calls, of any age; undefined if nothing holds them back. */
  of(group: Group, nowMs: number): EarliestStart | undefined;
  /** The time before which certainly no call of this group can start; 0 if it is not known. */
  surelyNotBeforeMs(group: Group, nowMs: number): number;
  /** Whether the call of a group that waits for the shortest time may be hopeless; this need not be certain. */
  mayBeHopeless(group: Group, nowMs: number): boolean;
  /** The time before which the bucket itself lets no call start, as in the latest reply; 0 if it is not known. */
  readonly ofBucketMs: number;
  /** True if a reply of the last moment included this group. */
  hasFreshReply(group: Group, nowMs: number): boolean;
  /** True if a reply of this epoch included this group. */
  hasReply(group: Group): boolean;
}

/** A reply about a limit of the bucket; it holds for calls that cost as much or more. */
interface CachedBucketReply extends CachedReply {
  readonly costs: readonly number[];
}

/** Another process may have given back what a limit counted, without a notification. */
const LIMIT_FRESH_MS = HORIZON_MS;
/** How far the compared clocks of this process and the bucket may differ. */
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

  /** The valid replies about calls of this group. */
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
        // Otherwise the reply may describe the bucket alone, and the previous reply about the key stays valid.
        const isOfKey = asked.wishes[index]!.isBounded || notBeforeUs > 0;
        const isWhole = isOfKey || group.scopes.length === 0;
        // Where all calls have slots, the next one has to be asked about.
        if (soonestUs === 0) group.cachedReply = undefined;
        else if (isWhole) group.cachedReply = ofGroup;
        if (bindsAt > 0 && bindsAt <= shared.length) {
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
    mayBeHopeless(group, nowMs) {
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

/** Rejects hopeless calls, and decides which groups the next request asks about, because their times are unknown. */
export interface HopelessCalls {
  /** Whether a new caller is rejected immediately. */
  isHopeless(caller: Caller): boolean;
  /** A caller has joined its line. */
  joined(caller: Caller): void;
  /** Resolves once the start times of a group's calls are known, or cannot be. For a call that waits elsewhere. */
  look(group: Group): Promise<void>;
  readonly areLooks: boolean;
  /** Asks soon, so that callers whose deadline has become too early are rejected. */
  scheduleSoon(): void;
  /** Asks soon about those of these groups whose callers have a deadline. */
  askAboutEach(groups: Iterable<Group>): void;
  /** The groups that the next request asks about. */
  next(): ReadonlySet<Group>;
  /** A reply included these groups. It is void if a change notification came after the request was sent. */
  onReply(groups: readonly Group[], isVoid: boolean): void;
  /** A reply included these groups: their calls may be hopeless now, or those of all groups. */
  check(groups: Iterable<Group>): void;
  /** Rejects the hopeless callers that wait in lines. */
  refuse(): void;
  endLooks(): void;
  /** No callers wait any more. */
  clear(): void;
}

export function createHopelessCalls({
  dispatcher,
  earliestStarts,
  askTimes,
}: {
  readonly dispatcher: Pick<Dispatcher, "waiting" | "schedule" | "takeExpiring">;
  readonly earliestStarts: EarliestStartCache;
  readonly askTimes: Pick<AskTimes, "scheduleSoon">;
}): HopelessCalls {
  const { schedule } = dispatcher;
  /** Groups whose callers may be hopeless. */
  const toCheck = new Set<Group>();
  /** Groups whose callers have a deadline, and whose start times are unknown. */
  const unanswered = new Set<Group>();
  const looks = new Map<Group, { readonly replied: Promise<void>; readonly resolve: () => void }>();
  /** No deadline of a caller is earlier than this. */
  let leastUntilMs = Infinity;
  /** No deadline of a caller is later than this. */
  let lastUntilMs = -Infinity;

  function scheduleSoon(): void {
    const nowMs = performance.now();
    if (dispatcher.waiting > 0 && nowMs < lastUntilMs) askTimes.scheduleSoon(nowMs);
  }

  function askAbout(group: Group): void {
    const nowMs = performance.now();
    unanswered.add(group);
    askTimes.scheduleSoon(nowMs);
    if (group.notBeforeMs > nowMs) schedule.deferUntil(group, 0);
  }

  function askAboutEach(groups: Iterable<Group>): void {
    for (const group of groups) if (group.leastUntilMs < Infinity) askAbout(group);
  }

  function check(groups: Iterable<Group>): void {
    const areOthers = leastUntilMs < earliestStarts.ofBucketMs;
    if (areOthers) leastUntilMs = Infinity;
    for (const group of areOthers ? schedule : groups) {
      if (group.leastUntilMs < Infinity) toCheck.add(group);
      leastUntilMs = Math.min(leastUntilMs, group.leastUntilMs);
    }
  }

  /** The hopeless callers, which are in no line any more. */
  function takeHopeless(): Caller[] {
    const nowMs = performance.now();
    const hopeless: Caller[] = [];
    for (const group of toCheck) {
      const mayBe = (): boolean => !group.isIdle && earliestStarts.mayBeHopeless(group, nowMs);
      const sureMs = mayBe() ? earliestStarts.surelyNotBeforeMs(group, nowMs) : 0;
      if (group.leastUntilMs < sureMs) hopeless.push(...dispatcher.takeExpiring(group, sureMs));
      // What is uncertain now is certain once the slots that are held have been used.
      const isOpen = mayBe();
      if (isOpen && earliestStarts.hasFreshReply(group, nowMs)) continue;
      toCheck.delete(group);
      if (isOpen) askAbout(group);
    }
    return hopeless;
  }

  function refuse(): void {
    if (toCheck.size === 0) return;
    const refused = takeHopeless();
    if (refused.length === 0) return;
    // All of them have left by now, so the estimate of none counts another.
    for (const caller of refused) caller.refuse();
    // Those behind them have yet to be asked for.
    scheduleSoon();
  }

  function endLook(group: Group): void {
    looks.get(group)?.resolve();
    looks.delete(group);
  }

  return {
    isHopeless({ group, untilMs }) {
      if (untilMs === Infinity) return false;
      lastUntilMs = Math.max(lastUntilMs, untilMs);
      if (untilMs >= earliestStarts.surelyNotBeforeMs(group, performance.now())) return false;
      // Its key may hold it back for longer than the bucket does; a flood of calls is not asked about one by one.
      const isKnown = group.scopes.length === 0 || earliestStarts.hasReply(group);
      return isKnown || unanswered.size >= MOST_ASKED_ABOUT;
    },
    joined({ group, untilMs, patienceMs }) {
      if (untilMs === Infinity) return;
      leastUntilMs = Math.min(leastUntilMs, untilMs);
      if (earliestStarts.hasFreshReply(group, performance.now())) {
        toCheck.add(group);
        return;
      }
      // The call of a job that waits for its key is asked for when the key's time comes, if that is soon enough.
      if (patienceMs === Infinity || untilMs < group.notBeforeMs) askAbout(group);
      else unanswered.add(group);
    },
    look(group) {
      askTimes.scheduleSoon(performance.now());
      const found = looks.get(group);
      if (found !== undefined) return found.replied;
      let resolve = (): void => {};
      const replied = new Promise<void>((done) => (resolve = done));
      looks.set(group, { replied, resolve: () => resolve() });
      return replied;
    },
    get areLooks() {
      return looks.size > 0;
    },
    scheduleSoon,
    askAboutEach,
    next() {
      const groups = new Set([...looks.keys()].slice(0, MOST_ASKED_ABOUT));
      for (const group of unanswered) {
        if (groups.size >= MOST_ASKED_ABOUT) break;
        if (group.isIdle || group.line.size <= group.held.size) unanswered.delete(group);
        else groups.add(group);
      }
      return groups;
    },
    onReply(groups, isVoid) {
      for (const group of groups) {
        unanswered.delete(group);
        if (!isVoid) endLook(group);
      }
      if (isVoid) askAboutEach(groups);
      refuse();
      if (unanswered.size > 0 || looks.size > 0) askTimes.scheduleSoon(performance.now());
    },
    check,
    refuse,
    endLooks() {
      for (const group of looks.keys()) endLook(group);
    },
    clear: () => unanswered.clear(),
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
