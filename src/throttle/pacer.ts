import { HORIZON_US } from "../core/policy.ts";
import { ClosedError } from "../core/errors.ts";
import type { LeakyBucket } from "../core/limits/leaky-bucket.ts";
import type { Logger } from "../core/logger.ts";
import { MOST_RETURNED, type Drawn, type Store } from "../core/store.ts";
import { LOOK_IN_US } from "../core/turns.ts";
import { createAlarm } from "./alarm.ts";
import { createBucketClock } from "./bucket-clock.ts";
import { createHeldSlots, type HeldSlot } from "./held-slots.ts";
import type { KnownPolicy } from "./known-policy.ts";
import { createLine, type Waiter } from "./line.ts";

const GATHER_MS = 10;

/** One caller in the line of a pacer. */
export interface Caller extends Waiter {
  go(slot: HeldSlot, generation: number): void;
  fail(error: unknown): void;
}

/** Draws slots for the callers of one bucket and one cost, and lets each go when its slot comes. */
export interface Pacer {
  readonly waiting: number;
  /** Nobody waits, and nothing is held or under way. */
  readonly isIdle: boolean;
  wait(caller: Caller): void;
  /** Takes a caller out of the line that no longer wants to wait. */
  leave(caller: Caller): void;
  /** About how long a caller that comes now will wait, going by this process's line alone. */
  estimateMs(): number;
  /** Fails all who wait, and gives their slots back. */
  close(): Promise<void>;
}

export interface PacerOptions {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly cost: number;
  readonly known: KnownPolicy;
  readonly logger: Logger;
}

export function createPacer(options: PacerOptions): Pacer {
  const { store, bucket, asker, cost, known, logger } = options;
  const line = createLine<Caller>();
  const held = createHeldSlots();
  const alarm = createAlarm(work);
  const clock = createBucketClock();
  let heldGeneration = 0;
  let askedAtMs = 0;
  let askAgainAtMs = 0;
  let usualTookMs = Infinity;
  let drewUs = 0;
  let turnUs = 0;
  let asking: Promise<void> | undefined;
  let returning: Promise<void> | undefined;
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
    giveBackSurplus();
    const nextAtMs = line.size > 0 ? held.nextAtMs : Infinity;
    if (line.size <= held.size || asking !== undefined) return alarm.set(nextAtMs);

    const nowMs = performance.now();
    const askAtMs = Math.max(askAgainAtMs, gatheredAtMs(nowMs));
    if (nowMs >= askAtMs) asking = ask();
    alarm.set(Math.min(nextAtMs, asking === undefined ? askAtMs : Infinity));
  }

  /** While there are slots for a while, newcomers are drawn for together: theirs come behind those anyway. */
  function gatheredAtMs(nowMs: number): number {
    return held.lastAtMs > nowMs + GATHER_MS ? askedAtMs + GATHER_MS : nowMs;
  }

  function letGo(): void {
    const nowMs = performance.now();
    const mostLateMs = lateMs(known.policy, cost);
    while (line.size > 0 && held.nextAtMs <= nowMs) {
      const slot = held.take();
      // A process that was frozen must not fire its old slots in a clump: they are drawn again.
      if (nowMs - slot.atMs <= mostLateMs) line.shift()!.go(slot, heldGeneration);
    }
  }

  async function ask(): Promise<void> {
    askedAtMs = performance.now();
    try {
      const { policy, generation } = known;
      const wanted = line.size - held.size;
      const wish = { bucket, asker, wanted, cost, horizonUs: HORIZON_US, policy, generation };
      receive(await store.draw({ ...wish, drewUs, turnUs }));
    } catch (error) {
      failAll(error);
    } finally {
      asking = undefined;
    }
    work();
  }

  function receive(reply: Drawn): void {
    const arrivedMs = performance.now();
    const tookMs = arrivedMs - reply.sentAtMs;
    known.learn(reply.policy, reply.generation);
    if (reply.generation !== heldGeneration) held.clear();
    heldGeneration = reply.generation;
    // A reply that lay about for longer, in a process that stood still or on the wire, tells of slots
    // that may have passed already.
    if (reply.nowUs < drewUs) clock.reset();
    const offsetMs = clock.sample(arrivedMs, reply.nowUs);
    const isStale = tookMs > usualTookMs + HORIZON_US / 1_000;
    if (!isStale) held.add(reply, cost, offsetMs);
    // A way that has become longer for good is the usual one from now on.
    usualTookMs = isStale ? tookMs : Math.min(usualTookMs, tookMs);
    drewUs = reply.nowUs;
    turnUs = reply.turnUs;
    const waitUs = Math.min(turnUs - drewUs, LOOK_IN_US);
    askAgainAtMs = turnUs === 0 ? 0 : arrivedMs + waitUs / 1_000;
  }

  /** Callers have left: another replica can use what they would have used. */
  function giveBackSurplus(): void {
    const surplus = held.size - line.size;
    const isTurnUseless = line.size === 0 && turnUs > 0;
    if ((surplus <= 0 && !isTurnUseless) || asking !== undefined) return;
    askAgainAtMs = 0;
    turnUs = 0;
    const slotsUs = held.takeLatest(Math.max(0, surplus)).slice(0, MOST_RETURNED);
    returning = store
      .giveBack({ bucket, asker, cost, generation: heldGeneration, slotsUs })
      // What cannot be given back is wasted, one horizon at most; no caller waits for it.
      .catch((error: unknown) =>
        logger.warn({ bucket, reason: String(error) }, "Unused slots could not be given back."),
      );
  }

  function failAll(error: unknown): void {
    for (let caller = line.shift(); caller !== undefined; caller = line.shift()) caller.fail(error);
  }

  return {
    get waiting() {
      return line.size;
    },
    get isIdle() {
      return line.size === 0 && held.size === 0 && asking === undefined && !isWorkDue;
    },
    wait(caller) {
      if (isClosed) return caller.fail(new ClosedError(`Bucket "${bucket}"`));
      line.push(caller);
      workSoon();
    },
    leave(caller) {
      line.remove(caller);
      workSoon();
    },
    estimateMs() {
      const { count, periodUs } = known.policy;
      return Math.ceil(((line.size + 1) * cost * periodUs) / count / 1_000);
    },
    async close() {
      isClosed = true;
      failAll(new ClosedError(`Bucket "${bucket}"`));
      await asking;
      work();
      alarm.set(Infinity);
      await returning;
    },
  };
}

/**
 * A slot may be used late by half an interval: at least by what timers and a
 * busy process are off, at most by one horizon. At 100/s both are 5 ms, which
 * leaves as much to the network before a second can see two calls too many.
 */
function lateMs({ count, periodUs }: LeakyBucket, cost: number): number {
  const halfIntervalMs = (cost * periodUs) / count / 2_000;
  return Math.min(Math.max(halfIntervalMs, 5), HORIZON_US / 1_000);
}
