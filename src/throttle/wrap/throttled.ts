import { setMaxListeners } from "node:events";
import PQueue from "p-queue";
import type { PriorityQueue } from "p-queue";
import { InvalidOptionError, WaitTooLongError } from "../../core/errors.ts";
import { PRIORITIES, RANKS } from "../../core/input/options.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  optionsReader,
  readCallOptions,
  readOverrides,
  readRunOptions,
  type AnyFunction,
  type CallOptionsRead,
  type DrawCall,
  type DrawOptions,
  type OptionsOfCall,
  type RunOptions,
  type ThrottledOptions,
} from "../call-options.ts";
import { giveLeaseInHandBack, jobSlotInHand } from "../slot/job-slot.ts";
import type { Throttled } from "./throttled-types.ts";
import type { Slot } from "../slot/slot.ts";
import { methodNoted, settleRefused, withDefaults, type FilledOptions } from "./call-defaults.ts";
import { createLine, type Waiter } from "../waiting/line.ts";
import { Wait } from "../waiting/wait.ts";
import { isResponse } from "../feedback/layers.ts";
import { isGenerator, untilAborted, watchGenerator } from "./generator.ts";
import { runHeld, waitInside } from "./held-calls.ts";

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
async function callWithin<Options extends DrawCall>(
  concurrencySlots: ConcurrencySlots,
  options: Options,
  call: (options: Options, end: () => void) => Promise<unknown>,
): Promise<unknown> {
  const sinceMs = performance.now();
  options.signal?.throwIfAborted();
  const release = await concurrencySlots.take(options);
  if (options.maxWaitMs === undefined) return call(options, release);
  const leftMs = Math.ceil(options.maxWaitMs - (performance.now() - sinceMs));
  return call({ ...options, maxWaitMs: Math.max(1, leftMs) }, release);
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
  take(options: DrawCall): Promise<() => void>;
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
      const { priority = "normal", key, maxWaitMs, signal } = options;
      /** The call of a job leaves on the job's slot, whatever holds others back. */
      const isOfJob = jobSlotInHand(owner) !== undefined;
      const refusal = (): WaitTooLongError | undefined =>
        isOfJob ? undefined : owner.refusalKnown(options);
      // One signal may end a hundred waits; Node would warn of a leak.
      if (signal !== undefined) setMaxListeners(Infinity, signal);
      const leaving = new AbortController();
      const wait = new Wait(
        {
          onLeave: (reason) => leaving.abort(reason),
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
        { signal, maxWaitMs, onClose },
      );
      let stopWatching = (): void => {};
      try {
        leaving.signal.throwIfAborted();
        if (queue.pending >= concurrency) {
          // It would wait for a place, and then in vain for a slot.
          const refuse = (hopeless: WaitTooLongError): void => leaving.abort(hopeless);
          if (!isOfJob) stopWatching = owner.whenHopeless(options, refuse);
          leaving.signal.throwIfAborted();
          giveLeaseInHandBack(owner);
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

interface Entry extends Waiter {
  readonly id: string;
  readonly run: Run;
}

/** The queue of a p-queue whose priorities are ranks. Its own one searches all entries for one that leaves. */
class LineOfRuns {
  readonly #line = createLine<Entry>();
  readonly #entries = new Map<string, Entry>();

  get size(): number {
    return this.#line.size;
  }

  /** p-queue gives each run an id of its own. */
  enqueue(
    run: Run,
    { priority: rank = 0, id = "" }: { priority?: number; id?: string } = {},
  ): void {
    const links = { round: 0, previous: undefined, next: undefined };
    const entry: Entry = { priority: PRIORITIES[rank]!, id, run, ...links };
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
