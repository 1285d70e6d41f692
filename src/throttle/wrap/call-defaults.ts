import * as z from "zod";
import { reasonOf } from "../../core/describe.ts";
import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import { toRatio } from "../../core/policy/ratios.ts";
import type { RatioSample, Store } from "../../core/store.ts";
import {
  COST,
  readTryOptions,
  type CallOptions,
  type OptionsOfCall,
  type SettledCost,
} from "../call-options.ts";
import type { Cost } from "../costs.ts";
import type { ReportedOutcome } from "../feedback/feedback.ts";
import type { KeyedSlot, Slot } from "../slot/slot.ts";

/** A call as the bucket's `cost` function receives it. */
export interface SentCall {
  /**
   * The data of the call: the arguments of the throttled function or of `fetch`, or the data of a job. Empty for `run`.
   */
  readonly args: readonly unknown[];
  /**
   * The path of the called method: `"chat.completions.create"`. Undefined unless the client comes from
   * `throttledClient()`.
   */
  readonly method?: string | undefined;
  readonly key: Key | undefined;
  /** The named keys of the call, if the call has several keys. */
  readonly keys: NamedKeys | undefined;
  /**
   * Returns the mean of each ratio that calls of all replicas reported with {@link AnsweredCall.learn}, by name:
   * `0.31`. Only the first call in a process waits for the store.
   */
  readonly learned: () => Promise<ReadonlyMap<string, number>>;
}

/** A finished call. The bucket's `settle` function receives it as its second argument, after the call's result. */
export interface AnsweredCall extends SentCall {
  /** The estimated cost that was drawn for the call. */
  readonly cost: Cost | undefined;
  /** In a pool, the name of the member that the call used. */
  readonly member?: string | undefined;
  /**
   * Reports the fraction of its estimate that a call really used, such as 0.31, under a name of up to 256 characters.
   * All replicas share the mean for each name. The first hundred reports count equally; after that, each new report
   * counts for a hundredth. Only the 64 most recently used names are stored.
   */
  readonly learn: (name: string, ratio: number) => void;
  /**
   * Books the true cost later, if only another call shows it. For example, a response is created in the background and
   * a later request reads it. Only the first cost that is booked or settled counts. Undefined before the call has its
   * slot.
   */
  readonly book?: ((cost: SettledCost) => void) | undefined;
}

type MaybeCost = Cost | undefined;
type KnownCost = SettledCost | null | undefined;

/** Returns the estimated cost of a call of the bucket. Undefined means a cost of one call. */
export type CostOfCall = (call: SentCall) => MaybeCost | Promise<MaybeCost>;

/** Reads the true cost of a call of the bucket from the call's result. */
export type SettleOfCall = (result: unknown, call: AnsweredCall) => KnownCost | Promise<KnownCost>;

/** The `cost` and `settle` options for calls that do not set their own. */
export interface CallDefaultsOptions {
  /**
   * The cost of each call that sets no `cost`, or a function that computes it from the call: `({ args }) => …`. It
   * applies to throttled functions and clients, to `fetch` and `run`, and to the jobs of the bucket's queues. It does
   * not apply to `draw` and `tryDraw`. Defaults to 1 call.
   */
  readonly cost?: Cost | CostOfCall | undefined;
  /**
   * Reads the true cost from the result of each call that sets no `settle`. Omitted and undefined units keep their
   * estimates. For `fetch`, the result is a copy of the response. For a generator function, the result is the generator
   * itself, before its first step.
   */
  readonly settle?: SettleOfCall | undefined;
}

const isFunction = (value: unknown): boolean => typeof value === "function";

/**
 * The schema of `CallDefaultsOptions`, which are options of `bucket()`.
 *
 * @internal
 */
