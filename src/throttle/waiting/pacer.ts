import { ClosedError, StoreUnavailableError } from "../../core/errors.ts";
import { HORIZON_US } from "../../core/policy/limit-makers.ts";
import type { Drawn, Granted, News } from "../../core/store.ts";
import type { BucketContext, PolicyNews } from "../known-policy.ts";
import type { LeaseKeeper } from "../slot/leases.ts";
import {
  createAlarm,
  createAskTimes,
  createReplyTimes,
  keyLookInAtMs,
  type AskTimes,
  type Received,
} from "./ask-times.ts";
import { createDispatcher, type Dispatcher } from "./dispatch.ts";
import { createLinePlaces, mostLeases, nextWishes, type LinePlaces } from "./draw-request.ts";
import { createLeftovers, createReturns, type Returns } from "./give-back.ts";
import type { Caller, Group } from "./group.ts";
import { slotsOf, type HeldSlot } from "./held-slots.ts";

/** Draws slots for the callers of one bucket, and lets each go when its slot comes. */
export interface Pacer {
  readonly waiting: number;
  /** How many wait that their own key holds back. */
  readonly deferred: number;
  readonly askTimes: Pick<AskTimes, "turnAtMs" | "silentMs" | "hasAnswered">;
  wait(caller: Caller): void;
  /** Takes a caller out of the line that no longer wants to wait. */
  leave(caller: Caller): void;
  /** Something of the bucket, or of one key, has changed, or a lease is free: whoever waits for it asks anew. */
  lookIn(key?: string, news?: News): void;
  /** Another policy is in force. */
  readonly learn: (news: PolicyNews) => void;
  /** Slots that are held, of one key or of all, are worthless. */
  readonly forget: (key: string | undefined) => void;
  /** Fails all who wait, and gives their slots back. */
  close(): Promise<void>;
}

