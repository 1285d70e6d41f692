import { causeOf, isNone, type Granted } from "../../core/store.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import type { LeaseKeeper } from "../slot/leases.ts";
import { createGroupSchedule, type GroupSchedule } from "./group-schedule.ts";
import { isOfKey, type Caller, type Group, type MemberGroup } from "./group.ts";
import type { Line } from "./line.ts";
import { slotCountOf, type HeldSlot, type HeldSlots } from "../slot/held-slots.ts";
import { createLateSlots, mostLateMs } from "./lateness.ts";
import { NoRoomYet } from "./waiting-call.ts";

/** Matches the callers of one bucket with the slots that this process holds for them. */
export interface Dispatcher {
  readonly waiting: number;
  readonly schedule: GroupSchedule;
  /** Returns a summary of the pending calls, for reports. */
  readonly waits: () => Waits;
  /**
   * Returns when the next caller with a slot starts, on `performance.now()`. Infinity if no caller
   * has a slot.
   */
  nextAtMs(): number;
  /**
   * The time of the latest slot that this process holds under fast limits that all keys share. New
   * slots come after it. -Infinity if there is none.
   */
  readonly lastSharedSlotMs: number;
  enter(caller: Caller): void;
  /** Removes a caller that no longer waits. */
  leave(caller: Caller): void;
  /**
   * Groups that callers may have left. When such a group is idle, its queue positions are given
   * back.
   */
  readonly left: Set<Group>;
  /**
   * Removes and returns the callers of a group that have no slot and whose deadline is before
   * `notBeforeMs`.
   */
  takeExpiring(group: Group, notBeforeMs: number): Caller[];
  /** Removes and returns all callers, group by group. */
  takeAll(): Caller[];
  /** Fails the callers of a group that do not wait as long as `roomInMs` for their key. */
  sendBackImpatient(group: Group, roomInMs: number): void;
  /**
   * Returns true if this process holds slots of a limit that it may still give back, because they
   * are in the future or too late. With `beside`, only slots of that group's keys count.
   */
  holdsSlots(beside: Group | undefined, bindsAt: number): boolean;
  /** Fails the callers of a group that have no slot yet, except those for which `errorOf` returns nothing. */
  refuse(group: Group, errorOf: (caller: Caller) => unknown): void;
  /**
   * Stores the granted slots. `firstLease` is the lease of the first slot, or 0 if there are no
   * leases.
   */
  hold(
    group: Group,
    granted: Granted,
    drawn: {
      readonly firstLease: number;
      readonly sentAtMs: number;
      readonly offsetMs: number;
      readonly rank: number;
    },
  ): void;
  /** Starts the callers whose slots are due. Calls `waste` with the slots that are too late. */
  dispatchDue(generation: number, waste: Take): void;
  /** Calls `give` with the slots that no caller needs any more, because callers have left. */
  takeSurplus(give: Take): void;
  /** Drops the held slots of one key, or of all keys, because they are no longer valid. Calls `drop` with them. */
  forget(key: string | undefined, drop: Take): void;
}

/** A summary of the pending calls of this process. */
export interface Waits {
  /** The number of pending calls, by rank. */
  readonly byRank: readonly number[];
  /**
   * When the oldest pending call arrived, on `performance.now()`. Infinity if there is no pending
   * call.
   */
  readonly sinceMs: number;
  /** The group with the most pending calls. */
  readonly most: Group | undefined;
}

/** Receives slots that are no longer held. Their leases are already given back. In a pool, they are of one member. */
type Take = (group: Group, slots: readonly HeldSlot[]) => void;

/** Splits the slots of a group by the member of the pool that they are for. */
export function byMember(
  group: Group,
  slots: readonly HeldSlot[],
): Iterable<readonly [group: Group | MemberGroup, slots: readonly HeldSlot[]]> {
  if (group.pool === undefined || slots.length === 0) return [[group, slots]];
  const all = new Map<Group | MemberGroup, HeldSlot[]>();
  for (const slot of slots) {
    const of = group.of(slot);
    all.set(of, [...(all.get(of) ?? []), slot]);
  }
  return all;
}

/**
 * A limit counts as fast if its calls are at most this far apart. Several calls then start while
 * one request gathers new callers.
 */
export const FAST_STEP_MS = 2.5;
/** A slot that is due within this time, in ms, counts as used. */
const GOING_MS = 2;