export const CALL_DEFAULTS_SHAPE: {
  cost: z.ZodOptional<z.ZodType<Cost | CostOfCall>>;
  settle: z.ZodOptional<z.ZodType<SettleOfCall>>;
} = {
  cost: z
    .custom<Cost | CostOfCall>()
    .superRefine((cost, context) => {
      if (isFunction(cost)) return;
      for (const { path, message } of COST.safeParse(cost).error?.issues ?? []) {
        context.addIssue({ code: "custom", path, message });
      }
    })
    .optional(),
  settle: z
    .custom<SettleOfCall>(isFunction, { error: "give a function of what a call returns" })
    .optional(),
};

/** The default options of a bucket's calls, and the ratios that the bucket has learned from calls. */
export interface CallDefaults extends CallDefaultsOptions {
  readonly learned: Learned;
}

type Options = OptionsOfCall<CallOptions>;

/** The options of a call, completed with the defaults of the call's bucket. */
export type FilledOptions<Given extends Options> = Given & {
  /**
   * True if `settle` is the bucket's default. For a generator, this function runs before the generator's first step.
   */
  readonly settlesAhead?: boolean | undefined;
  /** Called with the call's slot. */
  readonly onDrawn?: ((slot: KeyedSlot) => void) | undefined;
};

/** The path of the client method for each call through `throttledClient()`, by the `this` of the call. */
const methods = new WeakMap<object, string>();

export function noteMethod(self: object, method: string | undefined): void {
  if (method !== undefined) methods.set(self, method);
}

export function methodNoted(self: unknown): string | undefined {
  return typeof self === "object" && self !== null ? methods.get(self) : undefined;
}

/** The data that a call sends, and the client method that sends it. */
type Sent = Pick<SentCall, "args" | "method">;

/** Adds the bucket's default `cost` and `settle` to the options of a call that sets none. */
export function withDefaults<Given extends Options>(
  calls: CallDefaults | undefined,
  where: string,
  options: Given,
  sent: Sent,
): FilledOptions<Given> | Promise<FilledOptions<Given>> {
  return calls === undefined ? options : fill(calls, where, options, sent);
}

async function fill<Given extends Options>(
  { cost: costOf, settle: settleBy, learned }: CallDefaults,
  where: string,
  options: Given,
  sent: Sent,
): Promise<FilledOptions<Given>> {
  const call = sentCall(learned, options.key, sent);
  const cost = options.cost ?? (await costAnswered(where, costOf, call));
  if (options.settle !== undefined || settleBy === undefined)
    return Object.assign({}, options, { cost });
  const learn = (name: string, ratio: number): void => learned.learn(name, ratio);
  let slot: KeyedSlot | undefined;
  const onDrawn = (drawn: KeyedSlot): void => void (slot = drawn);
  // If the cost cannot be booked, for example after a policy change, the estimate stays.
  const book = (booked: SettledCost): void => void slot?.settle(booked).catch(() => {});
  const answered = { cost, learn, book, ...call };
  const settle = (result: unknown): KnownCost | Promise<KnownCost> =>
    settleBy(result, slot?.member === undefined ? answered : { ...answered, member: slot.member });
  return Object.assign({}, options, { cost, settle, settlesAhead: true, onDrawn });
}

function sentCall(learned: Learned, key: string | undefined, sent: Sent): SentCall {
  return { ...sent, learned: () => learned.means(), ...namedOf(key) };
}

/**
 * Returns the default cost of a job that sets no cost, from the job's data. Rejects with the error of the bucket's
 * `cost` function.
 */
export function costOfJob(
  { cost, learned }: CallDefaults,
  where: string,
  job: { readonly data: unknown; readonly key: string | undefined },
): Promise<MaybeCost> {
  return costAnswered(where, cost, sentCall(learned, job.key, { args: [job.data] }));
}

/** Returns the default cost of a call. Validates the result of a `cost` function; constants were validated before. */
async function costAnswered(
  where: string,
  costOf: CallDefaultsOptions["cost"],
  call: SentCall,
): Promise<MaybeCost> {
  if (typeof costOf !== "function") return costOf;
  const cost = await costOf(call);
  return cost === undefined ? undefined : readTryOptions(where, { cost }).cost;
}