export interface PacerOptions extends BucketContext {
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
  const dispatcher = createDispatcher(leases);
  const linePlaces = createLinePlaces();
  const askTimes = createAskTimes(dispatcher.schedule.soonest, times);
  const leftovers = createLeftovers({ dispatcher, linePlaces, returns, askTimes });
  const grants = createGrants({ dispatcher, linePlaces, leases, returns, onRefunded: workSoon });
  let heldGeneration = 0;
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
    dispatcher.dispatchDue(heldGeneration, grants.refund);
    if (asking !== undefined) return alarm.set(dispatcher.nextAtMs());
    leftovers.giveBack(heldGeneration);
    const nowMs = performance.now();
    const askAtMs = askTimes.nextAtMs(nowMs);
    if (nowMs >= askAtMs) asking = ask(nowMs);
    alarm.set(Math.min(dispatcher.nextAtMs(), asking === undefined ? askAtMs : Infinity));
  }

  async function ask(nowMs: number): Promise<void> {
    askTimes.asked(nowMs);
    const thereAtMs = nowMs + times.leadMs;
    const { groups, wishes } = nextWishes(dispatcher.schedule, linePlaces, thereAtMs);
    const { terms } = known;
    const leased = mostLeases(terms.limits, wishes);
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
      receive(reply, { groups, firstLease: lease });
    } catch (error) {
      leases.releaseLost(lease, leased, groups);
      if (!waitsForStore || !(error instanceof StoreUnavailableError) || isClosed) failAll(error);
      else askTimes.retryLater();
    } finally {
      asking = undefined;
    }
    for (const group of groups) leftovers.leftBy(group);
    work();
  }

  function receive(reply: Drawn, asked: Asked): void {
    const received = times.read(reply);
    askTimes.answered(reply, received);
    if (reply.generation !== heldGeneration) {
      forgetHeld();
      dispatcher.schedule.deferNone();
    }
    heldGeneration = reply.generation;
    const { newText, version, isOverride } = reply;
    if (newText !== undefined) return learn({ text: newText, version, isOverride });

    known.confirm(version);
    grants.take(reply, asked, received);
    linePlaces.shared = reply.place;
  }

  /** Slots of an older generation are worthless. */
  function forgetHeld(): void {
    dispatcher.forget();
    linePlaces.forgetTurns();
  }

  function learn(news: PolicyNews): void {
    forgetHeld();
    known.learn(news);
    askTimes.retryNow();
    for (const group of dispatcher.schedule) leftovers.leftBy(group);
    options.regroup(dispatcher.takeAll().sort((a, b) => a.number - b.number));
    workSoon();
  }

  function failAll(error: unknown): void {
    for (const group of dispatcher.schedule) leftovers.leftBy(group);
    for (const caller of dispatcher.takeAll()) caller.fail(error);
  }

  return {
    get waiting() {
      return dispatcher.waiting;
    },
    get deferred() {
      return dispatcher.schedule.deferredCallers;
    },
    askTimes,
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      dispatcher.enter(caller);
      workSoon();
    },
    leave(caller) {
      dispatcher.leave(caller);
      leftovers.leftBy(caller.group);
      workSoon();
    },
    learn,
    forget(key) {
      if (key === undefined) return forgetHeld();
      dispatcher.forget(key);
    },
    lookIn(key, news) {
      const { schedule } = dispatcher;
      if (key === undefined) askTimes.retryNow();
      else schedule.wake(key);
      // A lease of the bucket's is of no use to calls that their own key defers.
      if (key === undefined && news !== "lease") schedule.wakeAll();
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

/** What a reply grants goes into the books; what comes of it too late goes back. */
interface Grants {
  /** Takes in what was granted to each group that was asked for. */
  take(reply: Drawn, asked: Asked, received: Received): void;
  /** Gives back what slots took that were not used in time. */
  readonly refund: (group: Group, slots: readonly HeldSlot[]) => void;
}

interface Asked {
  /** In the order of the wishes. */
  readonly groups: readonly Group[];
  /** The number of the first lease that the draw could give. */
  readonly firstLease: number;
}

interface GrantsOptions {
  readonly dispatcher: Dispatcher;
  readonly linePlaces: LinePlaces;
  readonly leases: LeaseKeeper;
  readonly returns: Returns;
  /** A key may be asked about again. */
  readonly onRefunded: () => void;
}

/** A refund takes a round trip; one that is lost is not waited for. */
const REFUND_MS = 100;

function createGrants(options: GrantsOptions): Grants {
  const { dispatcher, linePlaces, leases, returns, onRefunded } = options;
  const { schedule } = dispatcher;

  /** When the key of these calls is to be asked about again; 0: at any time. */
  function untilMs({ notBeforeUs }: Granted, { arrivedMs, offsetMs }: Received): number {
    if (notBeforeUs === 0) return 0;
    if (notBeforeUs < Infinity) return notBeforeUs / 1_000 + offsetMs;
    return keyLookInAtMs(arrivedMs, schedule.deferredGroups);
  }

  function take(reply: Drawn, asked: Asked, received: Received): void {
    const { arrivedMs, offsetMs, isStale } = received;
    let lease = asked.firstLease;
    for (const [index, granted] of reply.granted.entries()) {
      const group = asked.groups[index]!;
      const { hasLeases } = group.callTerms;
      const firstLease = hasLeases ? lease : 0;
      if (hasLeases) lease += granted.slotsUs.length;
      if (granted.refusal !== undefined) dispatcher.refuse(group, granted.refusal);
      if (!isStale)
        dispatcher.hold(group, granted, { firstLease, sentAtMs: reply.sentAtMs, offsetMs });
      const { bindsAt, place } = granted;
      schedule.answered(group, { untilMs: untilMs(granted, received), arrivedMs, bindsAt });
      linePlaces.keep(group.limitedKey, place);
      if (group.notBeforeMs > arrivedMs) {
        dispatcher.sendAway(group, group.notBeforeMs - arrivedMs);
      }
      if (isStale) waste(group, slotsOf(granted, firstLease, offsetMs));
    }
  }

  /** Slots whose time has passed: what they took of a quota is given back, their time is gone. */
  function waste(group: Group, slots: readonly HeldSlot[]): void {
    leases.releaseAll(slots, group);
    refund(group, slots);
  }

  /** A key is not asked about before its own limits have back what the slots took, or it would be told to wait for that. */
  function refund(group: Group, slots: readonly HeldSlot[]): void {
    const refunded = returns.refund(group, slots);
    if (group.callTerms.keyLimits.length === 0) return;
    schedule.deferUntil(group, performance.now() + REFUND_MS);
    void refunded.then(() => {
      schedule.deferUntil(group, 0);
      onRefunded();
    });
  }

  return { take, refund };
}
