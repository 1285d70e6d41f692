import { HORIZON_US } from "../core/limit-makers.ts";
import { ClosedError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { NO_PLACE, type Drawn, type Granted, type Store } from "../core/store.ts";
import { LOOK_IN_US } from "../core/turns.ts";
import { createAlarm } from "./alarm.ts";
import type { Caller, Group } from "./group.ts";
import { slotsOf, type HeldSlot } from "./held-slots.ts";
import { createKeyPlaces, isNone } from "./key-places.ts";
import type { Knowledge, PolicyNews } from "./known-terms.ts";
import { createReplyTimes } from "./reply-times.ts";
import { createReturns } from "./returns.ts";
import { mostLeases, nextWishes, readiness } from "./wishes.ts";

const GATHER_MS = 10;
const LOOK_IN_MS = LOOK_IN_US / 1_000;

/** Draws slots for the callers of one bucket, and lets each go when its slot comes. */
export interface Pacer {
  readonly waiting: number;
  readonly alive: number;
  /** When the turn of those who wait comes, on `performance.now()`, as far as the last reply told. */
  readonly turnAtMs: number;
  /** How long the store has owed an answer, in ms. */
  readonly silentMs: number;
  /** The number of the next lease; it grows with each that is asked for. */
  readonly takeLeases: (count: number) => number;
  wait(caller: Caller): void;
  /** Takes a caller out of the line that no longer wants to wait. */
  leave(caller: Caller): void;
  /** Something of the bucket, or of one key, has changed: whoever waits for it asks anew. */
  lookIn(key?: string): void;
  /** Another policy is in force. */
  readonly learn: (news: PolicyNews) => void;
  /** Slots that are held, of one key or of all, are worthless. */
  readonly forget: (key: string | undefined) => void;
  /** Fails all who wait, and gives their slots back. */
  close(): Promise<void>;
}

export interface PacerOptions {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly known: Knowledge;
  readonly logger: Logger;
  /** Gives up the lease of a slot that is not used. */
  readonly dropLease: (lease: number, group: Group) => void;
  /** Keeps a lease from now on, drawn at `atMs` of `performance.now()`. */
  readonly keepLease: (lease: number, group: Group, atMs: number) => void;
  /** Another policy is in force: puts callers into the groups that it makes of them. */
  readonly regroup: (callers: readonly Caller[]) => void;
}

export function createPacer(options: PacerOptions): Pacer {
  const { store, bucket, asker, known, logger, dropLease } = options;
  const alarm = createAlarm(work);
  const times = createReplyTimes();
  const returns = createReturns({ store, bucket, asker, known, logger });
  /** Those in which somebody waits, and those that hold slots. */
  const waitingIn = new Set<Group>();
  const holding = new Set<Group>();
  const keyPlaces = createKeyPlaces();
  let place = NO_PLACE;
  let waiting = 0;
  let alive = 0;
  let nextLease = 1;
  let heldGeneration = 0;
  let askedAtMs = 0;
  let askAgainAtMs = 0;
  let turnAtMs = 0;
  let asking: Promise<void> | undefined;
  let isWorkDue = false;
  let isClosed = false;

  /** Once per tick, so that all callers of one tick are drawn for together. */
  function workSoon(): void {
    if (isWorkDue) return;
    isWorkDue = true;
    queueMicrotask(work);
  }

  function work(): void {
    isWorkDue = false;
    letGo();
    if (asking === undefined) giveBackSurplus();
    let nextAtMs = Infinity;
    for (const group of holding)
      if (group.line.size > 0) nextAtMs = Math.min(nextAtMs, group.held.nextAtMs);
    if (asking !== undefined) return alarm.set(nextAtMs);

    const nowMs = performance.now();
    const askAtMs = askAt(nowMs);
    if (nowMs >= askAtMs) asking = ask(nowMs);
    alarm.set(Math.min(nextAtMs, asking === undefined ? askAtMs : Infinity));
  }

  /** When there is somebody to ask for; Infinity if all have their slots. */
  function askAt(nowMs: number): number {
    const { readyAtMs, lastAtMs, isMany } = readiness(waitingIn, nowMs);
    if (readyAtMs === Infinity) return Infinity;
    // While there are slots for a while, newcomers are drawn for together: theirs come behind those anyway.
    const isGathering = lastAtMs > nowMs + GATHER_MS && !isMany;
    const gatheredAtMs = isGathering ? askedAtMs + GATHER_MS : nowMs;
    // A key that is far away does not keep this process from hearing of a change.
    const lookInAtMs = askedAtMs + LOOK_IN_MS;
    return Math.max(askAgainAtMs, gatheredAtMs, Math.min(readyAtMs, lookInAtMs));
  }

  function letGo(): void {
    const nowMs = performance.now();
    for (const group of holding) {
      const { line, held, mostLateMs } = group;
      const late: HeldSlot[] = [];
      while (line.size > 0 && held.nextAtMs <= nowMs) {
        const slot = held.take();
        // A process that was frozen must not fire its old slots in a clump: they are drawn again.
        if (nowMs - slot.atMs > mostLateMs) late.push(slot);
        else {
          waiting -= 1;
          line.shift()!.go(slot, heldGeneration);
        }
      }
      if (late.length > 0) waste(group, late);
      if (held.size === 0) holding.delete(group);
      if (line.size === 0) waitingIn.delete(group);
    }
  }

  /** Slots whose time has passed: what they took of a quota is given back, their time is gone. */
  function waste(group: Group, slots: readonly HeldSlot[]): void {
    for (const slot of slots) drop(group, slot);
    returns.refund(group, slots);
  }

  function drop(group: Group, { lease }: HeldSlot): void {
    if (lease > 0) dropLease(lease, group);
  }

  async function ask(nowMs: number): Promise<void> {
    askedAtMs = nowMs;
    const { groups, wishes } = nextWishes(waitingIn, keyPlaces, nowMs);
    const { terms } = known;
    const lease = nextLease;
    const leases = mostLeases(terms.limits, wishes);
    nextLease += leases;
    try {
      const common = {
        bucket,
        asker,
        terms,
        horizonUs: HORIZON_US,
        drewUs: times.drewUs,
        place,
        lease,
        leases,
        isTry: false,
      };
      receive(await store.draw({ ...common, wishes }), groups, lease);
    } catch (error) {
      // A reply that got lost may have granted any of them.
      for (const group of groups) {
        for (let each = lease; group.hasLeases && each < lease + leases; each++) {
          dropLease(each, group);
        }
      }
      failAll(error);
    } finally {
      asking = undefined;
    }
    for (const group of groups)
      if (group.line.size === 0 && group.held.size === 0) giveUp(group, []);
    work();
  }

  function receive(reply: Drawn, groups: readonly Group[], firstLease: number): void {
    const { arrivedMs, offsetMs, isStale } = times.read(reply);
    alive = reply.alive;
    if (reply.generation !== heldGeneration) forgetHeld();
    heldGeneration = reply.generation;
    const { newText, version, isOverride } = reply;
    if (newText !== undefined) return learn({ text: newText, version, isOverride });

    known.confirm(reply.version);
    let lease = firstLease;
    for (const [index, granted] of reply.granted.entries()) {
      const group = groups[index]!;
      const first = group.hasLeases ? lease : 0;
      if (group.hasLeases) lease += granted.slotsUs.length;
      if (isStale) waste(group, slotsOf(granted, first, offsetMs));
      else hold(group, granted, { first, sentAtMs: reply.sentAtMs, offsetMs });
      const { notBeforeUs, bindsAt } = granted;
      const isBlocked = notBeforeUs === Infinity;
      const comesAtMs = isBlocked ? arrivedMs + LOOK_IN_MS : notBeforeUs / 1_000 + offsetMs;
      group.notBeforeMs = notBeforeUs === 0 ? 0 : comesAtMs;
      group.bindsAt = bindsAt;
      keyPlaces.keep(group.key, granted.place);
    }
    place = reply.place;
    const waitMs = Math.min((place.turnUs - times.drewUs) / 1_000, LOOK_IN_MS);
    turnAtMs = place.turnUs === 0 ? 0 : place.turnUs / 1_000 + offsetMs;
    const isBlocked = place.sinceUs > 0;
    askAgainAtMs = isBlocked ? arrivedMs + LOOK_IN_MS : place.turnUs === 0 ? 0 : arrivedMs + waitMs;
  }

  function hold(
    group: Group,
    granted: Granted,
    { first, sentAtMs, offsetMs }: { first: number; sentAtMs: number; offsetMs: number },
  ): void {
    const listed = granted.slotsUs.length;
    if (listed === 0 && granted.run === undefined) return;
    for (let each = 0; first > 0 && each < listed; each++) {
      options.keepLease(first + each, group, sentAtMs);
    }
    group.held.add(granted, first, offsetMs);
    holding.add(group);
    // Those that have been served stand behind those that have not.
    if (waitingIn.delete(group)) waitingIn.add(group);
  }

  /** Slots of an older generation are worthless. */
  function forgetHeld(): void {
    for (const group of holding) {
      for (const slot of group.held.takeLatest(Infinity)) drop(group, slot);
    }
    holding.clear();
    keyPlaces.clear();
    place = NO_PLACE;
  }

  function learn(news: PolicyNews): void {
    forgetHeld();
    known.learn(news);
    const callers: Caller[] = [];
    for (const { line } of waitingIn) {
      for (let caller = line.shift(); caller !== undefined; caller = line.shift())
        callers.push(caller);
    }
    waitingIn.clear();
    waiting = 0;
    askAgainAtMs = 0;
    options.regroup(callers.sort((a, b) => a.number - b.number));
  }

  /** Callers have left: another replica can use what they would have used. */
  function giveBackSurplus(): void {
    for (const group of holding) {
      const surplus = group.held.size - group.line.size;
      if (surplus <= 0) continue;
      const slots = group.held.takeLatest(surplus);
      for (const slot of slots) drop(group, slot);
      if (group.held.size === 0) holding.delete(group);
      giveUp(group, slots);
    }
  }

  function giveUp(group: Group, slots: readonly HeldSlot[]): void {
    const own = keyPlaces.of(group.key);
    const isLast = waiting === 0;
    if (slots.length === 0 && isNone(own) && (isNone(place) || !isLast)) return;
    if (group.line.size === 0) keyPlaces.keep(group.key, NO_PLACE);
    returns.giveBack(heldGeneration, group, slots, {
      bucket: isLast ? place : NO_PLACE,
      key: group.line.size === 0 ? own : NO_PLACE,
    });
    group.notBeforeMs = 0;
    if (!isLast) return;
    place = NO_PLACE;
    askAgainAtMs = 0;
  }

  function failAll(error: unknown): void {
    for (const { line } of waitingIn) {
      for (let caller = line.shift(); caller !== undefined; caller = line.shift())
        caller.fail(error);
    }
    waitingIn.clear();
    waiting = 0;
  }

  return {
    get waiting() {
      return waiting;
    },
    get alive() {
      return alive;
    },
    get turnAtMs() {
      return turnAtMs;
    },
    get silentMs() {
      return asking === undefined ? 0 : performance.now() - askedAtMs;
    },
    takeLeases(count) {
      nextLease += count;
      return nextLease - count;
    },
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      caller.group.line.push(caller);
      waitingIn.add(caller.group);
      waiting += 1;
      workSoon();
    },
    leave(caller) {
      const { group } = caller;
      group.line.remove(caller);
      waiting -= 1;
      if (group.line.size === 0) {
        waitingIn.delete(group);
        if (group.held.size === 0 && asking === undefined) giveUp(group, []);
      }
      workSoon();
    },
    learn,
    forget(key) {
      if (key === undefined) return forgetHeld();
      for (const group of holding) {
        if (group.key !== key) continue;
        for (const slot of group.held.takeLatest(Infinity)) drop(group, slot);
        holding.delete(group);
      }
    },
    lookIn(key) {
      if (key === undefined) askAgainAtMs = 0;
      for (const group of waitingIn) {
        if (key === undefined || group.key === key) group.notBeforeMs = 0;
      }
      workSoon();
    },
    async close() {
      isClosed = true;
      failAll(new ClosedError(`Bucket "${bucket}"`));
      await asking;
      work();
      alarm.set(Infinity);
      await returns.settled();
    },
  };
}
