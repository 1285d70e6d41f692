import PQueue from "p-queue";
import { AsyncLocalStorage } from "node:async_hooks";
import { setMaxListeners } from "node:events";
import type { PriorityQueue } from "p-queue";
import { InvalidOptionError, WaitTooLongError } from "../../core/errors.ts";
import { PRIORITIES, RANKS } from "../../core/input/options.ts";
import type { Logger } from "../../core/logger.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  optionsReader,
  readCallOptions,
  readOverrides,
  readRunOptions,
  type AnyFunction,
  type CallOptionsRead,
  type ObservedDrawCall,
  type DrawOptions,
  type OptionsOfCall,
  type RunOptions,
  type ThrottledOptions,
  withDeadline,
  withLessWait,
} from "../call-options.ts";
import type { ReportedOutcome } from "../feedback/feedback.ts";
import { isResponse } from "../feedback/layers.ts";
import { releaseUnusedJobLease, unusedJobSlot } from "../slot/job-slot.ts";
import type { KeyedSlot } from "../slot/slot.ts";
import { createLine, type Waiter } from "../waiting/line.ts";
import { Wait } from "../waiting/wait.ts";
import { methodNoted, settleUnused, withDefaults, type FilledOptions } from "./call-defaults.ts";
import type { Throttled } from "./throttled-types.ts";

/** Returns the arguments that come before those of the caller: in a pool, the value of the slot's member. */
type LeadingArguments = (slot: KeyedSlot) => readonly unknown[];

/** What a pool adds to calls: the leading arguments, and how many members may get a call. */
export interface PoolCallParts {
  readonly leading: LeadingArguments;
  readonly tries: number;
}

export function throttle<F extends AnyFunction>(
  bucket: OwnedBucket,
  fn: F,
  given: ThrottledOptions<F> = {},
  ofPool?: PoolCallParts,
): Throttled<F> {
  assertFunction("throttled()", fn, "give the function whose calls are to be paced");
  const options = readCallOptions("throttled()", given);
  const { concurrency } = options;
  const concurrencySlots =
    concurrency === undefined ? undefined : createConcurrencySlots(bucket, concurrency);
  return wrap({ bucket, fn, concurrencySlots, ofPool }, options);
}

const NO_POOL: PoolCallParts = { leading: () => [], tries: 1 };

/** Waits for a slot and makes one call, without wrapping a function. */
export async function runOnce<Result>(
  bucket: OwnedBucket,
  fn: (...leading: never[]) => Result,
  given: RunOptions<Result> = {},
  { leading, tries }: PoolCallParts = NO_POOL,
): Promise<Awaited<Result>> {
  assertFunction("run()", fn, "give the function that makes the call, such as () => send(mail)");
  const options = await withDefaults(bucket.calls, "run()", readRunOptions("run()", given), {
    args: [],
  });
  const run = (slot: KeyedSlot): Result => fn(...(leading(slot) as never[]));
  const call = (own: CallOptionsOnce): Promise<unknown> =>
    callOnSlot(bucket, own, { name: fn.name, run });
  return (await callUntilTaken(call, options, tries)) as Awaited<Result>;
}

function assertFunction(where: string, fn: unknown, remedy: string): void {
  if (typeof fn === "function") return;
  throw new InvalidOptionError({ where, option: "fn", value: fn, remedy });
}

/** The parts that a wrapped function and the functions from its `with` share. */
interface Wrapping<F> {
  readonly bucket: OwnedBucket;
  readonly fn: F;
  readonly concurrencySlots: ConcurrencySlots | undefined;
  readonly ofPool: PoolCallParts | undefined;
}

function wrap<F extends AnyFunction>(
  wrapping: Wrapping<F>,
  options: CallOptionsRead,
): Throttled<F> {
  const { bucket, fn, concurrencySlots, ofPool } = wrapping;
  const optionsOf = optionsReader("throttled()", options);

  async function paced(this: unknown, ...args: never[]): Promise<unknown> {
    const stated = optionsOf(args);
    const filled = withDefaults(bucket.calls, "throttled()", stated, {
      args,
      method: methodNoted(this),
    });
    const own = filled instanceof Promise ? await filled : filled;
    const run = (slot: KeyedSlot): unknown =>
      Reflect.apply(
        fn,
        this,
        ofPool === undefined ? args : ([...ofPool.leading(slot), ...args] as never[]),
      );
    const { name } = fn;
    const call = (once: CallOptionsOnce): Promise<unknown> => {
      if (concurrencySlots === undefined) return callOnSlot(bucket, once, { name, run });
      return callWithin(concurrencySlots, once, (left, end) =>
        callOnSlot(
          bucket,
          left,
          { name, run: (slot) => runHeld(concurrencySlots, name, () => run(slot)) },
          end,
        ),
      );
    };
    return callUntilTaken(call, own, ofPool?.tries ?? 1);
  }

  const withOptions = (given: DrawOptions): Throttled<F> =>
    wrap(wrapping, { ...options, ...readOverrides("with()", given) });
  for (const name of ["name", "length"] as const) {
    Object.defineProperty(paced, name, { value: fn[name], configurable: true });
  }
  return Object.assign(paced, { with: withOptions }) as Throttled<F>;
}

