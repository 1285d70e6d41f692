import { setMaxListeners } from "node:events";
import PQueue from "p-queue";
import type { PriorityQueue } from "p-queue";
import { InvalidOptionError, WaitTooLongError } from "../../core/errors.ts";
import { PRIORITIES, RANKS } from "../../core/options.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  optionsReader,
  readCallOptions,
  readOverrides,
  type AnyFunction,
  type CallOptions,
  type DrawOptions,
  type OptionsOfCall,
  type Throttled,
  type ThrottledOptions,
} from "../call-options.ts";
import { giveLeaseInHandBack } from "../slot/job-slot.ts";
import type { Slot } from "../slot/slot.ts";
import { settleRefused } from "./refused-cost.ts";
import { createLine, type Waiter } from "../waiting/line.ts";
import { Wait } from "../waiting/wait.ts";

export function throttle<F extends AnyFunction>(
  bucket: OwnedBucket,
  fn: F,
  given: ThrottledOptions<F> = {},
): Throttled<F> {
  if (typeof fn !== "function") {
    const remedy = "give the function whose calls are to be paced";
    throw new InvalidOptionError({ where: "throttled()", option: "fn", value: fn, remedy });
  }
  const options = readCallOptions("throttled()", given);
  const { concurrency } = options;
  const concurrencySlots =
    concurrency === undefined ? undefined : createConcurrencySlots(bucket, concurrency);
  return wrap({ bucket, fn, concurrencySlots }, options);
}

/** What is the same in a wrapped function and in those that its `with` gives. */
interface Wrapping<F> {
  readonly bucket: OwnedBucket;
  readonly fn: F;
  readonly concurrencySlots: ConcurrencySlots | undefined;
}

function wrap<F extends AnyFunction>(wrapping: Wrapping<F>, options: CallOptions): Throttled<F> {
  const { bucket, fn, concurrencySlots } = wrapping;
  const optionsOf = optionsReader("throttled()", options);

  async function paced(this: unknown, ...args: never[]): Promise<unknown> {
    const own = optionsOf(args);
    const run = (): unknown => Reflect.apply(fn, this, args);
    if (concurrencySlots === undefined) return callOnSlot(bucket, own, run);
    return callWithin(concurrencySlots, own, (left) => callOnSlot(bucket, left, run));
  }

  const withOptions = (given: DrawOptions): Throttled<F> =>
    wrap(wrapping, { ...options, ...readOverrides("with()", given) });
  for (const name of ["name", "length"] as const) {
    Object.defineProperty(paced, name, { value: fn[name], configurable: true });
  }
  return Object.assign(paced, { with: withOptions }) as Throttled<F>;
}

/** Waits for a slot, runs a call on it, and reads what it returned or threw. */
async function callOnSlot(
  bucket: OwnedBucket,
  options: OptionsOfCall<CallOptions>,
  run: () => unknown,
): Promise<unknown> {
  const { cost, feedback, settle } = options;
  const slot = await bucket.drawByHand(options);
  try {
    const result = await (slot.hasLease ? untilLost(slot, run) : run());
    const reported = bucket.reportOutcome(result, slot, cost, feedback);
    // The caller may try again at once, and is to meet the cooldown then.
    const outcome = reported instanceof Promise ? await reported : reported;
    if (outcome.isRefusal && settle === undefined) await settleRefused(outcome, slot, cost);
    if (settle !== undefined) bucket.settleByResult(settle, result, slot);
    return result;
  } catch (error) {
    await settleRefused(await bucket.reportOutcome(error, slot, cost, feedback), slot, cost);
    throw error;
  } finally {
    slot.release();
  }
}

/** What the call returns; rejects if its lease is lost before, since another call may start then. */
async function untilLost(slot: Slot, run: () => unknown): Promise<unknown> {
  const { signal } = slot;
  signal.throwIfAborted();
  let fail = (): void => {};
  const lost = new Promise<never>((_resolve, reject) => {
    fail = () => reject(signal.reason);
    signal.addEventListener("abort", fail, { once: true });
  });
  try {
    return await Promise.race([run(), lost]);
  } finally {
    signal.removeEventListener("abort", fail);
  }
}

/** A concurrency slot is taken before the draw: a call that had its slot and then waited for this one would leave late. */
async function callWithin<Options extends DrawOptions>(
  concurrencySlots: ConcurrencySlots,
  options: Options,
  call: (options: Options) => Promise<unknown>,
): Promise<unknown> {
  const sinceMs = performance.now();
  options.signal?.throwIfAborted();
  const release = await concurrencySlots.take(options);
  try {
    if (options.maxWaitMs === undefined) return await call(options);
    const leftMs = Math.ceil(options.maxWaitMs - (performance.now() - sinceMs));
    return await call({ ...options, maxWaitMs: Math.max(1, leftMs) });
  } finally {
    release();
  }
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
  take(options: DrawOptions): Promise<() => void>;
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

  return {
    async take({ priority = "normal", key, maxWaitMs, signal }) {
      // One signal may end a hundred waits; Node would warn of a leak.
      if (signal !== undefined) setMaxListeners(Infinity, signal);
      const leaving = new AbortController();
      const wait = new Wait(
        {
          onLeave: (reason) => leaving.abort(reason),
          onExpire: () =>
            leaving.abort(
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
      try {
        leaving.signal.throwIfAborted();
        if (queue.pending >= concurrency) giveLeaseInHandBack(owner);
        return await hold(RANKS[priority], leaving.signal);
      } finally {
        wait.end();
      }
    },
  };
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
