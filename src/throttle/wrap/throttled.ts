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
} from "../call-options.ts";
import { isResponse } from "../feedback/layers.ts";
import { releaseUnusedJobLease, unusedJobSlot } from "../slot/job-slot.ts";
import type { Slot } from "../slot/slot.ts";
import { createLine, type Waiter } from "../waiting/line.ts";
import { Wait } from "../waiting/wait.ts";
import { methodNoted, settleRefused, withDefaults, type FilledOptions } from "./call-defaults.ts";
import type { Throttled } from "./throttled-types.ts";

export function throttle<F extends AnyFunction>(
  bucket: OwnedBucket,
  fn: F,
  given: ThrottledOptions<F> = {},
): Throttled<F> {
  assertFunction("throttled()", fn, "give the function whose calls are to be paced");
  const options = readCallOptions("throttled()", given);
  const { concurrency } = options;
  const concurrencySlots =
    concurrency === undefined ? undefined : createConcurrencySlots(bucket, concurrency);
  return wrap({ bucket, fn, concurrencySlots }, options);
}

/** Makes one call in its slot, without wrapping a function for it. */
export async function runOnce<Result>(
  bucket: OwnedBucket,
  fn: () => Result,
  given: RunOptions<Result> = {},
): Promise<Awaited<Result>> {
  assertFunction("run()", fn, "give the function that makes the call, such as () => send(mail)");
  const options = await withDefaults(bucket.calls, "run()", readRunOptions("run()", given), {
    args: [],
  });
  return (await callOnSlot(bucket, options, { name: fn.name, run: () => fn() })) as Awaited<Result>;
}

function assertFunction(where: string, fn: unknown, remedy: string): void {
  if (typeof fn === "function") return;
  throw new InvalidOptionError({ where, option: "fn", value: fn, remedy });
}

/** What is the same in a wrapped function and in those that its `with` gives. */
interface Wrapping<F> {
  readonly bucket: OwnedBucket;
  readonly fn: F;
  readonly concurrencySlots: ConcurrencySlots | undefined;
}

function wrap<F extends AnyFunction>(
  wrapping: Wrapping<F>,
  options: CallOptionsRead,
): Throttled<F> {
  const { bucket, fn, concurrencySlots } = wrapping;
  const optionsOf = optionsReader("throttled()", options);

  async function paced(this: unknown, ...args: never[]): Promise<unknown> {
    const stated = optionsOf(args);
    const filled = withDefaults(bucket.calls, "throttled()", stated, {
      args,
      method: methodNoted(this),
    });
    const own = filled instanceof Promise ? await filled : filled;
    const run = (): unknown => Reflect.apply(fn, this, args);
    const { name } = fn;
    if (concurrencySlots === undefined) return callOnSlot(bucket, own, { name, run });
    return callWithin(concurrencySlots, own, (left, end) =>
      callOnSlot(bucket, left, { name, run: () => runHeld(concurrencySlots, name, run) }, end),
    );
  }

  const withOptions = (given: DrawOptions): Throttled<F> =>
    wrap(wrapping, { ...options, ...readOverrides("with()", given) });
  for (const name of ["name", "length"] as const) {
    Object.defineProperty(paced, name, { value: fn[name], configurable: true });
  }
  return Object.assign(paced, { with: withOptions }) as Throttled<F>;
}

/**
 * Waits for a slot, runs a call on it, and reads what it returned or threw. The call of a generator lasts until that
 * has ended; `onEnd` is called then.
 */
