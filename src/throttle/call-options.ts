/**
 * The options of calls: their types, their checks, and how those of a wrapped function become those of one call.
 *
 * Where they act: `maxWaitMs` and `signal` end a wait in `waiting/wait.ts`, for calls in the line
 * (`waiting/waiting-call.ts`), for a look at the policy (`bucket/admission.ts`) and for `concurrency`
 * (`wrap/throttled.ts`); `priority` in `waiting/line.ts`; `key` in `core/policy/per-key.ts`; `cost` in `costs.ts`;
 * `settle` in `slot/slot.ts`; `feedback` in `feedback/feedback.ts`.
 */
import * as z from "zod";
import type { WaitTrace } from "../core/events/observer.ts";
import type { Answer, ReadFeedback } from "../core/answer.ts";
import { isThenable } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import {
  KEY_BY_CALL_SHAPE,
  KEY_SHAPE,
  oneKey,
  plainTextOfKey,
  plainTextOfKeys,
  type ByCall,
  type KeyGiven,
  type KeyRead,
} from "../core/input/key-options.ts";
import type { Key, NamedKeys } from "../core/key-path.ts";
import {
  LONGEST_MS,
  PRIORITY,
  readOptions,
  wholeNumber,
  type Priority,
} from "../core/input/options.ts";
import { checkCost, type Cost } from "./costs.ts";

