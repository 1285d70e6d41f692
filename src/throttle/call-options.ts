/**
 * The options of calls. The `read…` functions here validate each option once, when a user passes it.
 *
 * One file implements each option: `maxWaitMs` and `signal` in `waiting/wait.ts`, `priority` in `waiting/line.ts`,
 * `key` in `core/policy/per-key.ts`, `cost` in `costs.ts`, `settle` in `slot/slot.ts`, `feedback` in
 * `feedback/feedback.ts`.
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

/** The options of one draw. With a key, the limits of the key apply in addition to the shared limits. */
export interface DrawOptions extends KeyGiven {
  /** The cost: a number of calls, or amounts by unit, such as `{ tokens: 800 }`. Defaults to 1 call and 0 of other units. */
  readonly cost?: Cost | undefined;
  /** Calls with a higher priority start first, across all replicas. Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /**
   * The longest wait for a slot, from 1 ms. After that time, the call rejects with `WaitTooLongError`. Defaults to no
   * limit.
   */
  readonly maxWaitMs?: number | undefined;
  /** Cancels the wait when it aborts. The call then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Whether the caller settles the cost after the call. Budgets then only reserve the cost, and take it back if nothing
   * is settled within their `reserveMs`. Calls with a `settle` function always do this. Defaults to false.
   */
  readonly settles?: boolean | undefined;
}

/** The options of `tryDraw`. It never waits, so it has no options for waiting. */
export type TryOptions = Pick<DrawOptions, "key" | "keys" | "cost">;

/** Validated options of a draw. The key is encoded. */
export type DrawCall = KeyRead<DrawOptions>;

/** Validated options of `tryDraw`. The key is encoded. */
export type TryCall = KeyRead<TryOptions>;

/** Reports that a call got its slot. */
export interface SlotEvent {
  readonly key: Key | undefined;
  /** The named keys of the call, if the call has several keys. */
  readonly keys: NamedKeys | undefined;
  readonly priority: Priority;
  /** How long the call waited for the slot, in ms: `37.2`. */
  readonly waitedMs: number;
  /** The slot's time on the Redis clock, in ms since 1970: `1790000000123.456`. */
  readonly atMs: number;
  /** The limit that the call waited for: `"100/s"`. Undefined for waits below one millisecond. */
  readonly limitedBy: string | undefined;
  /** In a pool, the name of the member that the slot is for. */
  readonly member?: string | undefined;
}

/** Called with the slot of each call, just before the call starts. If it throws, the error is only logged. */
export type OnSlot = (slot: SlotEvent) => unknown;

/** The options of a draw, plus those that the wrappers of calls add. */
export interface ObservedDrawCall extends DrawCall {
  /** The only member of a pool that the call may use. */
  readonly member?: string | undefined;
  readonly onSlot?: OnSlot | undefined;
  /** The trace of this wait. It is notified when the wait ends. */
  readonly trace?: WaitTrace | undefined;
  /** The time at which `maxWaitMs` is over, on `performance.now()`. {@link withDeadline} sets it. */
  readonly untilMs?: number | undefined;
}

/**
 * Turns `maxWaitMs` into a deadline. A call that waits several times, for example for a concurrency slot and then for
 * its draw, keeps its first deadline.
 */
export function withDeadline<Call extends Pick<ObservedDrawCall, "maxWaitMs" | "untilMs">>(
  call: Call,
): Call {
  const { maxWaitMs, untilMs } = call;
  if (maxWaitMs === undefined || untilMs !== undefined) return call;
  return { ...call, untilMs: performance.now() + maxWaitMs };
}

/** Returns the options of a draw for a call that has waited before. All waits together last for `maxWaitMs` at most. */
export function withLessWait<Options extends { readonly maxWaitMs?: number | undefined }>(
  options: Options,
  waitedMs: number,
): Options {
  const { maxWaitMs } = options;
  if (maxWaitMs === undefined) return options;
  return { ...options, maxWaitMs: Math.max(1, Math.floor(maxWaitMs - waitedMs)) };
}

/** The options of a wrapped function's calls. `key`, `keys` and `cost` may be functions of the call's arguments. */
export interface CallOptions<Args extends unknown[] = never[], Result = never> extends Omit<
  DrawOptions,
  "key" | "keys" | "cost"
> {
  readonly key?: Key | ((...args: Args) => Key | undefined) | undefined;
  readonly keys?: NamedKeys | ((...args: Args) => NamedKeys | undefined) | undefined;
  readonly cost?: Cost | ((...args: Args) => Cost | undefined) | undefined;
  /** Reads the actual cost from the result. Omitted and undefined units keep their estimates. */
  readonly settle?: SettleBy<Result> | undefined;
  /** Reads cooldowns from results and errors, in place of the bucket's `feedback`. */
  readonly feedback?: ReadFeedback | undefined;
  /** The most calls of this process that wait for a slot or run at once. Defaults to no bound. */
  readonly concurrency?: number | undefined;
  /** Called with the slot of each call, just before the call starts. */
  readonly onSlot?: OnSlot | undefined;
}

/** The options of `run`: how the call draws its slot, and how its result is read. */
export type RunOptions<Result = never> = DrawOptions &
  Pick<CallOptions<[], ResultOf<Result>>, "settle" | "feedback" | "onSlot">;

/** The result of a call. If the call returns a generator, this is the generator's return value. */
export type ResultOf<Returned> =
  Awaited<Returned> extends
    | Generator<unknown, infer End, never>
    | AsyncGenerator<unknown, infer End, never>
    ? End
    : Awaited<Returned>;