/**
 * Returns the true cost of a refused call: 0 of each estimated unit except calls, because most downstreams count a
 * refused call. Undefined if the call was not refused, or if only calls were estimated. Also undefined after a 503 or a
 * 403: the downstream may have begun the work, so the estimate stays.
 */
export function refusedCost(
  { heard, answer }: ReportedOutcome,
  cost: Cost | undefined,
): SettledCost | undefined {
  return answer.refused && isUnused(heard.status) ? noneOf(cost) : undefined;
}

/** Returns 0 of each estimated unit except calls. Undefined if only calls were estimated. */
function noneOf(cost: Cost | undefined): SettledCost | undefined {
  if (typeof cost !== "object") return undefined;
  const units = Object.keys(cost).filter((unit) => unit !== "calls");
  return units.length === 0 ? undefined : Object.fromEntries(units.map((unit) => [unit, 0]));
}

function isUnused(status: number | undefined): boolean {
  return status !== 503 && status !== 403;
}

/** Returns the estimated units that a refused call did not use. Never rejects. */
export async function settleRefused(
  outcome: ReportedOutcome,
  slot: Slot,
  cost: Cost | undefined,
): Promise<void> {
  await settleAs(slot, refusedCost(outcome, cost));
}

/** Returns the estimated units of a call that its downstream refused, or that another member may get. Never rejects. */
export async function settleUnused(
  outcome: ReportedOutcome,
  slot: Slot,
  cost: Cost | undefined,
): Promise<void> {
  if (outcome.takeover === "safe") await settleAs(slot, noneOf(cost));
  else await settleRefused(outcome, slot, cost);
}

async function settleAs(slot: Slot, cost: SettledCost | undefined): Promise<void> {
  // Ignores errors, because a newer policy may no longer count these units.
  if (cost !== undefined) await slot.settle(cost).catch(() => {});
}

/** The ratios of used to estimated cost that the calls of a bucket have reported, over all replicas. */
interface Learned {
  /** Returns the mean of used ÷ estimated for each name. The first use waits for the store. Never rejects. */
  means(): Promise<ReadonlyMap<string, number>>;
  /** Adds the ratio of one call in the background. Ignores ratios that are negative or not a number. */
  learn(name: string, ratio: number): void;
  /** Resolves when the store has received all samples, or has failed to receive them. */
  settled(): Promise<void>;
}

/** The age of a process's means after which the process reads them again. */
const STALE_MS = 10_000;
/** The most samples that wait to be sent to the store. Further samples are dropped, because a mean needs only a few. */
const MOST_WAITING = 1_000;
const LONGEST_NAME = 256;

export function createLearned(
  store: Pick<Store, "learn">,
  bucket: string,
  logger: Logger,
): Learned {
  let means: ReadonlyMap<string, number> = new Map();
  let readAtMs = -Infinity;
  let waiting: RatioSample[] = [];
  let asking: Promise<void> | undefined;

  async function ask(): Promise<void> {
    do {
      const seen = waiting;
      waiting = [];
      try {
        means = inUnits(await store.learn({ bucket, seen }));
      } catch (error) {
        const problem = "Could not learn from what calls took; estimates stay as they are.";
        logger.warn({ bucket, reason: reasonOf(error) }, problem);
        waiting = [];
      }
      readAtMs = performance.now();
    } while (waiting.length > 0);
  }

  function askOnce(): Promise<void> {
    return (asking ??= ask().finally(() => (asking = undefined)));
  }

  return {
    async means() {
      const isFirst = readAtMs === -Infinity;
      if (performance.now() >= readAtMs + STALE_MS) void askOnce();
      if (isFirst) await askOnce();
      return means;
    },
    learn(name, ratio) {
      if (!(ratio >= 0) || name.length > LONGEST_NAME) return;
      if (waiting.length < MOST_WAITING) waiting.push({ name, ratio: toRatio(ratio) });
      void askOnce();
    },
    async settled() {
      await asking;
    },
  };
}

function inUnits(millionths: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  return new Map([...millionths].map(([name, mean]) => [name, mean / 1_000_000]));
}
