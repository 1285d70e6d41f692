/**
 * Shares the slot of a job with the first call that the job's handler makes through the same bucket. The handler must
 * make this call within one horizon. Without sharing, each job whose handler calls a throttled client would use two
 * slots. If the call costs more than the job, `bucket/job-slot-draws.ts` draws the difference.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { Priority } from "../../core/input/options.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { SettledCost, TryCall } from "../call-options.ts";
import { assertSlotArguments, type DrawnSlot, type KeyedSlot, type Slot } from "./slot.ts";

/** The options with which a job's slot was drawn. */
export interface JobCall extends TryCall {
  readonly priority?: Priority | undefined;
}

/** The slot of a job while its handler runs. */
export interface JobSlot {
  /**
   * The bucket that the slot was drawn from. Compared by identity, because two sluices may each have a bucket with the
   * same name.
   */
  readonly bucket: object;
  readonly slot: DrawnSlot;
  readonly drawnFor: JobCall;
  /**
   * The time at which the slot becomes stale, on `performance.now()`. After that, the handler's call draws its own
   * slot.
   */
  staleAtMs: number;
  isUsed: boolean;
  /**
   * The slot that the handler's first call got if it could not use the job's slot as it is. The call's result is then
   * reported for this slot.
   */
  replacedBy: KeyedSlot | undefined;
}

const jobSlots = new AsyncLocalStorage<JobSlot>();
/** The number of running handlers whose calls can use the slot of their job. */
let running = 0;
/**
 * The number of finished handlers of each bucket, counted up to `KNOWN_AFTER`. After this number, it is known whether
 * handlers call through their bucket.
 */
const ended = new WeakMap<object, number>();
const KNOWN_AFTER = 100;
/** The handlers that never call through their bucket. */
const withoutCalls = new WeakSet<object>();

export function jobSlotOf(
  { bucket, slot }: { readonly bucket: object; readonly slot: DrawnSlot },
  drawnFor: JobCall,
): JobSlot {
  const staleAtMs = performance.now() + HORIZON_MS;
  return { bucket, slot, drawnFor, staleAtMs, isUsed: false, replacedBy: undefined };
}

/**
 * Marks a handler that never calls through its bucket in this process. These are Sluice's own handlers, and handlers
 * that run in another process.
 */
export function markWithoutCalls<Handler extends object>(handler: Handler): Handler {
  withoutCalls.add(handler);
  return handler;
}

/** Marks a handler as another one is marked, which it calls. */
export function markLike<Handler extends object>(inner: object, handler: Handler): Handler {
  return withoutCalls.has(inner) ? markWithoutCalls(handler) : handler;
}

/**
 * True if a handler may call through the bucket of its jobs, so that it must run with async storage. Async storage
 * slows down every promise of a process, so other handlers run without it. It is used if the application calls through
 * the bucket, or if few handlers have run so far. It is also used if the job holds a lease, because a call in the
 * handler could wait for this lease forever.
 */
export function mayCallBucket(
  handler: object,
  bucket: { readonly isCalledByHand: boolean },
  slot: Slot,
): boolean {
  if (withoutCalls.has(handler)) return false;
  return bucket.isCalledByHand || slot.hasLease || (ended.get(bucket) ?? 0) < KNOWN_AFTER;
}

/**
 * Runs a handler in such a way that its calls find the job's slot. Call {@link endJobSlot} after the handler has ended.
 */
export function runWithJobSlot<T>(jobSlot: JobSlot, handler: () => T): T {
  running += 1;
  return jobSlots.run(jobSlot, handler);
}

/**
 * Counts a handler that {@link runWithJobSlot} started as finished. Turns async storage off if no other handler runs.
 */
export function endJobSlot({ bucket }: JobSlot): void {
  running -= 1;
  const count = ended.get(bucket) ?? 0;
  if (count < KNOWN_AFTER) ended.set(bucket, count + 1);
  // The next call of `run` turns async storage on again.
  if (running === 0) jobSlots.disable();
}

/** Returns the slot of the job whose handler makes the current call. Undefined if an earlier call has used the slot. */
export function unusedJobSlot(bucket: object): JobSlot | undefined {
  const jobSlot = jobSlots.getStore();
  return jobSlot === undefined || jobSlot.isUsed || jobSlot.bucket !== bucket ? undefined : jobSlot;
}

/**
 * Releases the lease of the job whose handler makes the current call. Used before the call waits for something other
 * than the bucket, such as a concurrency slot. Otherwise the calls ahead of it might wait for this lease. The call
 * later draws its own slot.
 */
export function releaseUnusedJobLease(bucket: object): void {
  const jobSlot = unusedJobSlot(bucket);
  if (jobSlot === undefined || !jobSlot.slot.hasLease) return;
  jobSlot.slot.release({ outcome: "ignored" });
  jobSlot.staleAtMs = -Infinity;
}

/**
 * The job's slot as the handler's call sees it. It has the call's own key. If the call drew additional costs, it also
 * has the time of that draw.
 */
export class SharedSlot implements KeyedSlot {
  readonly #encodedKey: string | undefined;
  readonly bucket: string;
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  readonly atMs: number;
  readonly waitedMs: number;
  readonly generation: number;
  readonly #ofJob: DrawnSlot;

  constructor(ofJob: DrawnSlot, key: string | undefined, last: Slot) {
    const named = namedOf(key);
    this.#encodedKey = key;
    this.bucket = ofJob.bucket;
    this.key = named.key;
    this.keys = named.keys;
    this.atMs = last.atMs;
    this.waitedMs = last.waitedMs;
    this.generation = last.generation;
    this.#ofJob = ofJob;
  }

  get encodedKey(): string | undefined {
    return this.#encodedKey;
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
