import { z } from "zod";
import { LONGEST_MS, NAME, PRIORITY, readOptions, wholeNumber } from "../core/options.ts";
import type { Priority } from "../core/priority.ts";

/** How one call draws. */
export interface DrawOptions {
  /** The tenant, account or endpoint that the call is for; it comes back on the slot and in errors. */
  readonly key?: string | undefined;
  /** How many calls this one counts as, at most the burst. Defaults to 1. */
  readonly cost?: number | undefined;
  /** Who leaves this process's line first. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /** How long to wait for a slot at most, from 1 ms. Defaults to no limit. */
  readonly maxWaitMs?: number | undefined;
  /** Ends the wait: `draw` then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const COST = wholeNumber(1, Number.MAX_SAFE_INTEGER, "calls");
const SIGNAL = z.instanceof(AbortSignal, { error: "give an AbortSignal" });

const DRAW_OPTIONS = z.strictObject({
  key: NAME.optional(),
  cost: COST.optional(),
  priority: PRIORITY.optional(),
  maxWaitMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  signal: SIGNAL.optional(),
});

const THROTTLED_OPTIONS = z.strictObject({
  ...DRAW_OPTIONS.shape,
  key: z.union([NAME, z.custom<(...args: never[]) => string>(isFunction)]).optional(),
  cost: z.union([COST, z.custom<(...args: never[]) => number>(isFunction)]).optional(),
  concurrency: wholeNumber(1, 1_000_000, "calls").optional(),
});

/** What `draw` and `.with` take. */
export function readDrawOptions(where: string, given: unknown): DrawOptions {
  return readOptions(where, DRAW_OPTIONS, given);
}

/** How the calls of a wrapped function draw: key and cost may be functions of the arguments. */
export interface CallOptions<Args extends never[]> extends Omit<DrawOptions, "key" | "cost"> {
  readonly key?: string | ((...args: Args) => string) | undefined;
  readonly cost?: number | ((...args: Args) => number) | undefined;
  /** How many calls may wait for their slot or run at once in this process. Defaults to no bound. */
  readonly concurrency?: number | undefined;
}

/** What `throttled` takes. */
export function readCallOptions(where: string, given: unknown): CallOptions<never[]> {
  return readOptions(where, THROTTLED_OPTIONS, given);
}

function isFunction(value: unknown): boolean {
  return typeof value === "function";
}