/** The options of one try of a call. */
type CallOptionsOnce = FilledOptions<OptionsOfCall<CallOptionsRead>> & {
  /** Called with the outcome of the try, and with its slot. */
  readonly onOutcome?: ((outcome: ReportedOutcome, slot: KeyedSlot) => void) | undefined;
};

/** Makes a call again, for another member of a pool, if its member has not carried it out and another one can. */
async function callUntilTaken(
  call: (own: CallOptionsOnce) => Promise<unknown>,
  options: CallOptionsOnce,
  tries: number,
): Promise<unknown> {
  let own = options;
  let waitedMs = 0;
  for (let left = tries; left > 1; left--) {
    let canMove = false;
    const onOutcome = ({ takeover }: ReportedOutcome, slot: KeyedSlot): void => {
      canMove = takeover === "safe";
      waitedMs += slot.waitedMs;
    };
    try {
      const result = await call({ ...own, onOutcome });
      if (!canMove) return result;
    } catch (error) {
      if (!canMove) throw error;
    }
    own = withLessWait(options, waitedMs);
  }
  return call(own);
}

/**
 * Waits for a slot, runs a call, and reads its result or error. Calls `onEnd` when the call has ended. If the call
 * returns a generator, the call lasts until the generator has ended.
 */
async function callOnSlot(
  bucket: OwnedBucket,
  options: CallOptionsOnce,
  { name, run }: { readonly name: string; readonly run: (slot: KeyedSlot) => unknown },
  onEnd: () => void = () => {},
): Promise<unknown> {
  const { cost, feedback, settle, settlesAhead = false } = options;
  let isSettled = false;
  let slot: KeyedSlot;
  try {
    slot = await bucket.drawByHand(settle === undefined ? options : { ...options, settles: true });
    options.onDrawn?.(slot);
  } catch (error) {
    onEnd();
    throw error;
  }
  const left = (): void => {
    slot.release();
    onEnd();
  };
  const returned = async (result: unknown): Promise<void> => {
    slot.noteOutcome?.(result);
    try {
      const reported = bucket.reportOutcome(result, slot, cost, feedback);
      // Waits for the report, because the caller may retry at once and must then find the cooldown.
      const outcome = reported instanceof Promise ? await reported : reported;
      options.onOutcome?.(outcome, slot);
      const isUnused = outcome.isRefusal || outcome.takeover === "safe";
      if (isUnused && settle === undefined) await settleUnused(outcome, slot, cost);
      if (settle === undefined) slot.keepEstimate?.();
      else if (!isSettled) {
        // The bucket's `settle` gets a copy if it may read the body, because the body belongs to the caller.
        const read = settlesAhead ? copyForReading(result) : result;
        bucket.settleByResult(settle, read, slot);
      }
    } finally {
      left();
    }
  };
  const threw = async (error: unknown): Promise<void> => {
    slot.noteOutcome?.(error);
    try {
      const outcome = await bucket.reportOutcome(error, slot, cost, feedback);
      options.onOutcome?.(outcome, slot);
      await settleUnused(outcome, slot, cost);
    } finally {
      // A failed call may have used its whole estimate.
      slot.keepEstimate?.();
      left();
    }
  };
  // A call that loses its lease rejects, because another call may start in its place.
  const lost = slot.hasLease ? slot.signal : undefined;
  let result: unknown;
  try {
    const runHere = (): unknown => runHeld(bucket.name, name, () => run(slot));
    result = await (lost === undefined ? run(slot) : untilAborted(lost, runHere));
  } catch (error) {
    await threw(error);
    throw error;
  }
  if (!isGenerator(result)) {
    await returned(result);
    return result;
  }
  if (settle !== undefined && settlesAhead) {
    isSettled = true;
    bucket.settleByResult(settle, result, slot);
  }
  const leftEarly = (): void => {
    if (!isSettled) slot.keepEstimate?.();
    left();
  };
  return watchGenerator(result, { returned, threw, left: leftEarly }, lost);
}

