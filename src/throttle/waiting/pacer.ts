import { promisify } from "node:util";
import { reasonOf } from "../../core/describe.ts";
import { isMemberKey } from "../../core/key-path.ts";
import { ClosedError, StoreUnavailableError } from "../../core/errors.ts";
import { ruleOf } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import {
  isNone,
  limitsOfCall,
  MOST_RETURNED,
  NO_POSITION,
  type Drawn,
  type Granted,
  type KeyScope,
  type WaitPosition,
  type WakeReason,
  type SlotRequest,
} from "../../core/store.ts";
import { budgetCostsOf } from "../costs.ts";
import { settlingTerms, type BucketContext, type PolicyUpdate } from "../known-policy.ts";
import type { LeaseKeeper } from "../slot/leases.ts";
import {
  createAlarm,
  createAskTimes,
  createReplyTimes,
  nextKeyCheckMs,
  type AskTimes,
  type Received,
} from "./ask-times.ts";
import {
  byMember,
  createDispatcher,
  keyHeldBy,
  limitHolding,
  type Dispatcher,
} from "./dispatch.ts";
import {
  createWaitPositions,
  createSlotRequestCount,
  horizonOver,
  mostLeases,
  nextSlotRequests,
  poolRequest,
  slotRequestsOver,
  type UsesMember,
  type AskedSlots,
} from "./draw-request.ts";
import type { Arrival } from "./group-schedule.ts";
import type { Caller, Group, MemberGroup } from "./group.ts";
import {
  createEarlyRejection,
  createEarliestStartCache,
  type EarliestStartCache,
} from "./early-rejection.ts";
import { slotCountOf, slotsOf, type HeldSlot } from "../slot/held-slots.ts";
import { spentError } from "./waiting-call.ts";

/**
 * Draws slots for the callers of one bucket, and starts each caller when its slot is due. At most one request is in
 * flight, and callers of one tick share a request.
 *
 * ```
 *    ┌──────────────────────────┬──────────────────────┐
 *    ▼                          │                      │ the caller starts
 *   idle ───────► due ───────► asking ───────────► holding
 *    ▲             │ ▲                                 │
 *    └─────────────┘ └──────────── late ◄──────────────┘
 *
 *   idle → due         a caller joins or leaves, a notification arrives, or the alarm rings: workSoon() calls work()
 *   due → idle         work(): every caller has a slot, or it is too early for a request. work() sets the alarm
 *   due → asking       work() calls ask()
 *   asking → idle      receive(): the reply has no slots, but the time of the next request. Or the request fails. Then its
 *                      callers fail, or it is sent again after a second
 *   asking → holding   receive(): the reply has slots. work() sets the alarm to the first slot
 *   holding → idle     the alarm rings: dispatchDue() starts the caller
 *   holding → late     dispatchDue() finds that a slot is too late, or receive() finds that the whole reply is too late
 *   late → due         refund() gives back what the slot took from a quota. A new slot is requested for its caller
 * ```
 *
 * Slots may be held, or late, while the next request is in flight.
 *
 * - `draw-request.ts` builds the request.
 * - `ask-times.ts` decides when to send the request.
 * - `dispatch.ts` assigns slots to callers.
 * - `early-rejection.ts` rejects calls that cannot meet their deadline.
 * - `lateness.ts` decides which slots are too late.
 */
