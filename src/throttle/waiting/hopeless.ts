import { causeOf, SLOWED, type Drawn, type Granted } from "../../core/store.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import { RECHECK_MS, type Received } from "./ask-times.ts";
import { MOST_ASKED_ABOUT, type Wishes } from "./draw-request.ts";
import type { GroupSchedule } from "./group-schedule.ts";
import type { Caller, Group, Known, Told } from "./group.ts";

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
  learn(reply: Drawn, asked: Wishes, learned: Received & { readonly epoch: number }): void;
  /** Counts how often all was forgotten: a reply to an older request says nothing. */
  readonly epoch: number;
  /** There is news: nothing is known until the next reply. */
  forget(): void;
  /** What is known of a group's calls, however old; undefined if nothing holds them back. */
  of(group: Group, nowMs: number): Known | undefined;
  /** Before when no call of this group can start, surely; 0: that is not known. */
  surelyNotBeforeMs(group: Group, nowMs: number): number;
  /** Whether the calls of a group may be hopeless that wait for the shortest time; it may not be sure. */
  mayBeHopeless(group: Group, nowMs: number): boolean;
  /** Before when calls of several groups cannot start: what is known of the bucket itself; 0: nothing is. */
  readonly ofBucketMs: number;
  /** Whether a reply has just told of this group. */
  isFresh(group: Group, nowMs: number): boolean;
  /** Whether a reply has told of this group since there was news. */
  isTold(group: Group): boolean;
}

/** What one reply told of a limit of the bucket holds for calls that cost as much or more. */
interface ToldOfBucket extends Told {
  readonly costs: readonly number[];
}

/** Another process may have given back what a limit counted; nothing tells this one. */
const LIMIT_FRESH_MS = HORIZON_MS;
/** The clocks of this process and the bucket are compared this closely, or a little less so. */
const MARGIN_MS = 5;