async function callOnSlot(
  bucket: OwnedBucket,
  options: FilledOptions<OptionsOfCall<CallOptionsRead>>,
  { name, run }: { readonly name: string; readonly run: () => unknown },
  onEnd: () => void = () => {},
): Promise<unknown> {
  const { cost, feedback, settle, settlesAhead = false } = options;
  let isSettled = false;
  let slot: Slot;
  try {
    slot = await bucket.drawByHand(options);
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
    try {
      const reported = bucket.reportOutcome(result, slot, cost, feedback);
      // The caller may try again at once, and is to meet the cooldown then.
      const outcome = reported instanceof Promise ? await reported : reported;
      if (outcome.isRefusal && settle === undefined) await settleRefused(outcome, slot, cost);
      if (settle !== undefined && !isSettled) {
        // The bucket's own may read the body, which is the caller's.
        const read = settlesAhead ? copyForReading(result) : result;
        bucket.settleByResult(settle, read, slot);
      }
    } finally {
      left();
    }
  };
  const threw = async (error: unknown): Promise<void> => {
    try {
      await settleRefused(await bucket.reportOutcome(error, slot, cost, feedback), slot, cost);
    } finally {
      left();
    }
  };
  // A call whose lease is lost rejects, since another may start then.
  const lost = slot.hasLease ? slot.signal : undefined;
  let result: unknown;
  try {
    const runHere = (): unknown => runHeld(bucket.name, name, run);
    result = await (lost === undefined ? run() : untilAborted(lost, runHere));
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
  return watchGenerator(result, { returned, threw, left }, lost);
}

/** A copy of a response whose body has yet to be read. That of node-fetch's class would hold the original up. */
function copyForReading(result: unknown): unknown {
  if (!isResponse(result)) return result;
  const { body, bodyUsed } = result;
  const isReadable = typeof body?.getReader === "function" && !bodyUsed && !body.locked;
  return isReadable ? result.clone() : result;
}

/** A concurrency slot is taken before the draw: a call that had its slot and then waited for this one would leave late. */
async function callWithin<Options extends ObservedDrawCall>(
  concurrencySlots: ConcurrencySlots,
  options: Options,
  call: (options: Options, end: () => void) => Promise<unknown>,
): Promise<unknown> {
  const timed = withDeadline(options);
  timed.signal?.throwIfAborted();
  return call(timed, await concurrencySlots.take(timed));
}

/** Bounds how many calls of one wrapped function run at once in this process. */
interface ConcurrencySlots {
  /**
   * Waits for a concurrency slot, by priority; resolves with what gives it back.
   *
   * @throws {@link WaitTooLongError} when none came free within `maxWaitMs`.
   * @throws the signal's reason, when it is aborted.
   * @throws {@link ClosedError} when the bucket is closed.
   */
  take(options: ObservedDrawCall): Promise<() => void>;
}

function createConcurrencySlots(owner: OwnedBucket, concurrency: number): ConcurrencySlots {
  const { name: bucket } = owner;
  const onClose: OwnedBucket["onClose"] = (fail) => owner.onClose(fail);
  const queue = new PQueue({ concurrency, queueClass: LineOfRuns });

  /** A task that lasts as long as the slot is held, so that the call itself runs in its caller's async context. */
  function hold(priority: number, signal: AbortSignal): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const task = (): Promise<void> => new Promise((release) => resolve(release));
      queue.add(task, { priority, signal }).catch(reject);
    });
  }

  const slots: ConcurrencySlots = {
    async take(options) {
      const { priority = "normal", key, maxWaitMs, untilMs, signal } = options;
      /** The call of a job leaves on the job's slot, whatever holds others back. */
      const isOfJob = unusedJobSlot(owner) !== undefined;
      const refusal = (): WaitTooLongError | undefined =>
        isOfJob ? undefined : owner.refusalKnown({ ...options, untilMs: undefined });
      // One signal may end a hundred waits; Node would warn of a leak.
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
          // It would wait for a place, and then in vain for a slot.
          const refuse = (hopeless: WaitTooLongError): void => leaving.abort(hopeless);
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

/** The queue of a p-queue whose priorities are ranks. Its own one searches all entries for one that leaves. */
class LineOfRuns {
  readonly #line = createLine<ConcurrencyWaiter>();
  readonly #entries = new Map<string, ConcurrencyWaiter>();

  get size(): number {
    return this.#line.size;
  }

  /** p-queue gives each run an id of its own. */
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

  /** p-queue calls neither of these by itself. */
  filter(): Run[] {
    return [];
  }

  setPriority(): void {}
}

/** What a generator and an async one have in common. */
interface AnyGenerator {
  readonly next: (...given: unknown[]) => unknown;
  readonly return: (...given: unknown[]) => unknown;
  readonly throw: (...given: unknown[]) => unknown;
}

/** Called once, when a generator has ended. */
interface GeneratorEnds {
  /** It has run to its end. */
  readonly returned: (value: unknown) => void;
  readonly threw: (error: unknown) => void;
  /** The loop over it ended early, or it was garbage-collected. */
  readonly left: () => void;
}

/** Ends the calls of generators that were collected as garbage before they had ended. */
const unreachable = new FinalizationRegistry<() => void>((end) => end());

/** Whether a value is a generator, of either kind, or all that one is: streams and cursors are not. */
function isGenerator(value: unknown): value is AnyGenerator {
  if (typeof value !== "object" || value === null) return false;
  try {
    const { next, return: end, throw: fail } = value as Partial<AnyGenerator>;
    const isOne = [next, end, fail].every((each) => typeof each === "function");
    return isOne && (Symbol.asyncIterator in value || Symbol.iterator in value);
  } catch {
    // A proxy that throws.
    return false;
  }
}

/**
 * Tells when a generator has ended. It stays the same object, with all else that it has. If the signal is aborted, it
 * throws the signal's reason, and runs its `finally`.
 */
function watchGenerator<Generator extends AnyGenerator>(
  generator: Generator,
  { returned, threw, left }: GeneratorEnds,
  signal: AbortSignal | undefined,
): Generator {
  const own = { next: generator.next, return: generator.return, throw: generator.throw };
  const state: GeneratorState = { hasEnded: false };
  leftIfUnreachable(generator, state, left);

  function end(tell: () => void): void {
    unreachable.unregister(state);
    endOnce(state, tell);
  }

  function onStep(name: keyof AnyGenerator, step: unknown): void {
    const { done, value } = step as IteratorResult<unknown>;
    if (done === true) end(name === "next" ? () => returned(value) : left);
  }

  function onError(error: unknown): void {
    end(() => threw(error));
  }

  /** Runs its `finally`. An error there has no caller to reach, so it is dropped. */
  function stop(): void {
    onError(signal?.reason);
    try {
      const stopping: unknown = Reflect.apply(own.return, generator, [undefined]);
      if (stopping instanceof Promise) stopping.catch(() => {});
    } catch {
      // A sync generator that runs at this moment, or a finally that throws.
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

/** A function of its own: a closure among those of a generator would keep it, and it would never be unreachable. */
function leftIfUnreachable(generator: AnyGenerator, state: GeneratorState, left: () => void): void {
  unreachable.register(generator, () => endOnce(state, left), state);
}

function endOnce(state: GeneratorState, tell: () => void): void {
  if (state.hasEnded) return;
  state.hasEnded = true;
  tell();
}

/** What `run` returns; rejects with the signal's reason if it is aborted before. */
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

/** A call that runs, and holds a place until it ends. */
interface HeldCall {
  /** What the place is of: the name of a bucket, or a bound of calls in this process. */
  readonly of: unknown;
  /** The function that runs. */
  readonly name: string;
  readonly outer: HeldCall | undefined;
  isRunning: boolean;
}

/** The pending call, and how to find out which limit it waits for. */
interface WaitInside {
  readonly of: unknown;
  readonly bucket: string;
  readonly logger: Logger;
  /** The limit of calls at once that has no place left; undefined if it is something else that the call waits for. */
  readonly limit: () => Promise<string | undefined>;
}

const PATIENCE_MS = 10_000;

const inside = new AsyncLocalStorage<HeldCall>();
/** Async storage slows down each promise of a process, so it is on only while calls hold places. */
let running = 0;
/** The places of which a warning was logged, by the logger that has it. */
const warned = new WeakMap<Logger, Set<unknown>>();

/** Runs a call that holds a place, so that the calls which it makes are known to be made in it. */
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

/** Waits for a place. If the call was made in one that holds such a place, one warning says so after ten seconds. */
export function waitInside<Place>(wait: WaitInside, waiting: Promise<Place>): Promise<Place> {
  const outer = running === 0 ? undefined : holderOf(wait.of);
  if (outer === undefined) return waiting;
  const timer = setTimeout(() => void warn(wait, outer), PATIENCE_MS);
  timer.unref();
  return waiting.finally(() => clearTimeout(timer));
}

/** The call that holds such a place, among those in which this one is made. */
function holderOf(of: unknown): HeldCall | undefined {
  let held = inside.getStore();
  while (held !== undefined && (held.of !== of || !held.isRunning)) held = held.outer;
  return held;
}

async function warn({ of, bucket, logger, limit }: WaitInside, outer: HeldCall): Promise<void> {
  const known = warned.get(logger) ?? new Set();
  warned.set(logger, known);
  if (known.has(of) || !outer.isRunning) return;
  // Who cannot say for what the call waits says nothing.
  const limitedBy = await limit().catch(() => undefined);
  if (limitedBy === undefined || known.has(of) || !outer.isRunning) return;
  known.add(of);
  const name = outer.name === "" ? "a function without a name" : `"${outer.name}"`;
  const problem = `A call of bucket "${bucket}" has waited for 10 s under "${limitedBy}", and was made in a call of ${name} that holds a place there: the two may wait for each other for ever. Make the inner call through another bucket or outside of the outer one, or let more calls run at once. This is said once.`;
  logger.warn({ bucket, limitedBy, outer: outer.name }, problem);
}