export interface Pacer {
  /** The number of pending callers. */
  readonly waiting: number;
  /** The number of groups that these callers are in. */
  readonly groups: number;
  readonly waits: Dispatcher["waits"];
  /** The number of pending callers that their own key defers. */
  readonly deferred: number;
  readonly askTimes: Pick<AskTimes, "turnAtMs" | "silentMs" | "hasAnswered">;
  readonly earliestStarts: Pick<EarliestStartCache, "of" | "forget" | "surelyNotBeforeMs">;
  wait(caller: Caller): void;
  /**
   * Looks up when calls of a group could start, even if no call waits in the group. Resolves when
   * the start time is known, or cannot be determined.
   */
  lookUp(group: Group): Promise<void>;
  /** Removes a caller that no longer waits. */
  leave(caller: Caller): void;
  /**
   * Requests slots again, because the bucket or one key changed, or a lease became free. With a
   * key, only the callers of that key are affected.
   */
  redraw(key?: string, reason?: WakeReason): void;
  /** Applies a new policy. */
  readonly learn: (update: PolicyUpdate) => void;
  /** Drops the held slots of one key, or of all keys, because they are no longer valid. */
  readonly forget: (key: string | undefined) => void;
  /** Fails all callers, and gives back their slots. */
  close(): Promise<void>;
}

export interface PacerOptions extends BucketContext {
  readonly leases: LeaseKeeper;
  /** Moves callers into their groups under a new policy. */
  readonly regroup: (callers: readonly Caller[]) => void;
  /** If true, callers wait while the store does not answer. If false, they fail. */
  readonly waitsForStore: boolean;
  readonly startsFull: boolean;
  /** True if calls of this process may use a member of a pool. Defaults to all members. */
  readonly usesMember?: UsesMember | undefined;
  /** Resolves when the store has replied to all settlements of this process that were sent so far. */
  readonly settlementsAnswered: () => Promise<void>;
  /** Called when the cached start times of one key, or of all keys, have become invalid. */
  readonly onChange: (key: string | undefined) => void;
}

const endOfTurn = promisify(setImmediate);

const wantedOf = ({ wanted }: SlotRequest): number => wanted;

function sumOf<T>(items: readonly T[], amountOf: (item: T) => number): number {
  return items.reduce((sum, item) => sum + amountOf(item), 0);
}

/**
 * How long a key waits for its refund, in ms. A refund takes one round trip. After this time, the
 * key is asked for again, even if its refund was lost.
 */
const REFUND_MS = 100;

