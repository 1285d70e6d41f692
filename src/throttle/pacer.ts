import { HORIZON_US } from "../core/limit-makers.ts";
import { ClosedError, StoreUnavailableError } from "../core/errors.ts";
import { NO_PLACE, type Drawn } from "../core/store.ts";
import { LOOK_IN_US } from "../core/turns.ts";
import { createAlarm } from "./alarm.ts";
import type { Basics } from "./basics.ts";
import { createBooks } from "./books.ts";
import type { Caller, Group } from "./group.ts";
import { slotsOf, type HeldSlot } from "./held-slots.ts";
import { createKeyPlaces, isNone } from "./key-places.ts";
import type { PolicyNews } from "./known-terms.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import { STORE_RETRY_MS } from "./outage/store-retries.ts";
import { createReplyTimes } from "./reply-times.ts";
import { createReturns } from "./returns.ts";
import { mostLeases, nextWishes, readiness } from "./wishes.ts";

const GATHER_MS = 10;
/** A refund takes a round trip; one that is lost is not waited for. */
const REFUND_MS = 100;
const LOOK_IN_MS = LOOK_IN_US / 1_000;

/** Draws slots for the callers of one bucket, and lets each go when its slot comes. */
export interface Pacer {
  readonly waiting: number;
  /** How many wait that their own key holds back. */
  readonly heldBack: number;
  /** When the turn of those who wait comes, on `performance.now()`, as far as the last reply told. */
  readonly turnAtMs: number;
  /** How long the store has owed an answer, in ms. */
  readonly silentMs: number;
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

export interface PacerOptions extends Basics {
  readonly leases: LeaseKeeper;
  /** Another policy is in force: puts callers into the groups that it makes of them. */
  readonly regroup: (callers: readonly Caller[]) => void;
  /** Callers wait while the store does not answer, instead of failing. */
  readonly waitsForStore: boolean;
  readonly startsFull: boolean;
}

export function createPacer(options: PacerOptions): Pacer {
  const { store, bucket, asker, known, leases, waitsForStore, startsFull } = options;
  const alarm = createAlarm(work);
  const times = createReplyTimes();
  const returns = createReturns(options);
  const books = createBooks(leases);
  const keyPlaces = createKeyPlaces();
  let place = NO_PLACE;
  let heldGeneration = 0;
  let askedAtMs = 0;
  /** Since when the store has answered no draw, if the last one failed. */
  let silentSinceMs: number | undefined;
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
    books.letGo(heldGeneration, refund);
    // Callers have left: another replica can use what they would have used.
    if (asking === undefined) books.takeSurplus(giveUp);
    const nextAtMs = books.nextAtMs();
    if (asking !== undefined) return alarm.set(nextAtMs);

    const nowMs = performance.now();
    const askAtMs = askAt(nowMs);
    if (nowMs >= askAtMs) asking = ask(nowMs);
    alarm.set(Math.min(nextAtMs, asking === undefined ? askAtMs : Infinity));
  }

  /** When there is somebody to ask for; Infinity if all have their slots. */
  function askAt(nowMs: number): number {
    const { readyAtMs, lastAtMs, isMany } = readiness(books.waitingIn, nowMs);
    if (readyAtMs === Infinity) return Infinity;
    // While there are slots for a while, newcomers are drawn for together: theirs come behind those anyway.
    const isGathering = lastAtMs > nowMs + GATHER_MS && !isMany;
    const gatheredAtMs = isGathering ? askedAtMs + GATHER_MS : nowMs;
    // A key that is far away does not keep this process from hearing of a change.
    const lookInAtMs = askedAtMs + LOOK_IN_MS;
    return Math.max(askAgainAtMs, gatheredAtMs, Math.min(readyAtMs, lookInAtMs));
  }