/**
 * Returns a copy of a response with an unread body. Other results are returned as they are, also the responses of
 * node-fetch: their copies would block the original.
 */
function copyForReading(result: unknown): unknown {
  if (!isResponse(result)) return result;
  const { body, bodyUsed } = result;
  const isReadable = typeof body?.getReader === "function" && !bodyUsed && !body.locked;
  return isReadable ? result.clone() : result;
}

/**
 * Takes a concurrency slot, and then makes the call. A call that waited for a concurrency slot after its draw would use
 * the drawn slot too late.
 */
async function callWithin<Options extends ObservedDrawCall>(
  concurrencySlots: ConcurrencySlots,
  options: Options,
  call: (options: Options, end: () => void) => Promise<unknown>,
): Promise<unknown> {
  const timed = withDeadline(options);
  timed.signal?.throwIfAborted();
  return call(timed, await concurrencySlots.take(timed));
}

/** Limits the number of calls of one wrapped function that run at once in this process. */
interface ConcurrencySlots {
  /**
   * Waits for a concurrency slot; calls with a higher priority get theirs first. Resolves with a function that releases
   * the concurrency slot.
   *
   * @throws {@link WaitTooLongError} when no concurrency slot is free within `maxWaitMs`.
   * @throws the signal's reason, when it is aborted.
   * @throws {@link ClosedError} when the bucket is closed.
   */
  take(options: ObservedDrawCall): Promise<() => void>;
}

function createConcurrencySlots(owner: OwnedBucket, concurrency: number): ConcurrencySlots {
  const { name: bucket } = owner;
  const onClose: OwnedBucket["onClose"] = (fail) => owner.onClose(fail);
  const queue = new PQueue({ concurrency, queueClass: LineOfRuns });

  /**
   * Runs a task in the queue while the concurrency slot is held. The call itself runs outside the queue, so that it
   * keeps its caller's async context.
   */
  function hold(priority: number, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const task = (): Promise<void> => new Promise((release) => resolve(release));
      queue.add(task, { priority, signal }).catch(reject);
    });
  }

  const slots: ConcurrencySlots = {
    async take(options) {
      const { priority = "normal", key, maxWaitMs, untilMs, signal } = options;
      /** True for the first call in a job's handler. It uses the job's slot, so the bucket's limits do not delay it. */
      const isOfJob = unusedJobSlot(owner) !== undefined;
      const refusal = (): WaitTooLongError | undefined =>
        isOfJob ? undefined : owner.refusalKnown({ ...options, untilMs: undefined });
      // One signal may cancel a hundred waits. Without this, Node would warn about a leak of listeners.
      if (signal !== undefined) setMaxListeners(Infinity, signal);
      const leaving = new AbortController();
      const wait = new Wait(
        {
          onCancel: (reason) => leaving.abort(reason),
          onExpire: () =>
            leaving.abort(
              refusal() ??
                new WaitTooLongError({
                  bucket,
                  key,
                  maxWaitMs: maxWaitMs!,
                  retryAfterMs: maxWaitMs!,
                  limitedBy: `concurrency ${concurrency} of this process`,
                }),
            ),
        },
        { signal, untilMs, onClose },
      );
      let stopWatching = (): void => {};
      try {
        leaving.signal.throwIfAborted();
        if (queue.pending >= concurrency) {
          // Rejects the call as soon as the bucket has no slot in time. Otherwise the call would first wait here, and
          // its draw would then reject it.
          const refuse = (error: WaitTooLongError): void => leaving.abort(error);
          if (!isOfJob) stopWatching = owner.whenHopeless(options, refuse);
          leaving.signal.throwIfAborted();
          releaseUnusedJobLease(owner);
        }
        return await waitInside(
          {
            of: slots,
            bucket,
            logger: owner.logger,
            limit: async () => `concurrency ${concurrency} of this process`,
          },
          hold(RANKS[priority], leaving.signal),
        );
      } finally {
        stopWatching();
        wait.end();
      }
    },
  };
  return slots;
}

type Run = NonNullable<ReturnType<PriorityQueue["dequeue"]>>;

interface ConcurrencyWaiter extends Waiter {
  readonly id: string;
  readonly run: Run;
}

/**
 * A queue class for p-queue, with ranks as priorities. The default queue class of p-queue searches all entries to
 * remove one.
 */
class LineOfRuns {
  readonly #line = createLine<ConcurrencyWaiter>();
  readonly #entries = new Map<string, ConcurrencyWaiter>();