export function createPacer(options: PacerOptions): Pacer {
  const { store, bucket, asker, known, leases, waitsForStore, startsFull } = options;
  const setAlarm = createAlarm(work);
  const times = createReplyTimes();
  const dispatcher = createDispatcher(leases);
  const { schedule, left } = dispatcher;
  const earliestStarts = createEarliestStartCache(dispatcher);
  const waitPositions = createWaitPositions();
  const slotRequestCount = createSlotRequestCount();
  const askTimes = createAskTimes(schedule.soonest, times);
  const rejection = createEarlyRejection({ dispatcher, earliestStarts, askTimes });
  /** The requests in flight that give back slots, positions or usage. */
  const underWay = new Set<Promise<void>>();
  /** Groups whose calls did not fit into a budget, and that are asked for once more. */
  const settledBefore = new WeakSet<Group>();
  /** Groups with jobs that wait for the next period of a budget, although other calls are rejected. */
  const waitingForBudgets = new WeakSet<Group>();
  let heldGeneration = 0;
  let asking: Promise<void> | undefined;
  let isWorkDue = false;
  /** True if a free lease was offered after the last request was sent. */
  let isOffered = false;
  let isClosed = false;

  /** Runs once per tick, so that all callers of one tick share a request. */
  function workSoon(): void {
    if (isWorkDue) return;
    isWorkDue = true;
    queueMicrotask(work);
  }

  function work(): void {
    isWorkDue = false;
    dispatcher.dispatchDue(heldGeneration, refund);
    rejection.refuse();
    if (asking !== undefined) return setAlarm(dispatcher.nextAtMs());
    giveBackUnneeded();
    const nowMs = performance.now();
    const askAtMs = askTimes.nextAtMs(nowMs, rejection.hasLookups, dispatcher.lastSharedSlotMs);
    if (nowMs >= askAtMs) asking = ask(nowMs);
    setAlarm(Math.min(dispatcher.nextAtMs(), asking === undefined ? askAtMs : Infinity));
  }

  /** Clears the cached start times, and soon looks them up again for callers with a deadline. */
  function clearStartTimes(key: string | undefined): void {
    earliestStarts.forget();
    rejection.scheduleSoon();
    options.onChange(key);
  }

  async function ask(nowMs: number): Promise<void> {
    askTimes.requestSent(nowMs);
    const thereAtMs = nowMs + times.leadMs;
    const { bucketUs } = times;
    const isFair = schedule.areTurns;
    const tripUs = Math.floor(times.leadMs * 1_000);
    const most = slotRequestsOver(times.leadMs, slotRequestCount.most);
    const horizonUs = horizonOver(tripUs);
    const at = { nowMs: thereAtMs, bucketUs, most, isFair, horizonUs };
    const asked = nextSlotRequests(schedule, rejection.next(), waitPositions, at);
    const { groups, slotRequests } = asked;
    const { terms } = known;
    const { pool } = known.policy;
    const leased = mostLeases(terms.limits, slotRequests, pool?.members);
    const wasOffered = isOffered;
    isOffered = false;
    const { epoch } = earliestStarts;
    const lease = leases.number(leased);
    try {
      const reply = await store.draw({
        bucket,
        asker,
        terms,
        slotRequests,
        horizonUs,
        tripUs,
        drewUs: times.drewUs,
        startsFull,
        position: waitPositions.shared,
        lease,
        leases: leased,
        isTry: false,
        ...(pool && { pool: poolRequest(pool, options.usesMember) }),
      });
      receive(reply, asked, { lease, epoch });
      if (wasOffered) passOn(reply, asked);
    } catch (error) {
      leases.releaseLost(lease, leased, groups);
      if (!waitsForStore || !(error instanceof StoreUnavailableError) || isClosed) failAll(error);
      else askTimes.retryLater();
      rejection.endLookups();
    } finally {
      asking = undefined;
    }
    for (const group of groups) left.add(group);
    work();
  }

  /**
   * Processes the reply to a draw request. `lease` is the number of the request's first lease.
   * `epoch` is the cache's epoch when the request was sent.
   */
  function receive(
    reply: Drawn,
    asked: AskedSlots,
    { lease, epoch }: { readonly lease: number; readonly epoch: number },
  ): void {
    const { groups } = asked;
    const received = times.read(reply);
    askTimes.replyReceived(reply, received, firstInLine(reply, asked));
    if (reply.generation !== heldGeneration) {
      forgetHeld();
      schedule.deferNone();
    }
    heldGeneration = reply.generation;
    const { newText, version, isOverride, sentAtMs, nowUs } = reply;
    if (newText !== undefined) return learn({ text: newText, version, isOverride });

    known.confirm(version);
    leases.learnSpare(reply.spareLeases, reply.alive);
    earliestStarts.learn(reply, asked, { epoch, ...received });
    if (reply.turnTags !== undefined) schedule.learnTurns(reply.turnTags, groups);
    rejection.check(groups);
    let nextLease = lease;
    const deferred = new Set<Group>();
    for (const [index, granted] of reply.granted.entries()) {
      const group = groups[index]!;
      const { wanted, rank } = asked.slotRequests[index]!;
      if (wanted === 0) continue;
      const { hasLeases, areNumbered } = group.callTerms;
      const firstLease = hasLeases ? (reply.turnTags?.firstLeases[index] ?? nextLease) : 0;
      if (areNumbered) nextLease += granted.slotsUs.length;
      // The first slot request of a group that is deferred decides when the group is asked for
      // again.
      const isDeferred = deferred.has(group);
      take(group, granted, { firstLease, sentAtMs, isDeferred, rank, wanted, nowUs, ...received });
      if (granted.notBeforeUs > 0) deferred.add(group);
    }
    waitPositions.shared = reply.position;
    // This step comes before `sendBackImpatient`, so that a call that cannot meet its deadline is
    // rejected and not sent back.
    rejection.onReply(groups, received.isStale || epoch !== earliestStarts.epoch);
    for (const group of groups) {
      const roomInMs = group.notBeforeMs - received.arrivedMs;
      if (roomInMs > 0) dispatcher.sendBackImpatient(group, roomInMs);
    }
    if (asked.slotRequests.length === 1) return;
    slotRequestCount.granted(
      sumOf(reply.granted, slotCountOf),
      sumOf(asked.slotRequests, wantedOf),
      performance.now() - received.offsetMs - nowUs / 1_000,
    );
  }

  /** Returns the first call that waits for its turn and not for its key. */
  function firstInLine(
    { granted }: Drawn,
    { slotRequests, firsts }: AskedSlots,
  ): Arrival | undefined {
    const index = granted.findIndex(
      (each, at) => each.notBeforeUs === 0 && slotCountOf(each) < slotRequests[at]!.wanted,
    );
    return firsts[index];
  }

  /**
   * Passes on an offered lease that this process cannot use. This happens if another call now goes
   * first, or if a key delays this process's calls.
   */
  function passOn({ granted }: Drawn, { groups, slotRequests }: AskedSlots): void {
    const leased = groups.filter(
      ({ callTerms }, index) => callTerms.hasLeases && slotRequests[index]!.wanted > 0,
    );
    if (granted.every(({ slotsUs }) => slotsUs.length === 0))
      leased.forEach((group) => leases.passOn(group));
  }

  /** Processes the slots that one group was granted. `firstLease` is 0 if there are no leases. */
  function take(
    group: Group,
    granted: Granted,
    drawn: Received & {
      readonly firstLease: number;
      readonly sentAtMs: number;
      readonly isDeferred: boolean;
      readonly rank: number;
      readonly wanted: number;
      readonly nowUs: number;
    },
  ): void {
    const { isDeferred, wanted, arrivedMs, offsetMs, isStale, firstLease } = drawn;
    if (granted.refusal !== undefined) dispatcher.refuse(group, () => granted.refusal);
    if (!isStale) dispatcher.hold(group, granted, drawn);
    const bindsAt = limitHolding(group, granted, wanted);
    waitingForBudgets.delete(group);
    const areAllRefused = granted.spent !== undefined && refuseUnaffordable(group, granted, drawn);
    const untilMs = areAllRefused ? 0 : keyTimeMs(granted, drawn);
    group.heldBy = keyHeldBy(group, granted);
    if (!isDeferred) schedule.answered(group, { untilMs, arrivedMs, bindsAt });
    group.scopes.forEach(({ key }, index) => waitPositions.keep(key, granted.positions[index]!));
    if (!isStale) return;
    const slots = slotsOf(granted, firstLease, offsetMs);
    for (const [of, own] of byMember(group, slots)) leases.releaseAll(own, of);
    refund(group, slots);
  }

  /**
   * Rejects the calls that do not fit into a budget, unless they wait for its next period. Returns
   * true if no call of the group waits any more.
   */
  function refuseUnaffordable(
    group: Group,
    granted: Granted,
    { nowUs }: { nowUs: number },
  ): boolean {
    if (group.callTerms.reserves && !settledBefore.delete(group)) {
      void lookAgainSettled(group);
      return false;
    }
    dispatcher.refuse(group, (caller) => spentError(bucket, { caller, granted, nowUs }));
    askTimes.retryNow();
    if (group.line.size === 0) return true;
    const { budget } = group.callTerms.limits[granted.bindsAt - 1]!;
    if (budget?.onSpent === "refuse") waitingForBudgets.add(group);
    return false;
  }

  /**
   * Asks once more for calls that did not fit into a budget, after this process has settled the
   * calls that have just ended. Their reservations may have been the reason.
   */
  async function lookAgainSettled(group: Group): Promise<void> {
    settledBefore.add(group);
    await endOfTurn();
    await options.settlementsAnswered();
    schedule.deferUntil(group, 0);
    askTimes.retryNow();
    workSoon();
  }

  /** Returns when to ask for a key again, according to the reply about its calls. 0 allows any time. */
  function keyTimeMs({ notBeforeUs }: Granted, { arrivedMs, offsetMs }: Received): number {
    if (notBeforeUs === 0) return 0;
    if (notBeforeUs < Infinity) return notBeforeUs / 1_000 + offsetMs;
    return nextKeyCheckMs(arrivedMs, schedule.deferredGroups);
  }

  /**
   * Gives back the usage that late slots took from a quota. The slots' times are lost. The key is
   * not asked for until the refund has arrived, because the reply would otherwise be to wait for
   * it.
   */
  function refund(group: Group, slots: readonly HeldSlot[]): void {
    const refunded = trackAll(group, slots, (of, own) => refundUnused(options, of, own));
    if (slots.length > 0) clearStartTimes(undefined);
    // Only quotas and budgets could refuse the next draw because of these slots. A pool has other members.
    if (group.pool !== undefined) return;
    if (group.scopes.length === 0 && !group.callTerms.hasBudgets) return;
    schedule.deferUntil(group, performance.now() + REFUND_MS);
    void refunded.then(() => {
      schedule.deferUntil(group, 0);
      workSoon();
    });
  }

  /**
   * Gives back the slots that no caller of this process needs, and the queue positions of empty
   * lines.
   */
  function giveBackUnneeded(): void {
    dispatcher.takeSurplus(giveBackUnneededOf);
    for (const group of left) if (group.isIdle) giveBackUnneededOf(group, []);
    left.clear();
  }

  function giveBackUnneededOf(group: Group, slots: readonly HeldSlot[]): void {
    const isLast = dispatcher.waiting === 0;
    const shared = isLast ? waitPositions.shared : NO_POSITION;
    const scopes = waitPositions.giveUp(group.scopes, (key) => schedule.hasKey(key));
    const isWithoutPosition = isNone(shared) && scopes.every(({ position }) => isNone(position));
    // The next caller is asked for immediately, because this process detects no changes until its
    // next request.
    schedule.deferUntil(group, 0);
    if (slots.length === 0 && isWithoutPosition) return;
    void trackAll(group, slots, (of, own) => {
      const members = slots.length > 0 ? of.scopes.slice(scopes.length) : waitingAt(group, shared);
      const all = { slots: own, position: shared, scopes: [...scopes, ...members] };
      return giveBack(options, { generation: heldGeneration, group: of, ...all });
    });
    if (slots.length > 0) clearStartTimes(undefined);
    if (!isLast) return;
    waitPositions.shared = NO_POSITION;
    askTimes.retryNow();
  }

  function track(sending: Promise<void>): Promise<void> {
    const tracked = sending.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
    return tracked;
  }

  /** Returns the members at which calls of a pool waited for a lease. They have one position for all members. */
  function waitingAt({ pool }: Group, { leaseOrder }: WaitPosition): KeyScope[] {
    if (pool === undefined || leaseOrder === 0) return [];
    const position = { ...NO_POSITION, leaseOrder };
    return pool.pool.members.map(({ scope }) => ({ ...scope, position }));
  }

  /** Sends a request about slots of a group: in a pool, one for each member. */
  function trackAll(
    group: Group,
    slots: readonly HeldSlot[],
    send: (of: Group | MemberGroup, slots: readonly HeldSlot[]) => Promise<void>,
  ): Promise<void> {
    const sending = [...byMember(group, slots)].map(([of, own]) => track(send(of, own)));
    return Promise.all(sending).then(() => undefined);
  }

  /** Drops the slots of an older generation. */
  function forgetHeld(): void {
    dispatcher.forget(undefined, refundBudgets);
    waitPositions.forgetSharedTurn();
  }

  /** Returns the cost of dropped slots to budgets. Other limits may already have lost these bookings. */
  function refundBudgets(group: Group, slots: readonly HeldSlot[]): void {
    if (!group.callTerms.hasBudgets) return;
    void trackAll(group, slots, (of, own) => refundUnused(options, of, own, "budgets"));
  }

  function learn(update: PolicyUpdate): void {
    forgetHeld();
    earliestStarts.forget();
    known.learn(update);
    askTimes.retryNow();
    rejection.clear();
    rejection.endLookups();
    options.onChange(undefined);
    options.regroup(dispatcher.takeAll().sort((a, b) => a.number - b.number));
    workSoon();
  }

  function failAll(error: unknown): void {
    rejection.clear();
    for (const caller of dispatcher.takeAll()) caller.fail(error);
  }

  return {
    get waiting() {
      return dispatcher.waiting;
    },
    get groups() {
      return schedule.soonest.size;
    },
    waits: dispatcher.waits,
    get deferred() {
      return schedule.deferredCallers;
    },
    askTimes,
    earliestStarts,
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      if (rejection.isTooLate(caller)) return caller.refuse();
      dispatcher.enter(caller);
      rejection.joined(caller);
      // Jobs of the same group may wait for the next period of a budget. This call must not wait
      // with them.
      const { group, waitsForBudgets } = caller;
      if (waitingForBudgets.has(group) && !waitsForBudgets) schedule.deferUntil(group, 0);
      // The call of a started job is requested immediately. Its job may hold the lease that other
      // callers of this process wait for, so it must not wait for their turn.
      if (caller.isOfStartedJob) askTimes.retryNow();
      workSoon();
    },
    lookUp(group) {
      if (isClosed) return Promise.resolve();
      workSoon();
      return rejection.lookUp(group);
    },
    leave(caller) {
      const { group } = caller;
      const isFirst = group.line.head === caller;
      dispatcher.leave(caller);
      // The store may have saved up units for this caller. The callers behind it can use these units now.
      askTimes.callerLeft(caller);
      const isDeferred = isFirst && group.notBeforeMs > 0;
      if (isDeferred) for (const { key } of group.scopes) schedule.wake(key);
      workSoon();
    },
    learn,
    forget(key) {
      clearStartTimes(key);
      if (key === undefined) return forgetHeld();
      dispatcher.forget(key, refundBudgets);
    },
    redraw(key, reason) {
      if (reason === "lease") isOffered = true;
      else clearStartTimes(key);
      // Calls of a pool wait for all members, so a change of one member concerns all of them.
      if (key === undefined || isMemberKey(key)) askTimes.retryNow();
      else {
        schedule.wake(key);
        if (reason !== "lease") rejection.requestStartTimes(schedule.ofKey(key));
      }
      // A free lease of the bucket wakes no deferred groups, because it does not help calls that
      // their own key defers.
      if (key === undefined && reason !== "lease") schedule.wakeAll();
      workSoon();
    },
    async close() {
      isClosed = true;
      failAll(new ClosedError(`Bucket "${bucket}"`));
      rejection.endLookups();
      await asking;
      work();
      setAlarm(Infinity);
      await Promise.all(underWay);
    },
  };
}