  async function ask(nowMs: number): Promise<void> {
    askedAtMs = nowMs;
    const { groups, wishes } = nextWishes(books.waitingIn, keyPlaces, nowMs);
    const { terms } = known;
    const leased = mostLeases(terms.limits, wishes);
    const lease = leases.number(leased);
    try {
      const common = {
        bucket,
        asker,
        terms,
        horizonUs: HORIZON_US,
        drewUs: times.drewUs,
        startsFull,
        place,
        lease,
        leases: leased,
        isTry: false,
      };
      receive(await store.draw({ ...common, wishes }), groups, lease);
    } catch (error) {
      leases.releaseLost(lease, leased, groups);
      if (!waitsForStore || !(error instanceof StoreUnavailableError) || isClosed) failAll(error);
      else askAgainAtMs = performance.now() + STORE_RETRY_MS;
      silentSinceMs ??= nowMs;
    } finally {
      asking = undefined;
    }
    for (const group of groups)
      if (group.line.size === 0 && group.held.size === 0) giveUp(group, []);
    work();
  }

  function receive(reply: Drawn, groups: readonly Group[], firstLease: number): void {
    silentSinceMs = undefined;
    const { arrivedMs, offsetMs, isStale } = times.read(reply);
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
      if (granted.refusal !== undefined) books.refuse(group, granted.refusal);
      if (!isStale)
        books.hold(group, granted, { firstLease: first, sentAtMs: reply.sentAtMs, offsetMs });
      const { notBeforeUs, bindsAt } = granted;
      const isBlocked = notBeforeUs === Infinity;
      const comesAtMs = isBlocked ? arrivedMs + LOOK_IN_MS : notBeforeUs / 1_000 + offsetMs;
      group.notBeforeMs = notBeforeUs === 0 ? 0 : comesAtMs;
      group.bindsAt = bindsAt;
      keyPlaces.keep(group.key, granted.place);
      if (group.notBeforeMs > arrivedMs) books.sendAway(group, group.notBeforeMs - arrivedMs);
      if (isStale) waste(group, slotsOf(granted, first, offsetMs));
    }
    place = reply.place;
    const waitMs = Math.min((place.turnUs - times.drewUs) / 1_000, LOOK_IN_MS);
    turnAtMs = place.turnUs === 0 ? 0 : place.turnUs / 1_000 + offsetMs;
    const isBlocked = place.sinceUs > 0;
    askAgainAtMs = isBlocked ? arrivedMs + LOOK_IN_MS : place.turnUs === 0 ? 0 : arrivedMs + waitMs;
  }

  /** Slots whose time has passed: what they took of a quota is given back, their time is gone. */
  function waste(group: Group, slots: readonly HeldSlot[]): void {
    leases.releaseAll(slots, group);
    refund(group, slots);
  }

  /** A key is not asked about before its own limits have back what the slots took, or it would be told to wait for that. */
  function refund(group: Group, slots: readonly HeldSlot[]): void {
    const refunded = returns.refund(group, slots);
    if (group.keyLimits.length === 0) return;
    group.notBeforeMs = performance.now() + REFUND_MS;
    void refunded.then(() => {
      group.notBeforeMs = 0;
      workSoon();
    });
  }

  /** Slots of an older generation are worthless. */
  function forgetHeld(): void {
    books.forget();
    keyPlaces.clear();
    place = NO_PLACE;
  }

  function learn(news: PolicyNews): void {
    forgetHeld();
    known.learn(news);
    askAgainAtMs = 0;
    options.regroup(books.takeAll().sort((a, b) => a.number - b.number));
  }

  /** Gives back slots that nobody here waits for, and the places of a line that is empty. */
  function giveUp(group: Group, slots: readonly HeldSlot[]): void {
    const own = keyPlaces.of(group.key);
    const isLast = books.waiting === 0;
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
    for (const caller of books.takeAll()) caller.fail(error);
  }

  return {
    get waiting() {
      return books.waiting;
    },
    get heldBack() {
      return books.heldBack;
    },
    get turnAtMs() {
      return turnAtMs;
    },
    get silentMs() {
      const sinceMs = silentSinceMs ?? (asking === undefined ? undefined : askedAtMs);
      return sinceMs === undefined ? 0 : performance.now() - sinceMs;
    },
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      books.enter(caller);
      workSoon();
    },
    leave(caller) {
      const { group } = caller;
      books.leave(caller);
      const isIdle = group.line.size === 0 && group.held.size === 0;
      if (isIdle && asking === undefined) giveUp(group, []);
      workSoon();
    },
    learn,
    forget(key) {
      if (key === undefined) return forgetHeld();
      books.forget(key);
    },
    lookIn(key) {
      if (key === undefined) askAgainAtMs = 0;
      for (const group of books.waitingIn) {
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
