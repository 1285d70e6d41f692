/**
 * The slot of a job, shared with the first call that its handler makes through the same bucket within one horizon.
 * Otherwise each job whose handler calls a throttled client would use two slots. `bucket/job-slot-draws.ts` draws what
 * the call needs beyond that slot.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { Priority } from "../../core/input/options.ts";
import { HORIZON_MS } from "../../core/policy/limit-makers.ts";
import type { SettledCost, TryCall } from "../call-options.ts";
import { assertSlotArguments, type DrawnSlot, type KeyedSlot, type Slot } from "./slot.ts";

/** What a job's slot was drawn for. */
export interface JobCall extends TryCall {
  readonly priority?: Priority | undefined;
}

/** The slot of a job while its handler runs. */
export interface JobSlot {
  /** The bucket that the slot came from, by identity: two sluices may each have a bucket of the same name. */
  readonly bucket: object;
  readonly slot: DrawnSlot;
  readonly drawnFor: JobCall;
  /** When the slot becomes stale, on `performance.now()`; after that the call draws its own slot. */
  staleAtMs: number;
  isUsed: boolean;
  /**
   * The slot that the handler's first call got instead, if it did not use this one: the call's result belongs to that
   * slot.
   */
  replacedBy: KeyedSlot | undefined;
}

const jobSlots = new AsyncLocalStorage<JobSlot>();
/** The number of running handlers whose slot can be used. */
let running = 0;
/**
 * The number of finished handlers of each bucket, up to the number that shows whether handlers call through their
 * bucket.
 */
const ended = new WeakMap<object, number>();
const KNOWN_AFTER = 100;
/** Handlers that never call through their bucket. */
const withoutCalls = new WeakSet<object>();

export function jobSlotOf(
  { bucket, slot }: { readonly bucket: object; readonly slot: DrawnSlot },
  drawnFor: JobCall,
): JobSlot {
  const staleAtMs = performance.now() + HORIZON_MS;
  return { bucket, slot, drawnFor, staleAtMs, isUsed: false, replacedBy: undefined };
}

/**
 * Marks a handler that never calls through its bucket in this process: Sluice's own, and those that run in another
 * process.
 */
export function markWithoutCalls<Handler extends object>(handler: Handler): Handler {
  withoutCalls.add(handler);
  return handler;
}

/**
 * True if a handler may call through the bucket of its jobs. Async storage slows down every promise of a process, so it
 * is used only if it matters. That is the case if handlers call through their bucket, or if few have run so far. It is
 * also the case if such a call would wait for a lease that its own job holds.
 */
export function mayCallBucket(
  handler: object,
  bucket: { readonly isCalledByHand: boolean },
  slot: Slot,
): boolean {
  if (withoutCalls.has(handler)) return false;
  return bucket.isCalledByHand || slot.hasLease || (ended.get(bucket) ?? 0) < KNOWN_AFTER;
}

/** Runs a handler so that its calls find the job's slot, until {@link endJobSlot}. */
export function runWithJobSlot<T>(jobSlot: JobSlot, handler: () => T): T {
  running += 1;
  return jobSlots.run(jobSlot, handler);
}

/** Ends what {@link runWithJobSlot} began, after the handler has ended. */
export function endJobSlot({ bucket }: JobSlot): void {
  running -= 1;
  const count = ended.get(bucket) ?? 0;
  if (count < KNOWN_AFTER) ended.set(bucket, count + 1);
  // The next `run` enables it again.
  if (running === 0) jobSlots.disable();
}

/** The slot of the job whose handler is calling, unless a call has already used it. */
export function unusedJobSlot(bucket: object): JobSlot | undefined {
  const jobSlot = jobSlots.getStore();
  return jobSlot === undefined || jobSlot.isUsed || jobSlot.bucket !== bucket ? undefined : jobSlot;
}

/**
 * Gives back the lease of the job whose handler is calling, before its call waits for anything but the bucket.
 * Otherwise the calls that it waits for might wait for that lease. The call then draws its own slot.
 */
export function releaseUnusedJobLease(bucket: object): void {
  const jobSlot = unusedJobSlot(bucket);
  if (jobSlot === undefined || !jobSlot.slot.hasLease) return;
  jobSlot.slot.release();
  jobSlot.staleAtMs = -Infinity;
}

/** The job's slot as its handler's call sees it: with the call's own key, and the time of what was drawn beyond it. */
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
