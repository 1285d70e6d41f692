/**
 * Warns of a call that waits for a place which the call holds that it was made in: `throttled` inside of `throttled`
 * under the same limit of calls at once. Neither of the two can ever go on.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Logger } from "../../core/logger.ts";

/** A call that runs, and holds a place until it ends. */
interface HeldCall {
  /** What the place is of: the name of a bucket, or a bound of calls in this process. */
  readonly of: unknown;
  /** The function that runs. */
  readonly name: string;
  readonly outer: HeldCall | undefined;
  isRunning: boolean;
}

/** Who waits, and how to find out for what. */
export interface WaitInside {
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
export async function runHeld<Result>(
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