export function createKnownTimes(
  holdsSlots: (beside: Group | undefined, bindsAt: number) => boolean,
): KnownTimes {
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
    if (told.bindsAt < 0 && causeOf(told.bindsAt).cause !== SLOWED) return ageMs < RECHECK_MS;
    const isOfKey = told.bindsAt > group.callTerms.shared.length;
    return ageMs < LIMIT_FRESH_MS && !holdsSlots(isOfKey ? group : undefined, told.bindsAt);
  }

  function later<T extends Known>(a: T | undefined, b: T): T {
    return a === undefined || b.atMs > a.atMs ? b : a;
  }

  function latestOf(group: Group, nowMs: number): Told | undefined {
    let latest: Told | undefined;
    for (const told of toldOf(group, nowMs)) latest = later(latest, told);
    return latest;
  }

  function isTold({ told }: Group): boolean {
    return told !== undefined && told.epoch === epoch;
  }

  return {
    get epoch() {
      return epoch;
    },
    learn(reply, asked, { arrivedMs, offsetMs, isStale, epoch: learnedIn }) {
      if (isStale || learnedIn !== epoch) return;
      const told = (us: number, bindsAt: number): Told => {
        const atMs = us === 0 ? 0 : us / 1_000 + offsetMs;
        return { atMs, bindsAt, arrivedMs, epoch };
      };
      closed = told(reply.closedUntilUs, reply.closedBy);
      ofBucket = undefined;
      for (const [index, granted] of firstUnmet(reply.granted, asked.groups)) {
        const group = asked.groups[index]!;
        const { shared, costs } = group.callTerms;
        const { soonestUs, bindsAt, notBeforeUs } = granted;
        const ofGroup = told(soonestUs, bindsAt);
        // Else the reply may tell of the bucket alone: what was told of the key before goes on.
        const isOfKey = asked.wishes[index]!.isBounded || notBeforeUs > 0;
        const isWhole = isOfKey || group.scopes.length === 0;
        // Where all calls have slots, the next one has to be asked about.
        if (soonestUs === 0) group.told = undefined;
        else if (isWhole) group.told = ofGroup;
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
      for (const told of toldOf(group, nowMs)) {
        if (told.atMs > latestMs && isSure(told, group, nowMs)) latestMs = told.atMs;
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
    isFresh: (group, nowMs) => isTold(group) && nowMs - group.told!.arrivedMs < LIMIT_FRESH_MS,
    isTold,
  };
}

/** Who is hopeless, of those who come, wait, or look; and which groups requests ask about since that is not known. */
export interface HopelessCalls {
  /** Whether a caller that comes is refused at once. */
  isHopeless(caller: Caller): boolean;
  /** A caller has joined its line. */
  joined(caller: Caller): void;
  /** Resolves once it is known when calls of a group can start, or cannot be; whoever looks waits elsewhere. */
  look(group: Group): Promise<void>;
  readonly areLooks: boolean;
  /** There is news: callers that it makes hopeless are to be told soon. */
  hurry(): void;
  /** A reply is to tell soon when the calls of these groups can start that wait for a bounded time. */
  askAboutEach(groups: Iterable<Group>): void;
  /** The groups that the next request asks about. */
  next(): ReadonlySet<Group>;
  /** There is a reply to these groups, which is void if there was news meanwhile, maybe of another key. */
  told(groups: readonly Group[], isVoid: boolean): void;
  /** Refuses the callers in lines that are hopeless. */
  refuse(): void;
  endLooks(): void;
  /** No callers wait any more. */
  clear(): void;
}

export function createHopelessCalls(
  lines: {
    readonly waiting: number;
    readonly schedule: Pick<GroupSchedule, "deferUntil">;
    check(groups: Iterable<Group>, ofBucketMs: number): void;
    refuseHopeless(times: KnownTimes, ask: (group: Group) => void): readonly Caller[];
  },
  times: KnownTimes,
  {
    hurryAt,
    left,
  }: {
    readonly hurryAt: (nowMs: number) => void;
    /** Called with each group that a refused caller has left. */
    readonly left: (group: Group) => void;
  },
): HopelessCalls {
  /** Groups in which callers wait for a bounded time, of which it is not known whether that is in vain. */
  const untold = new Set<Group>();
  const looks = new Map<Group, { readonly told: Promise<void>; readonly tell: () => void }>();
  /** After this time no caller waits that does not wait for ever. */
  let lastUntilMs = -Infinity;

  function hurry(): void {
    const nowMs = performance.now();
    if (lines.waiting > 0 && nowMs < lastUntilMs) hurryAt(nowMs);
  }

  function askAbout(group: Group): void {
    const nowMs = performance.now();
    untold.add(group);
    hurryAt(nowMs);
    if (group.notBeforeMs > nowMs) lines.schedule.deferUntil(group, 0);
  }

  function askAboutEach(groups: Iterable<Group>): void {
    for (const group of groups) if (group.leastUntilMs < Infinity) askAbout(group);
  }

  function refuse(): void {
    const refused = lines.refuseHopeless(times, askAbout);
    if (refused.length === 0) return;
    for (const { group } of refused) left(group);
    // Those behind them have yet to be asked for.
    hurry();
  }

  function endLook(group: Group): void {
    looks.get(group)?.tell();
    looks.delete(group);
  }

  return {
    isHopeless({ group, untilMs }) {
      if (untilMs === Infinity) return false;
      lastUntilMs = Math.max(lastUntilMs, untilMs);
      if (untilMs >= times.surelyNotBeforeMs(group, performance.now())) return false;
      // Its key may hold it back for longer than the bucket does; a flood of calls is not asked about one by one.
      const isTold = group.scopes.length === 0 || times.isTold(group);
      return isTold || untold.size >= MOST_ASKED_ABOUT;
    },
    joined({ group, untilMs, patienceMs }) {
      if (untilMs === Infinity) return;
      if (times.isFresh(group, performance.now())) return lines.check([group], 0);
      // The call of a job that waits for its key is asked for when the key's time comes, if that is soon enough.
      if (patienceMs === Infinity || untilMs < group.notBeforeMs) askAbout(group);
      else untold.add(group);
    },
    look(group) {
      hurryAt(performance.now());
      const found = looks.get(group);
      if (found !== undefined) return found.told;
      let tell = (): void => {};
      const told = new Promise<void>((resolve) => (tell = resolve));
      looks.set(group, { told, tell: () => tell() });
      return told;
    },
    get areLooks() {
      return looks.size > 0;
    },
    hurry,
    askAboutEach,
    next() {
      const groups = new Set([...looks.keys()].slice(0, MOST_ASKED_ABOUT));
      for (const group of untold) {
        if (groups.size >= MOST_ASKED_ABOUT) break;
        if (group.isIdle || group.line.size <= group.held.size) untold.delete(group);
        else groups.add(group);
      }
      return groups;
    },
    told(groups, isVoid) {
      for (const group of groups) {
        untold.delete(group);
        if (!isVoid) endLook(group);
      }
      if (isVoid) askAboutEach(groups);
      refuse();
      if (untold.size > 0 || looks.size > 0) hurryAt(performance.now());
    },
    refuse,
    endLooks() {
      for (const group of looks.keys()) endLook(group);
    },
    clear: () => untold.clear(),
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