/** How one call draws. Of a key, its own limits hold beside those of all. */
export interface DrawOptions extends KeyGiven {
  /** What the call takes: a number of calls, or by unit, `{ tokens: 800 }`. Defaults to 1 call, and nothing of other units. */
  readonly cost?: Cost | undefined;
  /** Which calls go first, over all replicas. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /** How long to wait for a slot at most, from 1 ms; after that, the call rejects with `WaitTooLongError`. Defaults to no limit. */
  readonly maxWaitMs?: number | undefined;
  /** Ends the wait: `draw` then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What `tryDraw` takes: it never waits. */
export type TryOptions = Pick<DrawOptions, "key" | "keys" | "cost">;

/** The options of a draw once they are read: the key is encoded. */
export type DrawCall = KeyRead<DrawOptions>;

/** The same of a try. */
export type TryCall = KeyRead<TryOptions>;

/** A call has got its slot. */
export interface SlotEvent {
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
  readonly priority: Priority;
  /** How long the call waited for its slot, in ms: `37.2`. */
  readonly waitedMs: number;
  /** The slot on the Redis clock, in ms since 1970: `1790000000123.456`. */
  readonly atMs: number;
  /** The limit that the call waited for: `"100/s"`. Undefined if it went within a millisecond. */
  readonly limitedBy: string | undefined;
}

/** Called with the slot of each call, just before the call starts. What it throws is logged. */
export type OnSlot = (slot: SlotEvent) => unknown;

/** What a draw takes besides, for whoever wraps it. */
export interface ObservedDrawCall extends DrawCall {
  readonly onSlot?: OnSlot | undefined;
  /** Hears how its wait ends. */
  readonly trace?: WaitTrace | undefined;
  /** When its `maxWaitMs` ends, on `performance.now()`: set by {@link withDeadline} when the call comes. */
  readonly untilMs?: number | undefined;
}

/** Turns `maxWaitMs` into a deadline, once: a call that waits in several places keeps the first one. */
export function withDeadline<Call extends Pick<ObservedDrawCall, "maxWaitMs" | "untilMs">>(
  call: Call,
): Call {
  const { maxWaitMs, untilMs } = call;
  if (maxWaitMs === undefined || untilMs !== undefined) return call;
  return { ...call, untilMs: performance.now() + maxWaitMs };
}

/** How the calls of a wrapped function draw: key and cost may be functions of the arguments. */
export interface CallOptions<Args extends unknown[] = never[], Result = never> extends Omit<
  DrawOptions,
  "key" | "keys" | "cost"
> {
  readonly key?: Key | ((...args: Args) => Key | undefined) | undefined;
  readonly keys?: NamedKeys | ((...args: Args) => NamedKeys | undefined) | undefined;
  readonly cost?: Cost | ((...args: Args) => Cost | undefined) | undefined;
  /** The true cost, read from the result; a unit that is left out, or undefined, stays as estimated. */
  readonly settle?: SettleBy<Result> | undefined;
  /** Reads a cooldown from results and errors, instead of the bucket's own `feedback`. */
  readonly feedback?: ReadFeedback | undefined;
  /** How many calls may wait for their slot or run at once in this process. Defaults to no bound. */
  readonly concurrency?: number | undefined;
  /** Called with the slot of each call, just before the call starts: how long it waited, and for which limit. */
  readonly onSlot?: OnSlot | undefined;
}

/** How one call draws, and what is read from its result. */
export type RunOptions<Result = never> = DrawOptions &
  Pick<CallOptions<[], ResultOf<Result>>, "settle" | "feedback" | "onSlot">;

/** What a call comes to: of a generator, what it returns at its end. */
export type ResultOf<Returned> =
  Awaited<Returned> extends
    | Generator<unknown, infer End, never>
    | AsyncGenerator<unknown, infer End, never>
    ? End
    : Awaited<Returned>;

/** The options of calls once they are read; what is a function of the arguments still is one. */
export interface CallOptionsRead extends Omit<CallOptions, "key" | "keys"> {
  /** The text of the key. */
  readonly key?: string | ByCall | undefined;
  readonly keys?: ByCall | undefined;
}

/** The options of one call: key and cost are what their functions answered, all else is as it was given. */
export type OptionsOfCall<Given> = Omit<Given, "key" | "keys" | "cost"> & TryCall;

/**
 * Makes the options of each call from those of its wrapped function. Unless key or cost depend on the arguments, all
 * calls get the same object.
 *
 * The reader throws {@link InvalidOptionError} when a key or a cost that a function answered can never work.
 */
export function optionsReader<Given extends CallOptionsRead>(
  where: string,
  given: Given,
): (args: never[]) => OptionsOfCall<Given> {
  const { key, keys, cost, ...others } = given;
  if (typeof key !== "function" && keys === undefined && typeof cost !== "function") {
    const options = Object.freeze({ ...others, key, cost }) as OptionsOfCall<Given>;
    return () => options;
  }

  // Both are there from the start: a copy whose shape grows takes much longer to make.
  const common = { ...others, key: undefined, cost: undefined };
  return (args) => {
    const ownCost = answerOf({ where, option: "cost" }, cost, args);
    const read: { key?: unknown; keys?: unknown; cost?: unknown } = {};
    // What is no function was read before. A key alone is quicker to check.
    if (typeof key === "function") read.key = answerOf({ where, option: "key" }, key, args);
    if (keys !== undefined) read.keys = answerOf({ where, option: "keys" }, keys, args);
    if (ownCost !== undefined) read.cost = ownCost;
    const own = readTryOptions(where, read);
    const ownKey = typeof key === "string" ? key : own.key;
    return { ...common, key: ownKey, cost: own.cost } as OptionsOfCall<Given>;
  };
}

/** What a function of the arguments answers; all else is its own answer. */
function answerOf<T>(
  about: { readonly where: string; readonly option: string },
  of: T | ((...args: never[]) => T),
  args: never[],
): T {
  if (typeof of !== "function") return of;
  const value = (of as (...args: never[]) => T)(...args);
  if (!isThenable(value)) return value;
  const remedy = "let the function answer at once, and await what it needs before the call";
  throw new InvalidOptionError({ ...about, value, remedy });
}

/** What a call cost, by unit; what is undefined or null stays as estimated. */
export type SettledCost = Readonly<Record<string, number | null | undefined>>;

/** Reads what a call cost from its result; a unit that it leaves out, or undefined in place of all, stays as estimated. */
export type SettleBy<Result> = {
  // A method's parameter may be narrower, as those of functions that users write are.
  by(result: Result): KnownCost | Promise<KnownCost>;
}["by"];

type KnownCost = SettledCost | null | undefined;

/** Any function that can be wrapped. */
export type AnyFunction = (...args: never[]) => unknown;

/** How the calls of one wrapped function draw; key and cost may depend on the arguments. */
export type ThrottledOptions<F extends AnyFunction> = CallOptions<
  Parameters<F>,
  ResultOf<ReturnType<F>>
>;

export type FetchFunction = typeof globalThis.fetch;

/**
 * How requests draw, and are sent. `key` and `cost` may be functions of what `fetch` is given: `(input, init) => …`.
 * `settle` gets a copy of the response, whose body arrives as the caller reads the response itself.
 */
export interface FetchOptions extends Omit<ThrottledOptions<FetchFunction>, "concurrency"> {
  /** How often a request is sent at most, from 1, which is once. Defaults to 3. */
  readonly tries?: number | undefined;
  /** What sends the requests, such as undici's `fetch` with a dispatcher of its own. Defaults to `globalThis.fetch`. */
  readonly fetch?:
    | FetchFunction
    | ((...args: Parameters<FetchFunction>) => Promise<Response>)
    | undefined;
  /**
   * Whether an answer is to be followed by another try; undefined leaves that to the bucket. It is asked only where
   * a try is left and the request can be sent again. `false` never tries again.
   */
  readonly retry?: RetryBy | undefined;
}

/** Decides on another try of a request. */
export type RetryBy = false | ((response: Response, context: RetryContext) => boolean | undefined);

/** What `retry` is told beside the response. */
export interface RetryContext {
  /** What the answer means; with a `feedback` of your own, what that made of it. */
  readonly answer: Answer;
  /** How often the request has been sent: `1`. */
  readonly tries: number;
  /** `"POST"`. */
  readonly method: string;
}

/** The `fetch` of a bucket; `with` gives one whose calls draw with other options. */
export type ThrottledFetch = FetchFunction & {
  with(options: FetchOptions): ThrottledFetch;
};

/** How a bucket heeds the answers of its downstream. */
export interface FeedbackOptions {
  /** Reads cooldowns, instead of by 429 and 503 in what calls return and throw. */
  readonly feedback?: ReadFeedback | undefined;
  /** The longest cooldown that an answer can set. Defaults to 900,000 ms. */
  readonly maxCooldownMs?: number | undefined;
  /** Cuts the rate with each refusal, and lets it grow back. Defaults to off. */
  readonly adaptive?: AdaptiveOptions | undefined;
  /** `"headers"` slows calls down before a quota is used up, by what headers say is left. Defaults to off. */
  readonly pace?: "headers" | undefined;
}

export interface AdaptiveOptions {
  /** The part of the rate that always remains, such as 0.1. */
  readonly floor: number;
  /** How long the rate would take to grow back from nothing to the whole, such as 60,000 ms. */
  readonly recoverMs: number;
}

const PART = { error: "give a part of the rate, from 0.01 to 1" };

const FEEDBACK: z.ZodType<ReadFeedback> = z.custom<ReadFeedback>(
  (value) => value === false || typeof value === "function",
  { error: "give false, or a function of what calls return and throw" },
);

/**
 * The part of the options of `bucket()` that is about answers.
 *
 * @internal
 */
export const FEEDBACK_SHAPE: {
  feedback: z.ZodOptional<z.ZodType<ReadFeedback>>;
  maxCooldownMs: z.ZodOptional<z.ZodType<number>>;
  adaptive: z.ZodOptional<z.ZodType<AdaptiveOptions>>;
  pace: z.ZodOptional<z.ZodType<"headers">>;
} = {
  feedback: FEEDBACK.optional(),
  maxCooldownMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  adaptive: z
    .strictObject(
      {
        floor: z.number(PART).min(0.01, PART).max(1, PART),
        recoverMs: wholeNumber(100, LONGEST_MS, "milliseconds"),
      },
      {
        error: (issue) =>
          issue.code === "invalid_type" ? "give { floor: 0.1, recoverMs: 60_000 }" : undefined,
      },
    )
    .optional(),
  pace: z.literal("headers", { error: 'give "headers"' }).optional(),
};

/** @internal */
export const COST: z.ZodType<Cost> = z.custom<Cost>().superRefine(checkCost);
const TRY_SHAPE = { ...KEY_SHAPE, cost: COST.optional() };
const DRAW_SHAPE = {
  ...TRY_SHAPE,
  priority: PRIORITY.optional(),
  maxWaitMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  signal: z.instanceof(AbortSignal, { error: "give an AbortSignal" }).optional(),
};
const TRY_OPTIONS = z.strictObject(TRY_SHAPE);
const DRAW_OPTIONS = z.strictObject(DRAW_SHAPE);
const A_FUNCTION = { error: "give a function" };
const THROTTLED_OPTIONS = z.strictObject({
  ...DRAW_SHAPE,
  ...KEY_BY_CALL_SHAPE,
  cost: z
    .custom<Cost | ((...args: never[]) => Cost | undefined)>()
    .superRefine((cost, context) => {
      if (!isFunction(cost)) checkCost(cost, context);
    })
    .optional(),
  settle: z.custom<SettleBy<unknown>>(isFunction, A_FUNCTION).optional(),
  feedback: FEEDBACK.optional(),
  concurrency: wholeNumber(1, 1_000_000, "calls").optional(),
  onSlot: z.custom<OnSlot>(isFunction, A_FUNCTION).optional(),
});
const { settle, feedback, onSlot } = THROTTLED_OPTIONS.shape;
const RUN_OPTIONS = z.strictObject({ ...DRAW_SHAPE, settle, feedback, onSlot });

const FETCH_OPTIONS = THROTTLED_OPTIONS.omit({ concurrency: true }).extend({
  tries: wholeNumber(1, 100, "tries").optional(),
  fetch: z
    .custom<FetchFunction>(isFunction, { error: "give a function such as undici's fetch" })
    .optional(),
  retry: z
    .custom<RetryBy>((value) => value === false || isFunction(value), {
      error: "give false, or a function of the response",
    })
    .optional(),
});

export const THROTTLED_OPTION_NAMES: readonly string[] = Object.keys(THROTTLED_OPTIONS.shape);

/** What `draw` takes. */
export function readDrawOptions(where: string, given: unknown): DrawCall {
  return oneKey(where, readOptions(where, DRAW_OPTIONS, given));
}

/** What `tryDraw` takes. */
export function readTryOptions(where: string, given: unknown): TryCall {
  const key = plainKeyOf(given);
  return key === undefined ? oneKey(where, readOptions(where, TRY_OPTIONS, given)) : { key };
}

/** What `throttled` takes. */
export function readCallOptions(where: string, given: unknown): CallOptionsRead {
  return oneKeyOrFunction(where, readOptions(where, THROTTLED_OPTIONS, given));
}

/** What `run` takes. */
export function readRunOptions(where: string, given: unknown): OptionsOfCall<CallOptionsRead> {
  return oneKey(where, readOptions(where, RUN_OPTIONS, given));
}

/** What `.with` of a throttled function takes: it replaces what was given before, except where it is undefined. */
export function readOverrides(where: string, given: unknown): Partial<CallOptionsRead> {
  return overriding(readDrawOptions(where, given));
}

/** What `fetch` is given by its `with`. */
export interface FetchCallOptions extends CallOptionsRead {
  readonly tries?: number | undefined;
  readonly fetch?: FetchFunction | undefined;
  readonly retry?: RetryBy | undefined;
}

/** The same for `fetch.with`. */
export function readFetchOverrides(where: string, given: unknown): FetchCallOptions {
  return overriding(oneKeyOrFunction(where, readOptions(where, FETCH_OPTIONS, given)));
}

/** What is put over other options: a key takes the place of a function of keys, and the other way round. */
function overriding<T extends CallOptionsRead>(read: T): T {
  const entries = Object.entries(read).filter(([, value]) => value !== undefined);
  const isKeyed = read.key !== undefined || read.keys !== undefined;
  const none = isKeyed ? { key: undefined, keys: undefined } : {};
  return { ...none, ...Object.fromEntries(entries) } as T;
}

/** As `oneKey`; either may be a function of the arguments. */
function oneKeyOrFunction<Read extends { readonly key?: unknown; readonly keys?: unknown }>(
  where: string,
  read: Read,
): KeyRead<Read> & CallOptionsRead {
  const { key, keys } = read;
  const isFunctionAlone = typeof keys === "function" && key === undefined;
  const own = isFunctionAlone ? read : oneKey(where, read as Read & { readonly keys?: string });
  return own as KeyRead<Read> & CallOptionsRead;
}

/** The text of the key, if these are plain options of a plain key alone: the full check would cost more than the rest of a try. */
function plainKeyOf(given: unknown): string | undefined {
  if (typeof given !== "object" || given === null || "cost" in given) return undefined;
  if (Object.getPrototypeOf(given) !== Object.prototype) return undefined;
  let only: string | undefined;
  for (const name in given) {
    if (only !== undefined || (name !== "key" && name !== "keys")) return undefined;
    only = name;
  }
  return only === "keys"
    ? plainTextOfKeys((given as { keys?: unknown }).keys)
    : plainTextOfKey((given as { key?: unknown }).key);
}

function isFunction(value: unknown): boolean {
  return typeof value === "function";
}
