import { ClosedError, StoreUnavailableError } from "../core/errors.ts";
import { HORIZON_US } from "../core/policy/limit-makers.ts";
import type { Drawn, News } from "../core/store.ts";
import { createAlarm } from "./alarm.ts";
import { createAskTimes, type AskTimes } from "./ask-times.ts";
import type { Basics } from "./basics.ts";
import { createBooks } from "./books.ts";
import { createGrants, type Asked } from "./grants.ts";
import type { Caller } from "./group.ts";
import type { PolicyNews } from "./known-terms.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import { createLeftovers } from "./leftovers.ts";
import { createLinePlaces } from "./line-places.ts";
import { createReplyTimes } from "./reply-times.ts";
import { createReturns } from "./returns.ts";
import { mostLeases, nextWishes } from "./wishes.ts";

/** Draws slots for the callers of one bucket, and lets each go when its slot comes. */
export interface Pacer {
  readonly waiting: number;
  /** How many wait that their own key holds back. */
  readonly heldBack: number;
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
  const linePlaces = createLinePlaces();
  const askTimes = createAskTimes(books.waitingIn.soonest, times);
  const leftovers = createLeftovers({ books, linePlaces, returns, askTimes });
  const grants = createGrants({ books, linePlaces, leases, returns, onRefunded: workSoon });
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
    books.letGo(heldGeneration, grants.refund);
    if (asking !== undefined) return alarm.set(books.nextAtMs());
    leftovers.giveBack(heldGeneration);
    const nowMs = performance.now();
    const askAtMs = askTimes.nextAtMs(nowMs);
    if (nowMs >= askAtMs) asking = ask(nowMs);
    alarm.set(Math.min(books.nextAtMs(), asking === undefined ? askAtMs : Infinity));
  }

  async function ask(nowMs: number): Promise<void> {
    askTimes.asked(nowMs);
    const thereAtMs = nowMs + times.leadMs;
    const { groups, wishes } = nextWishes(books.waitingIn, linePlaces, thereAtMs);
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
      for (const group of books.waitingIn) books.waitingIn.holdBack(group, 0);
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
    books.forget();
    linePlaces.forgetTurns();
  }

  function learn(news: PolicyNews): void {
    forgetHeld();
    known.learn(news);
    askTimes.retryNow();
    for (const group of books.waitingIn) leftovers.leftBy(group);
    options.regroup(books.takeAll().sort((a, b) => a.number - b.number));
    workSoon();
  }

  function failAll(error: unknown): void {
    for (const group of books.waitingIn) leftovers.leftBy(group);
    for (const caller of books.takeAll()) caller.fail(error);
  }

  return {
    get waiting() {
      return books.waiting;
    },
    get heldBack() {
      return books.heldBack;
    },
    askTimes,
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      books.enter(caller);
      workSoon();
    },
    leave(caller) {
      books.leave(caller);
      leftovers.leftBy(caller.group);
      workSoon();
    },
    learn,
    forget(key) {
      if (key === undefined) return forgetHeld();
      books.forget(key);
    },
    lookIn(key, news) {
      const { waitingIn } = books;
      if (key === undefined) askTimes.retryNow();
      else for (const group of waitingIn.ofKey(key)) waitingIn.wake(group);
      // Whom its own key holds back, a lease of the bucket's is of no use to.
      if (key === undefined && news !== "lease") {
        for (const group of waitingIn) {
          group.hasNews = true;
          waitingIn.holdBack(group, 0);
        }
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