export function createDispatcher(leases: LeaseKeeper): Dispatcher {
  const schedule = createGroupSchedule();
  const holding = new Set<Group>();
  const left = new Set<Group>();
  const lateSlots = createLateSlots();
  let lastSharedSlotMs = -Infinity;
  let waiting = 0;

  function leave(caller: Caller): void {
    const { group } = caller;
    group.line.remove(caller);
    waiting -= 1;
    left.add(group);
    schedule.update(group);
  }

  function takeExpiring(group: Group, notBeforeMs: number): Caller[] {
    const taken: Caller[] = [];
    group.leastUntilMs = Infinity;
    let lacking = group.line.size - group.held.size;
    for (const caller of group.line.fromLast()) {
      lacking -= 1;
      if (lacking >= 0 && caller.untilMs < notBeforeMs) {
        leave(caller);
        taken.push(caller);
      } else group.leastUntilMs = Math.min(group.leastUntilMs, caller.untilMs);
    }
    return taken;
  }

  function releaseAll(group: Group, slots: readonly HeldSlot[]): void {
    for (const [of, own] of byMember(group, slots)) leases.releaseAll(own, of);
  }

  return {
    get waiting() {
      return waiting;
    },
    schedule,
    get lastSharedSlotMs() {
      return lastSharedSlotMs;
    },
    waits() {
      const byRank = PRIORITIES.map(() => 0);
      let sinceMs = Infinity;
      let most: Group | undefined;
      for (const group of schedule) {
        for (const rank of byRank.keys()) {
          const first = group.line.firstOf(rank);
          if (first === undefined) continue;
          byRank[rank]! += group.line.sizeOf(rank);
          // Skips the call of a started job: its position is 0, which is not a time.
          if (first.queuedMs > 0) sinceMs = Math.min(sinceMs, first.queuedMs);
        }
        if (most === undefined || group.line.size > most.line.size) most = group;
      }
      return { byRank, sinceMs, most };
    },
    nextAtMs() {
      let nextAtMs = Infinity;
      for (const { line, held } of holding)
        if (line.size > 0) nextAtMs = Math.min(nextAtMs, held.nextAtMs);
      return nextAtMs;
    },
    enter(caller) {
      const { group, patienceMs, untilMs } = caller;
      const leastMs = group.line.size === 0 ? Infinity : group.leastUntilMs;
      group.leastUntilMs = Math.min(leastMs, untilMs);
      group.line.push(caller);
      group.hasImpatient ||= patienceMs < Infinity;
      group.newestSinceMs = Math.max(group.newestSinceMs, caller.sinceMs);
      schedule.joined(caller);
      waiting += 1;
    },
    leave,
    left,
    takeExpiring,
    takeAll() {
      const callers: Caller[] = [];
      for (const group of schedule) {
        const { line } = group;
        left.add(group);
        for (let caller = line.shift(); caller !== undefined; caller = line.shift())
          callers.push(caller);
      }
      schedule.clear();
      waiting = 0;
      return callers;
    },
    sendBackImpatient(group, roomInMs) {
      const { line, held, hasImpatient } = group;
      if (!hasImpatient) return;
      let lacking = line.size - held.size;
      for (const caller of line.fromLast()) {
        if (lacking <= 0) break;
        lacking -= 1;
        if (roomInMs <= caller.patienceMs) continue;
        leave(caller);
        caller.fail(new NoRoomYet(roomInMs, group));
      }
    },
    holdsSlots(beside, bindsAt) {
      const nowMs = performance.now();
      for (const group of holding) {
        const { held, callTerms } = group;
        if (beside?.scopes.some(({ key }) => isOfKey(group, key)) === false) continue;
        if (bindsAt > 0 && callTerms.costs[bindsAt - 1]! === 0) continue;
        const lateMs = nowMs - held.lastAtMs;
        if (lateMs < -GOING_MS || lateMs > mostLateMs(callTerms)) return true;
      }
      return false;
    },
    refuse({ line, held }, errorOf) {
      let lacking = line.size - held.size;
      for (const caller of line.fromLast()) {
        if (lacking <= 0) break;
        lacking -= 1;
        const error = errorOf(caller);
        if (error === undefined) continue;
        leave(caller);
        caller.fail(error);
      }
    },
    hold(group, granted, { firstLease, sentAtMs, offsetMs, rank }) {
      const listed = granted.slotsUs.length;
      if (listed === 0 && granted.run === undefined) return;
      for (let each = 0; firstLease > 0 && each < listed; each++) {
        const of = group.of({ member: granted.members?.[each] ?? 0 });
        if (of.callTerms.hasLeases) leases.keep(firstLease + each, of, sentAtMs);
      }
      const hasLease = (member: number): boolean => group.of({ member }).callTerms.hasLeases;
      group.held.add(granted, firstLease, offsetMs, rank, hasLease);
      const { sharedStepMs, areDrains } = group.callTerms;
      if (areDrains && sharedStepMs > 0 && sharedStepMs <= FAST_STEP_MS) {
        lastSharedSlotMs = Math.max(lastSharedSlotMs, group.held.lastAtMs);
      }
      holding.add(group);
      schedule.served(group);
    },
    dispatchDue(generation, waste) {
      const nowMs = performance.now();
      const start = { generation, nowMs };
      lateSlots.beginRound();
      for (const group of holding) {
        const { line, held } = group;
        const late: HeldSlot[] = [];
        const before = held.size;
        while (line.size > 0 && held.nextAtMs <= nowMs) {
          const slot = held.take();
          const mostMs = mostLateMs(group.of(slot).callTerms);
          if (lateSlots.mayUse(nowMs - slot.atMs, mostMs)) {
            waiting -= 1;
            takeCaller(group, slot).resolveWith(slot, start);
          } else late.push(slot);
        }
        if (held.size === 0) holding.delete(group);
        if (held.size < before) schedule.update(group);
        if (late.length === 0) continue;
        releaseAll(group, late);
        waste(group, late);
      }
    },
    takeSurplus(give) {
      for (const group of holding) {
        const surplus = group.held.size - group.line.size;
        if (surplus <= 0) continue;
        const slots = group.held.takeLatest(surplus);
        lastSharedSlotMs = -Infinity;
        if (group.held.size === 0) holding.delete(group);
        schedule.update(group);
        releaseAll(group, slots);
        give(group, slots);
      }
    },
    forget(key, drop) {
      lastSharedSlotMs = -Infinity;
      for (const group of holding) {
        const isAll = key === undefined || isOfKey(group, key);
        const member = isAll ? 0 : memberNumber(group, key);
        if (!isAll && member === 0) continue;
        const slots = isAll ? group.held.takeLatest(Infinity) : group.held.takeOfMember(member);
        releaseAll(group, slots);
        if (group.held.size === 0) holding.delete(group);
        schedule.update(group);
        drop(group, slots);
      }
    },
  };
}

