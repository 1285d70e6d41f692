/**
 * The slot of a job, and the call that its handler makes through the same bucket. The first such call, within one
 * horizon, leaves on the job's slot: otherwise each job whose handler calls a throttled client would take two.
 * What the call needs beyond that slot is drawn in `bucket/job-slot-draws.ts`.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { Priority } from "../../core/input/options.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { SettledCost, TryCall } from "../call-options.ts";
import { assertSlotArguments, type DrawnSlot, type Slot } from "./slot.ts";

/** What a job's slot was drawn for. */
export interface JobCall extends TryCall {
  readonly priority?: Priority | undefined;
}

/** The slot of a job while its handler runs. */
export interface JobSlot {
  /** The bucket that it came from; two sluices may each have one of the same name. */
  readonly bucket: object;
  readonly slot: DrawnSlot;
  readonly drawnFor: JobCall;
  /** On `performance.now()`; from then on the slot is stale, and a call draws one of its own. */
  staleAtMs: number;
  isUsed: boolean;
  /** The slot that its first call got, if that is another: what the call came to is of that one. */
  leftOn: Slot | undefined;
}

const inHand = new AsyncLocalStorage<JobSlot>();
/** How many handlers run with a slot in hand. */
let running = 0;
/** How many handlers of a bucket have ended, up to the number from which on it is known whether they call through it. */
const ended = new WeakMap<object, number>();
const KNOWN_AFTER = 100;
/** Handlers that make no calls through a bucket. */
const withoutCalls = new WeakSet<object>();

export function jobSlotOf(
  { bucket, slot }: { readonly bucket: object; readonly slot: DrawnSlot },
  drawnFor: JobCall,
): JobSlot {
  const staleAtMs = performance.now() + HORIZON_MS;
  return { bucket, slot, drawnFor, staleAtMs, isUsed: false, leftOn: undefined };
}

/** Says of a handler that it makes no calls through a bucket: those that Sluice itself has, and those of other processes. */
export function makesNoCalls<Handler extends object>(handler: Handler): Handler {
  withoutCalls.add(handler);
  return handler;
}

/**
 * Whether a handler may call through the bucket of its jobs. Async storage slows down every promise of a process, so
 * it is used only where it matters: where handlers call through their bucket, or may, since few have run; and where
 * such a call would wait for a lease that its own job holds.
 */
export function mayCall(
  handler: object,
  bucket: { readonly isCalledByHand: boolean },
  slot: Slot,
): boolean {
  if (withoutCalls.has(handler)) return false;
  return bucket.isCalledByHand || slot.hasLease || (ended.get(bucket) ?? 0) < KNOWN_AFTER;
}

/** Runs a handler that was started by a slot, and lets its calls find that, until {@link endJobSlot}. */
export function runWithJobSlot<T>(hand: JobSlot, handler: () => T): T {
  running += 1;
  return inHand.run(hand, handler);
}

/** Called once the handler has ended, for each that was run with its slot. */
export function endJobSlot({ bucket }: JobSlot): void {
  running -= 1;
  const count = ended.get(bucket) ?? 0;
  if (count < KNOWN_AFTER) ended.set(bucket, count + 1);
  // The next handler that needs it turns it on again.
  if (running === 0) inHand.disable();
}

/** The slot of the job whose handler calls, if no call has left on it. */
export function jobSlotInHand(bucket: object): JobSlot | undefined {
  const hand = inHand.getStore();
  return hand === undefined || hand.isUsed || hand.bucket !== bucket ? undefined : hand;
}

/**
 * Called before the call of a handler waits for anything else than its bucket: whoever it waits for may wait for the
 * lease of its job. That goes back, and the call draws another.
 */
export function giveLeaseInHandBack(bucket: object): void {
  const hand = jobSlotInHand(bucket);
  if (hand === undefined || !hand.slot.hasLease) return;
  hand.slot.release();
  hand.staleAtMs = -Infinity;
}

/** The slot that a call leaves on, drawn for its job: for the call's own key, and with what was drawn beyond it. */
export class SharedSlot implements Slot {
  readonly bucket: string;
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  readonly atMs: number;
  readonly waitedMs: number;
  readonly generation: number;
  readonly #ofJob: DrawnSlot;

  constructor(ofJob: DrawnSlot, key: string | undefined, last: Slot) {
    const named = namedOf(key);
    this.bucket = ofJob.bucket;
    this.key = named.key;
    this.keys = named.keys;
    this.atMs = last.atMs;
    this.waitedMs = last.waitedMs;
    this.generation = last.generation;
    this.#ofJob = ofJob;
  }

  get hasLease(): boolean {
    return this.#ofJob.hasLease;
  }

  get signal(): AbortSignal {
    return this.#ofJob.signal;
  }

  settle(cost: SettledCost): Promise<void> {
    return this.#ofJob.settle(cost);
  }

  release(): void {
    this.#ofJob.release();
  }

  [Symbol.dispose](): void {
    this.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
  }
}

assertSlotArguments(SharedSlot.prototype);
