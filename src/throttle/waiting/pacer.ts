import { ClosedError, StoreUnavailableError } from "../../core/errors.ts";
import { HORIZON_US } from "../../core/policy/limit-makers.ts";
import {
  isNone,
  NO_PLACE,
  type Drawn,
  type Granted,
  type News,
  type Wish,
} from "../../core/store.ts";
import type { BucketContext, PolicyUpdate } from "../known-policy.ts";
import type { LeaseKeeper } from "../slot/leases.ts";
import {
  createAlarm,
  createAskTimes,
  createReplyTimes,
  nextKeyCheckMs,
  type AskTimes,
  type Received,
} from "./ask-times.ts";
import { createDispatcher, keyHeldBy, limitHolding, type Dispatcher } from "./dispatch.ts";
import {
  createLinePlaces,
  createWishCount,
  mostLeases,
  nextWishes,
  type Wishes,
} from "./draw-request.ts";
import { giveBack, refundUnused } from "./give-back.ts";
import type { Arrival } from "./group-schedule.ts";
import type { Caller, Group } from "./group.ts";
import {
  createHopelessCalls,
  createEarliestStartCache,
  type EarliestStartCache,
} from "./hopeless.ts";
import { slotCountOf, slotsOf, type HeldSlot } from "../slot/held-slots.ts";

/**
 * Draws slots for the callers of one bucket, and lets each go when its slot comes. One request is under way at a time;
 * callers of one tick are asked for together.
 *
 * ```
 *   ┌──────────────────────────┬──────────────────────┐
 *   ▼                          │                      │ the caller goes
 *  idle ───────► due ───────► asking ───────────► holding
 *   ▲             │ ▲                                 │
 *   └─────────────┘ └──────────── late ◄──────────────┘
 *
 *  idle → due         a caller comes or leaves, there is news, or the alarm rings: workSoon(), then work()
 *  due → idle         work(): no caller lacks a slot, or it is too early to ask; sets the alarm
 *  due → asking       work() calls ask()
 *  asking → idle      receive(): no slots, but when to ask again; or the request fails: the callers do, or wait a second
 *  asking → holding   receive(): slots; work() sets the alarm to the first of them
 *  holding → idle     the alarm rings: dispatchDue() lets the caller go
 *  holding → late     dispatchDue() finds that a slot comes too late, or receive() that its whole reply does
 *  late → due         refund() gives back what the slot took of a quota; its caller is asked for again
 * ```
 *
 * Slots may be held, or late, while the next request is under way. What is asked for is in `draw-request.ts`, when in
 * `ask-times.ts`, who goes in `dispatch.ts`, who is refused at once in
 * `hopeless.ts`, and what is too late in `lateness.ts`.
 */
export interface Pacer {
  /** How many callers wait. */
  readonly waiting: number;
  readonly waits: Dispatcher["waits"];
  /** How many callers wait that their own key defers. */
  readonly deferred: number;
  readonly askTimes: Pick<AskTimes, "turnAtMs" | "silentMs" | "hasAnswered">;
  readonly earliestStarts: Pick<EarliestStartCache, "of" | "forget" | "surelyNotBeforeMs">;
  wait(caller: Caller): void;
  /** Asks when calls of a group could start, though none waits in it; resolves once that is known, or cannot be. */
  look(group: Group): Promise<void>;
  /** Takes out a caller that no longer wants to wait. */
  leave(caller: Caller): void;
  /** The bucket, or one key, has changed, or a lease is free: callers that wait for it are asked for again. */
  redraw(key?: string, news?: News): void;
  /** Another policy is in force. */
  readonly learn: (news: PolicyUpdate) => void;
  /** Slots that are held, of one key or of all, are worthless. */
  readonly forget: (key: string | undefined) => void;
  /** Fails all callers, and gives their slots back. */
  close(): Promise<void>;
}

export interface PacerOptions extends BucketContext {
  readonly leases: LeaseKeeper;
  /** Another policy is in force: puts callers into the groups that it makes of them. */
  readonly regroup: (callers: readonly Caller[]) => void;
  /** Callers wait while the store does not answer, instead of failing. */
  readonly waitsForStore: boolean;
  readonly startsFull: boolean;
  /** There is news, of one key or of all: what was known of when calls can start is void. */
  readonly onChange: (key: string | undefined) => void;
}