  get size(): number {
    return this.#line.size;
  }

  /** Adds a run. p-queue assigns a unique id to each run. */
  enqueue(
    run: Run,
    { priority: rank = 0, id = "" }: { priority?: number; id?: string } = {},
  ): void {
    const links = { round: 0, previous: undefined, next: undefined };
    const entry: ConcurrencyWaiter = { priority: PRIORITIES[rank]!, id, run, ...links };
    this.#entries.set(id, entry);
    this.#line.push(entry);
  }

  dequeue(): Run | undefined {
    const entry = this.#line.shift();
    if (entry !== undefined) this.#entries.delete(entry.id);
    return entry?.run;
  }

  remove(id: string): void {
    const entry = this.#entries.get(id);
    if (entry === undefined) return;
    this.#entries.delete(id);
    this.#line.remove(entry);
  }

  /** Only here for p-queue's interface. p-queue never calls this method or `setPriority` by itself. */
  filter(): Run[] {
    return [];
  }

  setPriority(): void {}
}

/** The methods of sync and async generators. */
interface AnyGenerator {
  readonly next: (...given: unknown[]) => unknown;
  readonly return: (...given: unknown[]) => unknown;
  readonly throw: (...given: unknown[]) => unknown;
}

/** The callbacks for the end of a generator. Exactly one of them is called, once. */
interface GeneratorEnds {
  /** The generator ran to its end. */
  readonly returned: (value: unknown) => void;
  readonly threw: (error: unknown) => void;
  /** The loop over the generator ended early, or the generator was garbage-collected. */
  readonly left: () => void;
}

/** Ends the call of a generator that was garbage-collected before it had ended. */
const unreachable = new FinalizationRegistry<() => void>((end) => end());

/**
 * True for sync and async generators, and for objects with all methods of a generator. Streams and cursors lack some of
 * these methods.
 */
function isGenerator(value: unknown): value is AnyGenerator {
  if (typeof value !== "object" || value === null) return false;
  try {
    const { next, return: end, throw: fail } = value as Partial<AnyGenerator>;
    const isOne = [next, end, fail].every((each) => typeof each === "function");
    return isOne && (Symbol.asyncIterator in value || Symbol.iterator in value);
  } catch {
    // A proxy threw.
    return false;
  }
}

/**
 * Reports the end of a generator by replacing its methods. The generator stays the same object with all its properties.
 * If the signal aborts, the generator throws the signal's reason and runs its `finally`.
 */
function watchGenerator<Generator extends AnyGenerator>(
  generator: Generator,
  { returned, threw, left }: GeneratorEnds,
  signal: AbortSignal | undefined,
): Generator {
  const own = { next: generator.next, return: generator.return, throw: generator.throw };
  const state: GeneratorState = { hasEnded: false };
  leftIfUnreachable(generator, state, left);

  function end(report: () => void): void {
    unreachable.unregister(state);
    endOnce(state, report);
  }

  function onStep(name: keyof AnyGenerator, step: unknown): void {
    const { done, value } = step as IteratorResult<unknown>;
    if (done === true) end(name === "next" ? () => returned(value) : left);
  }

  function onError(error: unknown): void {
    end(() => threw(error));
  }

  /** Runs the generator's `finally` block. An error in this block cannot reach a caller, so it is dropped. */
  function stop(): void {
    onError(signal?.reason);
    try {
      const stopping: unknown = Reflect.apply(own.return, generator, [undefined]);
      if (stopping instanceof Promise) stopping.catch(() => {});
    } catch {
      // The generator is sync and running at this moment, or its `finally` block threw.
    }
  }

  function step(name: keyof AnyGenerator, given: unknown[]): unknown {
    const isAsync = Symbol.asyncIterator in generator;
    if (!state.hasEnded && signal?.aborted === true) {
      stop();
      if (isAsync) return Promise.reject(signal.reason as Error);
      throw signal.reason;
    }
    try {
      const result: unknown = Reflect.apply(own[name], generator, given);
      if (isAsync) return followed(name, result);
      onStep(name, result);
      return result;
    } catch (error) {
      onError(error);
      throw error;
    }
  }

  async function followed(name: keyof AnyGenerator, result: unknown): Promise<unknown> {
    try {
      const settled = await (signal === undefined ? result : untilAborted(signal, () => result));
      onStep(name, settled);
      return settled;
    } catch (error) {
      if (signal?.aborted === true && error === signal.reason) stop();
      else onError(error);
      throw error;
    }
  }

  for (const name of ["next", "return", "throw"] as const) {
    const value = (...given: unknown[]): unknown => step(name, given);
    Object.defineProperty(generator, name, { value, configurable: true, writable: true });
  }
  return generator;
}

