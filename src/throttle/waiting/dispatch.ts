import { causeOf, isNone, type Granted } from "../../core/store.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import type { LeaseKeeper } from "../slot/leases.ts";
import { createGroupSchedule, type GroupSchedule } from "./group-schedule.ts";
import { isOfKey, type Caller, type Group } from "./group.ts";
import type { Line } from "./line.ts";
import { slotCountOf, type HeldSlot, type HeldSlots } from "../slot/held-slots.ts";
import { createLateSlots, mostLateMs } from "./lateness.ts";
import { NoRoomYet } from "./waiting-call.ts";

/** Matches the callers of one bucket that wait in this process with the slots that the process holds for them. */
export interface Dispatcher {
  /** How many callers wait. */
  readonly waiting: number;
  /** The groups in which callers wait. */
  readonly schedule: GroupSchedule;
  /** Who waits, as reports tell it. */
  readonly waits: () => Waits;
  /** When the next caller may go, on `performance.now()`; Infinity if none has a slot. */
  nextAtMs(): number;
  /**
   * When the last slot comes that is held under fast limits that all keys share; slots that are drawn later come after it.
   * -Infinity if there is none.
   */
  readonly lastSharedSlotMs: number;
  enter(caller: Caller): void;
  /** Takes out a caller that no longer wants to wait. */
  leave(caller: Caller): void;
  /** Groups that callers may have left: once they are idle, their places in lines go back. */
  readonly left: Set<Group>;
  /** Takes out the callers of a group that have no slot and whose wait ends before this time. */
  takeExpiring(group: Group, notBeforeMs: number): Caller[];
  /** Takes out all callers, group by group. */
  takeAll(): Caller[];
  /** Sends away the callers of a group that do not wait until its key's time, which is `roomInMs` off. */
  dismissImpatient(group: Group, roomInMs: number): void;
  /** Whether slots of a limit are held that may yet go back, of the key of this group, or of any: they have yet to come, or are too late. */
  holdsSlots(beside: Group | undefined, bindsAt: number): boolean;
  /** Fails the callers of a group that have no slot yet. */
  refuse(group: Group, error: unknown): void;
  /** Holds what was granted; `firstLease` is the lease of the first slot, 0 if there are none. */
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
  /** Lets callers go whose slots have come, and hands over the slots that came too late. */
  dispatchDue(generation: number, waste: Take): void;
  /** Hands over the slots of callers that have left. */
  takeSurplus(give: Take): void;
  /** Drops the slots of one key, or of all: they are worthless. */
  forget(key?: string): void;
}

/** The callers that wait in one process. */
export interface Waits {
  /** How many, by rank. */
  readonly byRank: readonly number[];
  /** Since when the first of a line waits, on `performance.now()`; Infinity if none waits. */
  readonly sinceMs: number;
  /** The group in which most wait. */
  readonly most: Group | undefined;
}

/** Takes slots that are no longer held, and of which the leases are given back already. */
type Take = (group: Group, slots: readonly HeldSlot[]) => void;

/** Limits are fast if several calls start while one request gathers newcomers. */
const FAST_STEP_MS = 2.5;
/** A caller whose slot comes within this time does not leave it any more. */
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
          // The call of a job that is under way comes before all, at 0.
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
    dismissImpatient(group, roomInMs) {
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
    refuse({ line, held }, error) {
      while (line.size > held.size) {
        const last = line.last!;
        leave(last);
        last.fail(error);
      }
    },
    hold(group, granted, { firstLease, sentAtMs, offsetMs, rank }) {
      const listed = granted.slotsUs.length;
      if (listed === 0 && granted.run === undefined) return;
      for (let each = 0; firstLease > 0 && each < listed; each++) {
        leases.keep(firstLease + each, group, sentAtMs);
      }
      group.held.add(granted, firstLease, offsetMs, rank);
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
        const mostMs = mostLateMs(group.callTerms);
        const late: HeldSlot[] = [];
        const before = held.size;
        while (line.size > 0 && held.nextAtMs <= nowMs) {
          const slot = held.take();
          if (lateSlots.mayGo(nowMs - slot.atMs, mostMs)) {
            waiting -= 1;
            takeCaller(group, slot).go(slot, start);
          } else late.push(slot);
        }
        if (held.size === 0) holding.delete(group);
        if (held.size < before) schedule.update(group);
        if (late.length === 0) continue;
        leases.releaseAll(late, group);
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
        leases.releaseAll(slots, group);
        give(group, slots);
      }
    },
    forget(key) {
      lastSharedSlotMs = -Infinity;
      for (const group of holding) {
        if (key !== undefined && !isOfKey(group, key)) continue;
        leases.releaseAll(group.held.takeLatest(Infinity), group);
        holding.delete(group);
        schedule.update(group);
      }
    },
  };
}

/**
 * Who leaves on a slot: a call of the rank that it was drawn for. A more urgent one whose own slot comes later may pass it
 * and leave it that slot, with its place in line. A call is passed only once, so a flood of urgent calls does not take
 * all its slots; and by no call that has no slot yet, since that one may be long in coming.
 */
function takeCaller({ line, held }: Group, { rank }: HeldSlot): Caller {
  const drawnFor = line.firstOf(rank);
  if (drawnFor === undefined || line.head === drawnFor) return line.shift()!;
  const passer = wasPassed(drawnFor) ? undefined : firstToPass(line, held, rank);
  if (passer === undefined) return line.shift(rank)!;
  line.replace(passer, drawnFor);
  drawnFor.queuedMs = passer.queuedMs;
  return passer;
}

/** The first caller that is more urgent than this rank, has a slot, and waits in a place of its own. */
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

/** Whether it waits in the place of a more urgent call that has left on its slot. */
function wasPassed({ waitsAs }: Caller): boolean {
  return waitsAs !== undefined;
}

/**
 * Which of the scopes of a group holds its calls back, by a reply: that of the limit, the cooldown or the pause that does;
 * if that is the bucket's, the one in whose line they wait.
 */
export function keyHeldBy(
  { scopes, callTerms: { shared } }: Pick<Group, "scopes" | "callTerms">,
  { bindsAt, places }: Pick<Granted, "bindsAt" | "places">,
): string | undefined {
  const ofCause = bindsAt < 0 ? scopes[causeOf(bindsAt).scopeNumber - 1] : undefined;
  if (ofCause !== undefined) return ofCause.key;
  let upTo = shared.length;
  for (const { key, limits } of scopes) {
    upTo += limits.length;
    if (bindsAt > upTo - limits.length && bindsAt <= upTo) return key;
  }
  return (scopes.find((_, index) => !isNone(places[index]!)) ?? scopes.at(-1))?.key;
}

/**
 * What holds the calls of a group back, by a reply to a request for `wanted` slots, as a reply numbers it. A reply may
 * bring fewer and name no limit, since it leaves room within the horizon to others: then what did so before still does.
 */
export function limitHolding(
  { bindsAt, callTerms }: Pick<Group, "bindsAt" | "callTerms">,
  granted: Granted,
  wanted: number,
): number {
  if (granted.bindsAt !== 0 || slotCountOf(granted) >= wanted) return granted.bindsAt;
  return callTerms.limits.length === 1 ? 1 : bindsAt;
}
