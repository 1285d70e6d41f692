/**
 * The options of calls. Readers here validate them once, where a user passes them.
 *
 * Each option acts in one place: `maxWaitMs` and `signal` in `waiting/wait.ts`, `priority` in `waiting/line.ts`, `key` in
 * `core/policy/per-key.ts`, `cost` in `costs.ts`, `settle` in `slot/slot.ts`, `feedback` in `feedback/feedback.ts`.
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

/** How one call draws. With a key, the limits of the key apply in addition to the shared ones. */
export interface DrawOptions extends KeyGiven {
  /** The cost: a number of calls, or amounts by unit, such as `{ tokens: 800 }`. Defaults to 1 call and 0 of other units. */
  readonly cost?: Cost | undefined;
  /** Urgent calls go first, across all replicas. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /** The longest wait for a slot, from 1 ms. After it, the call rejects with `WaitTooLongError`. Defaults to no limit. */
  readonly maxWaitMs?: number | undefined;
  /** Ends the wait. The call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of `tryDraw`, which never waits. */
export type TryOptions = Pick<DrawOptions, "key" | "keys" | "cost">;

/** Validated options of a draw, with the encoded key. */
export type DrawCall = KeyRead<DrawOptions>;

/** Validated options of a try, with the encoded key. */
export type TryCall = KeyRead<TryOptions>;

/** A call got its slot. */
export interface SlotEvent {
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
  readonly priority: Priority;
  /** The wait for the slot, in ms: `37.2`. */
  readonly waitedMs: number;
  /** The slot on the Redis clock, in ms since 1970: `1790000000123.456`. */
  readonly atMs: number;
  /** The limit that the call waited for: `"100/s"`. Undefined for waits below one millisecond. */
  readonly limitedBy: string | undefined;
}

/** Called with the slot of each call, just before the call starts. Its errors are logged. */
export type OnSlot = (slot: SlotEvent) => unknown;

/** A draw with what wrappers add to it. */
export interface ObservedDrawCall extends DrawCall {
  readonly onSlot?: OnSlot | undefined;
  /** Receives the end of the wait. */
  readonly trace?: WaitTrace | undefined;
  /** The deadline of `maxWaitMs` on `performance.now()`. {@link withDeadline} sets it. */
  readonly untilMs?: number | undefined;
}

/** Turns `maxWaitMs` into a deadline. A call that waits in several places keeps its first deadline. */
export function withDeadline<Call extends Pick<ObservedDrawCall, "maxWaitMs" | "untilMs">>(
  call: Call,
): Call {
  const { maxWaitMs, untilMs } = call;
  if (maxWaitMs === undefined || untilMs !== undefined) return call;
  return { ...call, untilMs: performance.now() + maxWaitMs };
}

/** How the calls of a wrapped function draw. Key and cost may be functions of the arguments. */
export interface CallOptions<Args extends unknown[] = never[], Result = never> extends Omit<
  DrawOptions,
  "key" | "keys" | "cost"
> {
  readonly key?: Key | ((...args: Args) => Key | undefined) | undefined;
  readonly keys?: NamedKeys | ((...args: Args) => NamedKeys | undefined) | undefined;
  readonly cost?: Cost | ((...args: Args) => Cost | undefined) | undefined;
  /** Reads the actual cost from the result. Omitted and undefined units stay as estimated. */
  readonly settle?: SettleBy<Result> | undefined;
  /** Reads a cooldown from results and errors, instead of the bucket's own `feedback`. */
  readonly feedback?: ReadFeedback | undefined;
  /** The most calls of this process that wait for a slot or run at once. Defaults to no bound. */
  readonly concurrency?: number | undefined;
  /** Called with the slot of each call, just before the call starts. */
  readonly onSlot?: OnSlot | undefined;
}

/** How one call draws, and how its result is read. */
export type RunOptions<Result = never> = DrawOptions &
  Pick<CallOptions<[], ResultOf<Result>>, "settle" | "feedback" | "onSlot">;

/** The result of a call. For a generator, its return value. */
export type ResultOf<Returned> =
  Awaited<Returned> extends
    | Generator<unknown, infer End, never>
    | AsyncGenerator<unknown, infer End, never>
    ? End
    : Awaited<Returned>;

/** Validated options of calls. Functions of the arguments stay functions. */
export interface CallOptionsRead extends Omit<CallOptions, "key" | "keys"> {
  /** The encoded key. */
  readonly key?: string | ByCall | undefined;
  readonly keys?: ByCall | undefined;
}

/** The options of one call, with the results of the functions of key and cost. */
export type OptionsOfCall<Given> = Omit<Given, "key" | "keys" | "cost"> & TryCall;

/**
 * Returns a function that computes the options of each call from its arguments. If neither key nor cost depends on them,
 * all calls share one object. The function throws {@link InvalidOptionError} for an invalid key or cost.
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

  // Both properties exist from the start: copies of an object whose shape grows are much slower.
  const common = { ...others, key: undefined, cost: undefined };
  return (args) => {
    const ownCost = answerOf({ where, option: "cost" }, cost, args);
    const read: { key?: unknown; keys?: unknown; cost?: unknown } = {};
    // Only results of functions still need validation. A key alone is quicker to check.
    if (typeof key === "function") read.key = answerOf({ where, option: "key" }, key, args);
    if (keys !== undefined) read.keys = answerOf({ where, option: "keys" }, keys, args);
    if (ownCost !== undefined) read.cost = ownCost;
    const own = readTryOptions(where, read);
    const ownKey = typeof key === "string" ? key : own.key;
    return { ...common, key: ownKey, cost: own.cost } as OptionsOfCall<Given>;
  };
}

/** Calls `of` with the arguments if it is a function. Else returns it. */
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

/** The actual cost of a call by unit. Units that are undefined or null stay as estimated. */
export type SettledCost = Readonly<Record<string, number | null | undefined>>;

/** Reads the actual cost from a result. Omitted units, or all for undefined, stay as estimated. */
export type SettleBy<Result> = {
  // A method, since its parameter may be narrower than `Result`.
  by(result: Result): KnownCost | Promise<KnownCost>;
}["by"];

type KnownCost = SettledCost | null | undefined;

export type AnyFunction = (...args: never[]) => unknown;

/** The call options of a function of type `F`. */
export type ThrottledOptions<F extends AnyFunction> = CallOptions<
  Parameters<F>,
  ResultOf<ReturnType<F>>
>;

export type FetchFunction = typeof globalThis.fetch;

/**
 * How requests draw and are sent. `key` and `cost` may be functions of the arguments of `fetch`: `(input, init) => …`.
 * `settle` receives a copy of the response. The body of the copy arrives while the caller reads the response.
 */
export interface FetchOptions extends Omit<ThrottledOptions<FetchFunction>, "concurrency"> {
  /** The most times that a request is sent, from 1. Defaults to 3. */
  readonly tries?: number | undefined;
  /** Sends the requests, for example undici's `fetch` with your dispatcher. Defaults to `globalThis.fetch`. */
  readonly fetch?:
    | FetchFunction
    | ((...args: Parameters<FetchFunction>) => Promise<Response>)
    | undefined;
  /**
   * Returns true to send the request again after a response, or undefined to let the bucket decide. Called only if the
   * request can be sent again and has tries left. `false` never sends it again.
   */
  readonly retry?: RetryBy | undefined;
}

/** Decides whether a request is sent again. */
export type RetryBy = false | ((response: Response, context: RetryContext) => boolean | undefined);

/** What `retry` receives beside the response. */
export interface RetryContext {
  /** What the response means, by your `feedback` if you give one. */
  readonly answer: Answer;
  /** How many times the request was sent: `1`. */
  readonly tries: number;
  /** `"POST"`. */
  readonly method: string;
}

/** The `fetch` of a bucket. `with` returns a `fetch` with other options. */
export type ThrottledFetch = FetchFunction & {
  with(options: FetchOptions): ThrottledFetch;
};

/** How a bucket reacts to the responses of its downstream. */
export interface FeedbackOptions {
  /** Reads cooldowns from results and errors. By default, 429 and 503 responses cause them. */
  readonly feedback?: ReadFeedback | undefined;
  /** The longest cooldown that a response can cause. Defaults to 900,000 ms. */
  readonly maxCooldownMs?: number | undefined;
  /** Cuts the rate after each refusal, and lets it grow back. Defaults to off. */
  readonly adaptive?: AdaptiveOptions | undefined;
  /** `"headers"` slows calls down before a quota is used up, by the quota headers of responses. Defaults to off. */
  readonly pace?: "headers" | undefined;
}

export interface AdaptiveOptions {
  /** The part of the rate that always remains, such as 0.1. */
  readonly floor: number;
  /** The time in which the rate grows back from zero to the whole, such as 60,000 ms. */
  readonly recoverMs: number;
}

const PART = { error: "give a part of the rate, from 0.01 to 1" };

const FEEDBACK: z.ZodType<ReadFeedback> = z.custom<ReadFeedback>(
  (value) => value === false || typeof value === "function",
  { error: "give false, or a function of what calls return and throw" },
);

/** @internal */
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

export function readDrawOptions(where: string, given: unknown): DrawCall {
  return oneKey(where, readOptions(where, DRAW_OPTIONS, given));
}

export function readTryOptions(where: string, given: unknown): TryCall {
  const key = plainKeyOf(given);
  return key === undefined ? oneKey(where, readOptions(where, TRY_OPTIONS, given)) : { key };
}

/** Reads the options of `throttled`. */
export function readCallOptions(where: string, given: unknown): CallOptionsRead {
  return oneKeyOrFunction(where, readOptions(where, THROTTLED_OPTIONS, given));
}

export function readRunOptions(where: string, given: unknown): OptionsOfCall<CallOptionsRead> {
  return oneKey(where, readOptions(where, RUN_OPTIONS, given));
}

/** Reads the options of `.with` of a throttled function. They replace earlier ones, except where they are undefined. */
export function readOverrides(where: string, given: unknown): Partial<CallOptionsRead> {
  return overriding(readDrawOptions(where, given));
}

/** Validated options of `fetch`. */
export interface FetchCallOptions extends CallOptionsRead {
  readonly tries?: number | undefined;
  readonly fetch?: FetchFunction | undefined;
  readonly retry?: RetryBy | undefined;
}

/** Reads the options of `fetch.with`. */
export function readFetchOverrides(where: string, given: unknown): FetchCallOptions {
  return overriding(oneKeyOrFunction(where, readOptions(where, FETCH_OPTIONS, given)));
}

/** Returns the defined options. A key also replaces a function of keys, and the other way round. */
function overriding<T extends CallOptionsRead>(read: T): T {
  const entries = Object.entries(read).filter(([, value]) => value !== undefined);
  const isKeyed = read.key !== undefined || read.keys !== undefined;
  const none = isKeyed ? { key: undefined, keys: undefined } : {};
  return { ...none, ...Object.fromEntries(entries) } as T;
}

/** As `oneKey`, but key and keys may be functions of the arguments. */
function oneKeyOrFunction<Read extends { readonly key?: unknown; readonly keys?: unknown }>(
  where: string,
  read: Read,
): KeyRead<Read> & CallOptionsRead {
  const { key, keys } = read;
  const isFunctionAlone = typeof keys === "function" && key === undefined;
  const own = isFunctionAlone ? read : oneKey(where, read as Read & { readonly keys?: string });
  return own as KeyRead<Read> & CallOptionsRead;
}

/** Returns the encoded key if a plain key is the only option. Full validation would take longer than the rest of a try. */
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
