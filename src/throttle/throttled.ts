import { InvalidOptionError } from "../core/errors.ts";
import type { OwnedBucket } from "./owned-bucket.ts";
import {
  readCallOptions,
  readOverrides,
  type CallOptions,
  type DrawOptions,
} from "./draw-options.ts";
import { optionsReader } from "./options-of-call.ts";
import { createPlaces, type Places } from "./places.ts";
import type { Slot } from "./slot.ts";
import type { AnyFunction, Throttled, ThrottledOptions } from "./throttled-function.ts";

export function throttle<F extends AnyFunction>(
  bucket: OwnedBucket,
  fn: F,
  options: ThrottledOptions<F> = {},
): Throttled<F> {
  if (typeof fn !== "function") {
    const remedy = "give the function whose calls are to be paced";
    throw new InvalidOptionError({ where: "throttled()", option: "fn", value: fn, remedy });
  }
  const { concurrency, ...rest } = readCallOptions("throttled()", options);
  const places = concurrency === undefined ? undefined : createPlaces(bucket, concurrency);
  return wrap(bucket, fn, { draw: rest, places });
}

interface Settings {
  readonly draw: CallOptions;
  readonly places: Places | undefined;
}

function wrap<F extends AnyFunction>(bucket: OwnedBucket, fn: F, settings: Settings): Throttled<F> {
  const { draw, places } = settings;
  const optionsOf = optionsReader("throttled()", draw);

  async function paced(this: unknown, ...args: never[]): Promise<unknown> {
    const options = optionsOf(args);
    const run = (): unknown => Reflect.apply(fn, this, args);
    if (places === undefined) return callOnSlot(bucket, { draw, options }, run);
    return callWithin(places, options, (left) => callOnSlot(bucket, { draw, options: left }, run));
  }

  const withOptions = (given: DrawOptions): Throttled<F> => {
    const read = readOverrides("with()", given);
    return wrap(bucket, fn, { draw: { ...draw, ...read }, places });
  };
  for (const name of ["name", "length"] as const) {
    Object.defineProperty(paced, name, { value: fn[name], configurable: true });
  }
  return Object.assign(paced, { with: withOptions }) as Throttled<F>;
}

/** Waits for a slot, runs a call on it, and listens to what comes of it. */
async function callOnSlot(
  bucket: OwnedBucket,
  { draw, options }: { draw: CallOptions; options: DrawOptions },
  run: () => unknown,
): Promise<unknown> {
  const slot = await bucket.drawByHand(options);
  try {
    const result = await (slot.hasLease ? untilLost(slot, run) : run());
    bucket.hear(result, slot, options.cost, draw.feedback);
    if (draw.settle !== undefined) bucket.settleBy(draw.settle, result, slot);
    return result;
  } catch (error) {
    bucket.hear(error, slot, options.cost, draw.feedback);
    throw error;
  } finally {
    slot.release();
  }
}

/** What the call came to, unless its lease is lost before: then another call may have taken its place. */
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

/** The place is taken before the draw: a call that had its slot and then waited for a place would leave late. */
async function callWithin(
  places: Places,
  options: DrawOptions,
  call: (options: DrawOptions) => Promise<unknown>,
): Promise<unknown> {
  const sinceMs = performance.now();
  options.signal?.throwIfAborted();
  const release = await places.take(options);
  try {
    if (options.maxWaitMs === undefined) return await call(options);
    const leftMs = Math.ceil(options.maxWaitMs - (performance.now() - sinceMs));
    return await call({ ...options, maxWaitMs: Math.max(1, leftMs) });
  } finally {
    release();
  }
}