/** Validated options of a wrapped function. Options that are functions of the arguments are still functions. */
export interface CallOptionsRead extends Omit<CallOptions, "key" | "keys"> {
  /** The encoded key, or a function that returns the key of each call. */
  readonly key?: string | ByCall | undefined;
  readonly keys?: ByCall | undefined;
}

/** The options of one call. If `key`, `keys` or `cost` was a function, this contains the function's result. */
export type OptionsOfCall<Given> = Omit<Given, "key" | "keys" | "cost"> & TryCall;

/**
 * Returns a function that computes the options of each call from its arguments. If neither key nor cost depends on the
 * arguments, all calls share one options object. The function throws {@link InvalidOptionError} for an invalid key or
 * cost.
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
    // Constants were validated before, so only function results need validation. A key alone is quicker to check.
    if (typeof key === "function") read.key = answerOf({ where, option: "key" }, key, args);
    if (keys !== undefined) read.keys = answerOf({ where, option: "keys" }, keys, args);
    if (ownCost !== undefined) read.cost = ownCost;
    const own = readTryOptions(where, read);
    const ownKey = typeof key === "string" ? key : own.key;
    return { ...common, key: ownKey, cost: own.cost } as OptionsOfCall<Given>;
  };
}

/** Calls `of` with the arguments if `of` is a function. Otherwise returns `of`. */
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

/** The actual cost of a call by unit. Units that are undefined or null keep their estimates. */
export type SettledCost = Readonly<Record<string, number | null | undefined>>;

/**
 * Reads the actual cost from a result. Omitted units keep their estimates. If the function returns undefined, all units
 * do.
 */
export type SettleBy<Result> = {
  // TypeScript checks the parameters of methods less strictly, so `by` may accept a narrower type than `Result`.
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
 * The options of a bucket's `fetch`. `key` and `cost` may be functions of the arguments of `fetch`:
 * `(input, init) => …`. `settle` receives a copy of the response. The body of the copy arrives while the caller reads
 * the response.
 */
export interface FetchOptions extends Omit<ThrottledOptions<FetchFunction>, "concurrency"> {
  /** The most times that a request is sent, from 1. Defaults to 3. */
  readonly tries?: number | undefined;
  /**
   * The function that sends the requests, for example undici's `fetch` with your dispatcher. Defaults to
   * `globalThis.fetch`.
   */
  readonly fetch?:
    | FetchFunction
    | ((...args: Parameters<FetchFunction>) => Promise<Response>)
    | undefined;
  /**
   * Returns true to send the request again after a response, or undefined to let the bucket decide. Called only if the
   * request can be sent again and has tries left. With `false`, a request is never sent again.
   */
  readonly retry?: RetryBy | undefined;
}

/** Decides whether a request is sent again. */
export type RetryBy = false | ((response: Response, context: RetryContext) => boolean | undefined);

/** The second argument of `retry`, after the response. */
export interface RetryContext {
  /** The interpretation of the response. If you set `feedback`, this is its interpretation. */
  readonly answer: Answer;
  /** The number of times that the request was sent so far: `1`. */
  readonly tries: number;
  /** The HTTP method in upper case: `"POST"`. */
  readonly method: string;
}

/** The `fetch` of a bucket. Its method `with` returns the same `fetch` with other options. */
export type ThrottledFetch = FetchFunction & {
  with(options: FetchOptions): ThrottledFetch;
};

/** How a bucket reacts to the responses of its downstream. */
export interface FeedbackOptions {
  /** Reads cooldowns from results and errors. By default, refusals such as 429 and 503 responses cause cooldowns. */
  readonly feedback?: ReadFeedback | undefined;
  /** The longest cooldown that a response can cause. Defaults to 900,000 ms. */
  readonly maxCooldownMs?: number | undefined;
  /** Cuts the rate after each refusal, and lets the rate grow back afterwards. Defaults to off. */
  readonly adaptive?: AdaptiveOptions | undefined;
  /**
   * With `"headers"`, the bucket reads the quota headers of responses and slows calls down before a quota is used up.
   * Defaults to off.
   */
  readonly pace?: "headers" | undefined;
}

export interface AdaptiveOptions {
  /** The fraction of the rate that always remains, such as 0.1. */
  readonly floor: number;
  /** The time in which the rate grows back from zero to the full rate, in ms. For example 60,000. */
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
  settles: z.boolean({ error: "give true or false" }).optional(),
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

/** Reads the options of `.with` of a throttled function. Defined options replace the earlier ones. */
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

/** Returns the defined options. Setting `key` also removes an earlier `keys`, and the other way round. */
function overriding<T extends CallOptionsRead>(read: T): T {
  const entries = Object.entries(read).filter(([, value]) => value !== undefined);
  const isKeyed = read.key !== undefined || read.keys !== undefined;
  const none = isKeyed ? { key: undefined, keys: undefined } : {};
  return { ...none, ...Object.fromEntries(entries) } as T;
}

/** Works like `oneKey`, but `key` and `keys` may also be functions of the arguments. */
function oneKeyOrFunction<Read extends { readonly key?: unknown; readonly keys?: unknown }>(
  where: string,
  read: Read,
): KeyRead<Read> & CallOptionsRead {
  const { key, keys } = read;
  const isFunctionAlone = typeof keys === "function" && key === undefined;
  const own = isFunctionAlone ? read : oneKey(where, read as Read & { readonly keys?: string });
  return own as KeyRead<Read> & CallOptionsRead;
}

/**
 * Returns the encoded key if a plain key is the only option. This shortcut exists because full validation would take
 * longer than the rest of a `tryDraw`.
 */
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