const wantedOf = ({ wanted }: Wish): number => wanted;

function sumOf<T>(items: readonly T[], amountOf: (item: T) => number): number {
  return items.reduce((sum, item) => sum + amountOf(item), 0);
}

/** A refund takes a round trip; a key is asked about again after this time even if its refund is lost. */
const REFUND_MS = 100;

export function createPacer(options: PacerOptions): Pacer {
  const { store, bucket, asker, known, leases, waitsForStore, startsFull } = options;
  const setAlarm = createAlarm(work);
  const times = createReplyTimes();
  const dispatcher = createDispatcher(leases);
  const { schedule, left } = dispatcher;
  const earliestStarts = createEarliestStartCache(dispatcher);
  const linePlaces = createLinePlaces();
  const wishCount = createWishCount();
  const askTimes = createAskTimes(schedule.soonest, times);
  const hopeless = createHopelessCalls({ dispatcher, earliestStarts, askTimes });
  /** What is being given back. */
  const underWay = new Set<Promise<void>>();
  let heldGeneration = 0;
  let asking: Promise<void> | undefined;
  let isWorkDue = false;
  /** Whether a free lease was offered since the last request left. */
  let isOffered = false;
  let isClosed = false;

  /** Once per tick, so that all callers of one tick are drawn for together. */
  function workSoon(): void {
    if (isWorkDue) return;
    isWorkDue = true;
    queueMicrotask(work);
  }

  function work(): void {
    isWorkDue = false;
    dispatcher.dispatchDue(heldGeneration, refund);
    hopeless.refuse();
    if (asking !== undefined) return setAlarm(dispatcher.nextAtMs());
    giveUpUnneeded();
    const nowMs = performance.now();
    const askAtMs = askTimes.nextAtMs(nowMs, hopeless.areLooks, dispatcher.lastSharedSlotMs);
    if (nowMs >= askAtMs) asking = ask(nowMs);
    setAlarm(Math.min(dispatcher.nextAtMs(), asking === undefined ? askAtMs : Infinity));
  }

  /** There is news, or slots go back: callers that it makes hopeless are to be told soon. */
  function forgetKnown(key: string | undefined): void {
    earliestStarts.forget();
    hopeless.scheduleSoon();
    options.onChange(key);
  }

  async function ask(nowMs: number): Promise<void> {
    askTimes.asked(nowMs);
    const thereAtMs = nowMs + times.leadMs;
    const { bucketUs } = times;
    const at = { nowMs: thereAtMs, bucketUs, most: wishCount.most };
    const asked = nextWishes(schedule, hopeless.next(), linePlaces, at);
    const { groups, wishes } = asked;
    const { terms } = known;
    const leased = mostLeases(terms.limits, wishes);
    const wasOffered = isOffered;
    isOffered = false;
    const { epoch } = earliestStarts;
    const lease = leases.number(leased);
    try {
      const reply = await store.draw({
        bucket,
        asker,
        terms,
        wishes,
        horizonUs: HORIZON_US,
        drewUs: times.drewUs,
        startsFull,
        place: linePlaces.shared,
        lease,
        leases: leased,
        isTry: false,
      });
      receive(reply, asked, { lease, epoch });
      if (wasOffered) passOn(reply, asked);
    } catch (error) {
      leases.releaseLost(lease, leased, groups);
      if (!waitsForStore || !(error instanceof StoreUnavailableError) || isClosed) failAll(error);
      else askTimes.retryLater();
      hopeless.endLooks();
    } finally {
      asking = undefined;
    }
    for (const group of groups) left.add(group);
    work();
  }

  /** `lease` is the number of the first lease that the groups could get; `epoch` is that of the request. */
  function receive(
    reply: Drawn,
    asked: Wishes,
    { lease, epoch }: { readonly lease: number; readonly epoch: number },
  ): void {
    const { groups } = asked;
    const received = times.read(reply);
    askTimes.answered(reply, received, firstInLine(reply, asked));
    if (reply.generation !== heldGeneration) {
      forgetHeld();
      schedule.deferNone();
    }
    heldGeneration = reply.generation;
    const { newText, version, isOverride, sentAtMs } = reply;
    if (newText !== undefined) return learn({ text: newText, version, isOverride });

    known.confirm(version);
    leases.learnSpare(reply.spareLeases, reply.alive);
    earliestStarts.learn(reply, asked, { epoch, ...received });
    hopeless.check(groups);
    const isMany = asked.wishes.length > 1;
    if (isMany) wishCount.granted(sumOf(reply.granted, slotCountOf), sumOf(asked.wishes, wantedOf));
    let nextLease = lease;
    const deferred = new Set<Group>();
    for (const [index, granted] of reply.granted.entries()) {
      const group = groups[index]!;
      const { wanted, rank } = asked.wishes[index]!;
      if (wanted === 0) continue;
      const { hasLeases, areNumbered } = group.callTerms;
      const firstLease = hasLeases ? nextLease : 0;
      if (areNumbered) nextLease += granted.slotsUs.length;
      // What comes first of a group says when it is asked for again.
      const isDeferred = deferred.has(group);
      take(group, granted, { firstLease, sentAtMs, isDeferred, rank, wanted, ...received });
      if (granted.notBeforeUs > 0) deferred.add(group);
    }
    linePlaces.shared = reply.place;
    // Who is hopeless is refused rather than sent away for a while.
    hopeless.onReply(groups, received.isStale || epoch !== earliestStarts.epoch);
    for (const group of groups) {
      const roomInMs = group.notBeforeMs - received.arrivedMs;
      if (roomInMs > 0) dispatcher.dismissImpatient(group, roomInMs);
    }
  }

  /** The first call that waits for its turn, rather than for its key. */
  function firstInLine({ granted }: Drawn, { wishes, firsts }: Wishes): Arrival | undefined {
    const index = granted.findIndex(
      (each, at) => each.notBeforeUs === 0 && slotCountOf(each) < wishes[at]!.wanted,
    );
    return firsts[index];
  }

  /** Another comes first by now, or a key holds the call back: the lease that this process was woken for is another's. */
  function passOn({ granted }: Drawn, { groups, wishes }: Wishes): void {
    const leased = groups.filter(
      ({ callTerms }, index) => callTerms.hasLeases && wishes[index]!.wanted > 0,
    );
    if (granted.every(({ slotsUs }) => slotsUs.length === 0))
      leased.forEach((group) => leases.passOn(group));
  }

  /** Takes in what one group was granted; `firstLease` is 0 if it has none. */
  function take(
    group: Group,
    granted: Granted,
    drawn: Received & {
      readonly firstLease: number;
      readonly sentAtMs: number;
      readonly isDeferred: boolean;
      readonly rank: number;
      readonly wanted: number;
    },
  ): void {
    const { isDeferred, wanted, arrivedMs, offsetMs, isStale, firstLease } = drawn;
    if (granted.refusal !== undefined) dispatcher.refuse(group, granted.refusal);
    if (!isStale) dispatcher.hold(group, granted, drawn);
    const bindsAt = limitHolding(group, granted, wanted);
    const untilMs = keyTimeMs(granted, drawn);
    group.heldBy = keyHeldBy(group, granted);
    if (!isDeferred) schedule.answered(group, { untilMs, arrivedMs, bindsAt });
    group.scopes.forEach(({ key }, index) => linePlaces.keep(key, granted.places[index]!));
    if (!isStale) return;
    const slots = slotsOf(granted, firstLease, offsetMs);
    leases.releaseAll(slots, group);
    refund(group, slots);
  }

  /** When the key of these calls is to be asked about again; 0: at any time. */
  function keyTimeMs({ notBeforeUs }: Granted, { arrivedMs, offsetMs }: Received): number {
    if (notBeforeUs === 0) return 0;
    if (notBeforeUs < Infinity) return notBeforeUs / 1_000 + offsetMs;
    return nextKeyCheckMs(arrivedMs, schedule.deferredGroups);
  }

  /**
   * What late slots took of a quota goes back; their time is gone. A key is not asked about before its own limits have
   * that back, or the answer would be to wait for it.
   */
  function refund(group: Group, slots: readonly HeldSlot[]): void {
    const refunded = track(refundUnused(options, group, slots));
    if (slots.length > 0) forgetKnown(undefined);
    if (group.scopes.length === 0) return;
    schedule.deferUntil(group, performance.now() + REFUND_MS);
    void refunded.then(() => {
      schedule.deferUntil(group, 0);
      workSoon();
    });
  }

  /** Gives back the slots that no caller here waits for, and the places of lines that are empty. */
  function giveUpUnneeded(): void {
    dispatcher.takeSurplus(giveUp);
    for (const group of left) if (group.isIdle) giveUp(group, []);
    left.clear();
  }

  function giveUp(group: Group, slots: readonly HeldSlot[]): void {
    const isLast = dispatcher.waiting === 0;
    const shared = isLast ? linePlaces.shared : NO_PLACE;
    const scopes = linePlaces.giveUp(group.scopes, (key) => schedule.hasKey(key));
    const isPlaceless = isNone(shared) && scopes.every(({ place }) => isNone(place));
    // The next caller is asked for at once: until then no change is noticed here.
    schedule.deferUntil(group, 0);
    if (slots.length === 0 && isPlaceless) return;
    const unneeded = { generation: heldGeneration, group, slots, place: shared, scopes };
    void track(giveBack(options, unneeded));
    if (slots.length > 0) forgetKnown(undefined);
    if (!isLast) return;
    linePlaces.shared = NO_PLACE;
    askTimes.retryNow();
  }

  function track(sending: Promise<void>): Promise<void> {
    const tracked = sending.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
    return tracked;
  }

  /** Slots of an older generation are worthless. */
  function forgetHeld(): void {
    dispatcher.forget();
    linePlaces.forgetSharedTurn();
  }

  function learn(news: PolicyUpdate): void {
    forgetHeld();
    earliestStarts.forget();
    known.learn(news);
    askTimes.retryNow();
    hopeless.clear();
    hopeless.endLooks();
    options.onChange(undefined);
    options.regroup(dispatcher.takeAll().sort((a, b) => a.number - b.number));
    workSoon();
  }

  function failAll(error: unknown): void {
    hopeless.clear();
    for (const caller of dispatcher.takeAll()) caller.fail(error);
  }

  return {
    get waiting() {
      return dispatcher.waiting;
    },
    waits: dispatcher.waits,
    get deferred() {
      return schedule.deferredCallers;
    },
    askTimes,
    earliestStarts,
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      if (hopeless.isHopeless(caller)) return caller.refuse();
      dispatcher.enter(caller);
      hopeless.joined(caller);
      // Others here may wait for the very lease that this caller's job holds: it does not wait for their turn.
      if (caller.isUnderWay) askTimes.retryNow();
      workSoon();
    },
    look(group) {
      if (isClosed) return Promise.resolve();
      workSoon();
      return hopeless.look(group);
    },
    leave(caller) {
      const { group } = caller;
      const isFirst = group.line.head === caller;
      dispatcher.leave(caller);
      // What was saved up for it is free for those behind it.
      askTimes.left(caller);
      const isDeferred = isFirst && group.notBeforeMs > 0;
      if (isDeferred) for (const { key } of group.scopes) schedule.wake(key);
      workSoon();
    },
    learn,
    forget(key) {
      forgetKnown(key);
      if (key === undefined) return forgetHeld();
      dispatcher.forget(key);
    },
    redraw(key, news) {
      if (news === "lease") isOffered = true;
      else forgetKnown(key);
      if (key === undefined) askTimes.retryNow();
      else {
        schedule.wake(key);
        if (news !== "lease") hopeless.askAboutEach(schedule.ofKey(key));
      }
      // A lease of the bucket is of no use to calls that their own key defers.
      if (key === undefined && news !== "lease") schedule.wakeAll();
      workSoon();
    },
    async close() {
      isClosed = true;
      failAll(new ClosedError(`Bucket "${bucket}"`));
      hopeless.endLooks();
      await asking;
      work();
      setAlarm(Infinity);
      await Promise.all(underWay);
    },
  };
}