interface GeneratorState {
  hasEnded: boolean;
}

/**
 * Calls `left` when the generator is garbage-collected. This is a separate function, because a closure inside
 * `watchGenerator` would keep the generator reachable forever.
 */
function leftIfUnreachable(generator: AnyGenerator, state: GeneratorState, left: () => void): void {
  unreachable.register(generator, () => endOnce(state, left), state);
}

function endOnce(state: GeneratorState, report: () => void): void {
  if (state.hasEnded) return;
  state.hasEnded = true;
  report();
}

/** Returns the result of `run`. Rejects with the signal's reason if the signal aborts first. */
async function untilAborted(signal: AbortSignal, run: () => unknown): Promise<unknown> {
  signal.throwIfAborted();
  let fail = (): void => {};
  const aborted = new Promise<never>((_resolve, reject) => {
    fail = () => reject(signal.reason);
    signal.addEventListener("abort", fail, { once: true });
  });
  try {
    return await Promise.race([run(), aborted]);
  } finally {
    signal.removeEventListener("abort", fail);
  }
}

/** A running call that occupies a place in a bucket or in concurrency slots until it ends. */
interface HeldCall {
  /** The limiter in which the call occupies a place: the name of a bucket, or the concurrency slots of a function. */
  readonly of: unknown;
  /** The name of the running function. */
  readonly name: string;
  readonly outer: HeldCall | undefined;
  isRunning: boolean;
}

/** A pending call, with a function that finds the limit that the call waits for. */
interface WaitInside {
  readonly of: unknown;
  readonly bucket: string;
  readonly logger: Logger;
  /** Returns the name of the full concurrency limit. Undefined if the call waits for something else. */
  readonly limit: () => Promise<string | undefined>;
}

const PATIENCE_MS = 10_000;

const inside = new AsyncLocalStorage<HeldCall>();
/**
 * The number of running calls that occupy a place in a limiter. Async storage slows down each promise of a process, so
 * it is on only if this is above 0.
 */
let running = 0;
/** The limiters that were already warned about, by logger. */
const warned = new WeakMap<Logger, Set<unknown>>();

/**
 * Runs a call that occupies a place in a limiter. Calls that are made inside it can then be recognized as inner calls.
 */
async function runHeld<Result>(
  of: unknown,
  name: string,
  run: () => Result | Promise<Result>,
): Promise<Result> {
  const held: HeldCall = { of, name, outer: inside.getStore(), isRunning: true };
  running += 1;
  try {
    return await inside.run(held, run);
  } finally {
    held.isRunning = false;
    running -= 1;
    if (running === 0) inside.disable();
  }
}

/**
 * Waits for a place in a limiter. Logs a warning after ten seconds if the call was made inside another call that
 * occupies a place of the same limiter.
 */
export function waitInside<Place>(wait: WaitInside, waiting: Promise<Place>): Promise<Place> {
  const outer = running === 0 ? undefined : holderOf(wait.of);
  if (outer === undefined) return waiting;
  const timer = setTimeout(() => void warn(wait, outer), PATIENCE_MS);
  timer.unref();
  return waiting.finally(() => clearTimeout(timer));
}

/** Returns the outer call of the current call that occupies a place of this limiter. Undefined if there is none. */
function holderOf(of: unknown): HeldCall | undefined {
  let held = inside.getStore();
  while (held !== undefined && (held.of !== of || !held.isRunning)) held = held.outer;
  return held;
}

async function warn({ of, bucket, logger, limit }: WaitInside, outer: HeldCall): Promise<void> {
  const known = warned.get(logger) ?? new Set();
  warned.set(logger, known);
  if (known.has(of) || !outer.isRunning) return;
  // Logs no warning if the limit is unknown.
  const limitedBy = await limit().catch(() => undefined);
  if (limitedBy === undefined || known.has(of) || !outer.isRunning) return;
  known.add(of);
  const name = outer.name === "" ? "a function without a name" : `"${outer.name}"`;
  const problem = `A call of bucket "${bucket}" has waited for 10 s for "${limitedBy}". It was made inside a call of ${name}, which holds a place there, so the two may wait for each other forever. Make the inner call through another bucket or outside of the outer call, or allow more calls at once. This is logged once.`;
  logger.warn({ bucket, limitedBy, outer: outer.name }, problem);
}