/** Returns the number of the member that a scope's key stands for. 0 if the group's pool has no such member. */
function memberNumber({ pool }: Group, key: string): number {
  return (pool?.pool.members.findIndex(({ scope }) => scope.key === key) ?? -1) + 1;
}

/**
 * Picks the caller for a slot. Normally, this is the first caller of the rank for which the slot
 * was drawn. A more urgent caller with a later slot may go first instead. The two callers then
 * swap: the passed caller gets the later slot and the queue position of the more urgent caller.
 *
 * A caller is passed at most once, so a flood of urgent calls cannot take all its slots. A caller
 * without a slot never passes another caller, because its slot may be far in the future.
 */
export function takeCaller({ line, held }: Group, { rank }: HeldSlot): Caller {
  const drawnFor = line.firstOf(rank);
  if (drawnFor === undefined || line.head === drawnFor) return line.shift()!;
  const passer = wasPassed(drawnFor) ? undefined : firstToPass(line, held, rank);
  if (passer === undefined) return line.shift(rank)!;
  line.replace(passer, drawnFor);
  drawnFor.queuedMs = passer.queuedMs;
  return passer;
}

/**
 * Returns the first caller that has a slot, is more urgent than rank `below`, and was not passed
 * itself.
 */
function firstToPass(line: Line<Caller>, held: HeldSlots, below: number): Caller | undefined {
  for (let rank = 0; rank < below; rank++) {
    let caller = line.firstOf(rank);
    for (let slots = held.sizeOf(rank); slots > 0 && caller !== undefined; slots--) {
      if (!wasPassed(caller)) return caller;
      caller = caller.next;
    }
  }
  return undefined;
}

/** Returns true if a more urgent call has used this caller's slot. */
function wasPassed({ inheritedPriority }: Caller): boolean {
  return inheritedPriority !== undefined;
}

/**
 * Returns the key of the level that delays a group's calls, according to a reply. This is the level
 * with the limit, cooldown or pause that delays them. If the bucket itself delays them, this is the
 * level in whose queue they wait.
 */
export function keyHeldBy(
  { scopes, callTerms: { shared } }: Pick<Group, "scopes" | "callTerms">,
  { bindsAt, positions }: Pick<Granted, "bindsAt" | "positions">,
): string | undefined {
  const ofCause = bindsAt < 0 ? scopes[causeOf(bindsAt).scopeNumber - 1] : undefined;
  if (ofCause !== undefined) return ofCause.key;
  let upTo = shared.length;
  for (const { key, limits } of scopes) {
    upTo += limits.length;
    if (bindsAt > upTo - limits.length && bindsAt <= upTo) return key;
  }
  return (scopes.find((_, index) => !isNone(positions[index]!)) ?? scopes.at(-1))?.key;
}

/**
 * Returns the number of the limit that delays a group's calls, according to a reply to a request
 * for `wanted` slots. A reply may contain fewer slots but name no limit, because it leaves room
 * within the horizon to other replicas. The previous limit still applies then.
 */
export function limitHolding(
  { bindsAt, callTerms }: Pick<Group, "bindsAt" | "callTerms">,
  granted: Granted,
  wanted: number,
): number {
  if (granted.bindsAt !== 0 || slotCountOf(granted) >= wanted) return granted.bindsAt;
  return callTerms.limits.length === 1 ? 1 : bindsAt;
}