/**
 * Slots and queue positions that no caller of this process needs any more, but another replica can
 * use.
 */
interface Unneeded {
  readonly generation: number;
  readonly group: Group | MemberGroup;
  readonly slots: readonly HeldSlot[];
  /** The queue position in the bucket. `scopes` contain the queue positions of the group's keys. */
  readonly position: WaitPosition;
  readonly scopes: readonly KeyScope[];
}

/** Gives back future slots and queue positions. Never rejects. */
function giveBack(
  context: BucketContext,
  { generation, group, slots, position, scopes }: Unneeded,
): Promise<void> {
  const { store, bucket, asker, known, count } = context;
  const { name, callTerms } = group;
  const slotsUs = slots.map(({ slotUs }) => slotUs).slice(0, MOST_RETURNED);
  if (slotsUs.length > 0) count("returned", slotsUs.length);
  const costs = callTerms.costs.slice(0, limitsOfCall(callTerms.shared, scopes).length);
  const slotRequest = { name, scopes, costs, reserves: callTerms.reserves };
  const { terms } = known;
  const request = { bucket, asker, terms, generation, position, slotRequest, slotsUs };
  return sent(store.giveBack(request), context);
}

const MOST_REFUNDS = 20;

/**
 * Gives the usage of late slots back to quotas, and to limits on units such as tokens. The start
 * times of these slots stay unused. Resolves when the store has replied. Never rejects.
 */
