import { setMaxListeners } from "node:events";
import { ClosedError, CostTooLargeError } from "../core/errors.ts";
import type { LeakyBucket } from "../core/limits/leaky-bucket.ts";
import type { Logger } from "../core/logger.ts";
import { formatPolicy } from "../core/policy.ts";
import type { Store } from "../core/store.ts";
import { readDrawOptions, type DrawOptions } from "./draw-options.ts";
import { createKnownPolicy } from "./known-policy.ts";
import { createPacer } from "./pacer.ts";
import type { Slot } from "./slot.ts";
import { takeSlotInHand } from "./slot-in-hand.ts";
import { throttle, type Throttled, type ThrottledOptions } from "./throttled.ts";
import { WaitingCall, type CallContext } from "./waiting-call.ts";

/** A named thing that calls are drawn from, shared by all replicas. */
export interface Bucket {
  readonly name: string;
  /** How many callers wait in this process. */
  readonly waiting: number;
  /**
   * Waits for a slot; resolves when the call may start.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link CostTooLargeError} when the cost is above the burst.
   * @throws {@link WaitTooLongError} when no slot came within `maxWaitMs`.
   * @throws {@link StoreUnavailableError} when Redis gave no answer in time.
   * @throws {@link ClosedError} when the sluice is closed.
   * @throws the signal's reason, when it is aborted.
   */
  draw(options?: DrawOptions): Promise<Slot>;
  /**
   * Wraps a function: same `this`, arguments and result, but each call waits for its slot.
   * What the function throws at once arrives as a rejection, as does all that {@link Bucket.draw} throws.
   */
  throttled<F extends (...args: never[]) => unknown>(
    fn: F,
    options?: ThrottledOptions<F>,
  ): Throttled<F>;
}

/** A bucket as other parts of a sluice use it. */
export interface OwnedBucket extends Bucket {
  readonly policy: LeakyBucket;
  /** Whether the application itself calls through this bucket, and not only its workers. */
  readonly isCalledByHand: boolean;
  /**
   * Draws with options that have been read already, for a worker. While it waits,
   * what ends the wait is among `waits`: a signal for each job costs more than the draw.
   */
  drawForJob(options: DrawOptions, waits: Set<(reason: string) => void>): Promise<Slot>;
  /** Calls back when the bucket is closed, with what those who wait then fail with. */
  onClose(fail: (reason: ClosedError) => void): void;
  /** Fails all who wait, and gives unused slots back. */
  close(): Promise<void>;
}

export interface BucketOptions {
  readonly name: string;
  readonly policy: LeakyBucket;
  readonly store: Store;
  readonly replica: string;
  readonly logger: Logger;
}

/** So many costs are kept a line for; from there on, lines in which nobody waits are dropped. */
const MOST_COSTS = 64;

const NO_OPTIONS: DrawOptions = Object.freeze({});

export function createBucket({ name, policy, store, replica, logger }: BucketOptions): OwnedBucket {
  const known = createKnownPolicy(name, policy, logger);
  const contexts = new Map<number, CallContext>();
  const closeListeners: ((reason: ClosedError) => void)[] = [];
  let isClosed = false;
  let isCalledByHand = false;

  /** Calls of one cost are interchangeable, so each cost has a line of its own. */
  function contextOf(cost: number): CallContext {
    const found = contexts.get(cost);
    if (found !== undefined) return found;
    const { burst } = known.policy;
    if (cost > burst) throw new CostTooLargeError({ bucket: name, cost, maxCost: burst });
    if (contexts.size >= MOST_COSTS) forgetIdle();
    const asker = cost === 1 ? replica : `${replica}/${cost}`;
    const pacer = createPacer({ store, bucket: name, asker, cost, known, logger });
    const context = { bucket: name, pacer, limitedBy: () => formatPolicy(known.policy) };
    contexts.set(cost, context);
    return context;
  }

  /** Costs may come from arguments, and be different for every call. */
  function forgetIdle(): void {
    for (const [cost, { pacer }] of contexts) if (pacer.isIdle) contexts.delete(cost);
  }

  async function wait(options: DrawOptions): Promise<Slot> {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    options.signal?.throwIfAborted();
    const context = contextOf(options.cost ?? 1);
    return new Promise((resolve, reject) => {
      context.pacer.wait(new WaitingCall(context, options, { resolve, reject }));
    });
  }

  async function drawForJob(
    options: DrawOptions,
    waits: Set<(reason: string) => void>,
  ): Promise<Slot> {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    const context = contextOf(1);
    let stop = (_reason: string): void => {};
    try {
      return await new Promise((resolve, reject) => {
        const call = new WaitingCall(context, options, { resolve, reject });
        stop = (reason) => call.leave(reason);
        waits.add(stop);
        context.pacer.wait(call);
      });
    } finally {
      waits.delete(stop);
    }
  }

  async function drawByHand(options: DrawOptions): Promise<Slot> {
    isCalledByHand = true;
    // One signal may well end a hundred waits; Node would call that a leak.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    return takeSlotInHand(bucket, options.cost ?? 1) ?? wait(options);
  }

  const bucket: OwnedBucket = {
    name,
    policy,
    get waiting() {
      let waiting = 0;
      for (const { pacer } of contexts.values()) waiting += pacer.waiting;
      return waiting;
    },
    get isCalledByHand() {
      return isCalledByHand;
    },
    async draw(options) {
      return drawByHand(options === undefined ? NO_OPTIONS : readDrawOptions("draw()", options));
    },
    drawForJob,
    throttled(fn, options) {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    },
    onClose(fail) {
      closeListeners.push(fail);
    },
    async close() {
      isClosed = true;
      for (const fail of closeListeners) fail(new ClosedError(`Bucket "${name}"`));
      await Promise.all([...contexts.values()].map(({ pacer }) => pacer.close()));
    },
  };
  return bucket;
}