export async function refundUnused(
  context: BucketContext,
  { scopes, callTerms }: Pick<Group, "scopes" | "callTerms">,
  slots: readonly HeldSlot[],
  which: "all" | "budgets" = "all",
): Promise<void> {
  const { store, bucket, asker, known, count } = context;
  if (slots.length > 0 && which === "all") count("late", slots.length);
  const { limits, shared, costs, reserves } = callTerms;
  /** True for each limit whose cost is settled to zero, as for a call that used nothing. */
  const isSettled = limits.map(
    (limit, index) => which === "all" && isOfUnits(limit) && costs[index]! > 0,
  );
  const isReturned = limits.map((limit, index) => {
    if (which === "budgets") return limit.budget !== undefined;
    return !isSettled[index] && (index >= shared.length || isQuota(limit));
  });
  const parts = [
    { isIncluded: isReturned, isUnused: true },
    { isIncluded: isSettled, isUnused: false },
  ].filter(({ isIncluded }) => isIncluded.includes(true));
  const terms = settlingTerms(known, callTerms);
  if (parts.length === 0 || terms === undefined) return;
  const counts = new Map<number, number>();
  for (const { slotUs } of slots) counts.set(slotUs, (counts.get(slotUs) ?? 0) + 1);
  // All slots of a burst have the same time, so one request gives them back. If the slots have many
  // different times, only the largest groups are worth a request.
  // Money of a budget is never left behind.
  const most = callTerms.hasBudgets ? counts.size : MOST_REFUNDS;
  const largest = [...counts].sort(([, a], [, b]) => b - a).slice(0, most);
  const settled = largest.flatMap(([slotUs, count]) =>
    parts.map(({ isIncluded, isUnused }) => {
      const deltas = costs.map((cost, index) => (isIncluded[index] ? -count * cost : 0));
      const amounts = budgetCostsOf(callTerms, count);
      const reserved = reserves && isUnused ? { asker, amounts } : undefined;
      const request = { bucket, terms, scopes, deltas, slotUs, isUnused, reserved };
      return sent(store.settle(request), context);
    }),
  );
  await Promise.all(settled);
}

/**
 * Waits for a request and only logs its failure. If the request fails, the loss is at most one
 * horizon of slots.
 */
async function sent(sending: Promise<unknown>, { bucket, logger }: BucketContext): Promise<void> {
  try {
    await sending;
  } catch (error) {
    logger.warn(
      { bucket, reason: reasonOf(error) },
      "Could not give unused slots back; their usage still counts.",
    );
  }
}

/**
 * Returns true for an evenly draining limit on units such as tokens. A late slot has used none of
 * these units.
 */
function isOfUnits({ kind, unit }: Limit): boolean {
  const { isRate, doesDrain } = ruleOf(kind);
  return isRate && doesDrain === true && unit !== "calls";
}

/**
 * Returns true for a limit that counts usage within a window. Usage of an evenly draining limit
 * that all keys share cannot be given back later: it may already have drained, and other calls are
 * booked behind it. The caller always gives back usage of a key's own limit. Otherwise a slow limit
 * would lose an hour because a slot was 10 ms late.
 */
function isQuota({ kind }: Limit): boolean {
  const { isRate, doesDrain } = ruleOf(kind);
  return isRate && doesDrain !== true;
}
