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
import type { Slot } from "../slot/slot.ts";

/** A call, as passed to the bucket's `cost` function. */
export interface SentCall {
  /**
   * What the call sends: the arguments of the throttled function or of `fetch`, or the data of a job. Empty for `run`.
   */
  readonly args: readonly unknown[];
  /** The called method of a client of `throttledClient()`, by its path: `"chat.completions.create"`. */
  readonly method?: string | undefined;
  readonly key: Key | undefined;
  /** The named keys of a call, if it has several. */
  readonly keys: NamedKeys | undefined;
  /**
   * The means of what calls reported with {@link AnsweredCall.learn}, over all replicas, by name: `0.31`. The first
   * call of a process waits for them.
   */
  readonly learned: () => Promise<ReadonlyMap<string, number>>;
}

/** A call with its result, as passed to the bucket's `settle` function. */
export interface AnsweredCall extends SentCall {
  /** The cost that was drawn for it. */
  readonly cost: Cost | undefined;
  /**
   * Reports which part of its estimate a call really used, such as 0.31, under a name of up to 256 characters. All
   * replicas share the mean: of the first hundred reports, and after that each report counts for a hundredth. 64 names
   * are kept, the most recent ones.
   */
  readonly learn: (name: string, ratio: number) => void;
  /**
   * Books the true cost when a later call shows it, for example the read of a response that was created in the
   * background. Only the first cost that is booked or settled counts. Undefined before the call has its slot.
   */
  readonly book?: ((cost: SettledCost) => void) | undefined;
}

type MaybeCost = Cost | undefined;
type KnownCost = SettledCost | null | undefined;

/** The cost of a call of the bucket; undefined stands for one call. */
export type CostOfCall = (call: SentCall) => MaybeCost | Promise<MaybeCost>;

/** The true cost of a call of the bucket, from its result. */
export type SettleOfCall = (result: unknown, call: AnsweredCall) => KnownCost | Promise<KnownCost>;

/** The `cost` and `settle` of calls that do not name their own. */
export interface CallDefaultsOptions {
  /**
   * The cost of each call that names no `cost`, or a function of what the call sends: `({ args }) => …`. It applies to
   * throttled functions and clients, to `fetch` and `run`, and to the jobs of the bucket's queues, by their data. It
   * does not apply to `draw` and `tryDraw`. Defaults to 1 call.
   */
  readonly cost?: Cost | CostOfCall | undefined;
  /**
   * Reads the true cost from the result of each call that names no `settle`. A unit that is left out, or undefined,
   * keeps its estimate. With `fetch` the result is a copy of the response. For a generator it is the generator itself,
   * before its first step.
   */
  readonly settle?: SettleOfCall | undefined;
}

const isFunction = (value: unknown): boolean => typeof value === "function";

/**
 * The schema of these options of `bucket()`.
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

/** The defaults of a bucket's calls, and what it learns from them. */
export interface CallDefaults extends CallDefaultsOptions {
  readonly learned: Learned;
}

type Options = OptionsOfCall<CallOptions>;

/** A call's options, with the defaults of its bucket. */
export type FilledOptions<Given extends Options> = Given & {
  /** True if `settle` is the bucket's, which gets a generator before its first step. */
  readonly settlesAhead?: boolean | undefined;
  /** Called with the call's slot. */
  readonly onDrawn?: ((slot: Slot) => void) | undefined;
};

/** The client method of each call of `throttledClient()`, by the `this` of the call. */
const methods = new WeakMap<object, string>();

export function noteMethod(self: object, method: string | undefined): void {
  if (method !== undefined) methods.set(self, method);
}

export function methodNoted(self: unknown): string | undefined {
  return typeof self === "object" && self !== null ? methods.get(self) : undefined;
}

/** What a call sends, and through which method of a client. */
type Sent = Pick<SentCall, "args" | "method">;

/** Adds the bucket's `cost` and `settle` to the options of a call that names none. */
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
  let slot: Slot | undefined;
  const onDrawn = (drawn: Slot): void => void (slot = drawn);
  // If the cost cannot be booked, for example under an older policy, the estimate stays.
  const book = (booked: SettledCost): void => void slot?.settle(booked).catch(() => {});
  const answered = { cost, learn, book, ...call };
  const settle = (result: unknown): KnownCost | Promise<KnownCost> => settleBy(result, answered);
  return Object.assign({}, options, { cost, settle, settlesAhead: true, onDrawn });
}

function sentCall(learned: Learned, key: string | undefined, sent: Sent): SentCall {
  return { ...sent, learned: () => learned.means(), ...namedOf(key) };
}

/** The cost of a job that names none, from its data. Rejects with the error of the bucket's function. */
export function costOfJob(
  { cost, learned }: CallDefaults,
  where: string,
  job: { readonly data: unknown; readonly key: string | undefined },
): Promise<MaybeCost> {
  return costAnswered(where, cost, sentCall(learned, job.key, { args: [job.data] }));
}

/** Checks the result of a function; constants were checked before. */
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
 * The true cost of a refused call: nothing of its estimated units, but the call itself, which most downstreams count.
 * Undefined if it was not refused, or was estimated as calls only. After a 503 or a 403 the estimate stays, because
 * work may have begun.
 */
export function refusedCost(
  { heard, answer }: ReportedOutcome,
  cost: Cost | undefined,
): SettledCost | undefined {
  if (!answer.refused || !isUnused(heard.status) || typeof cost !== "object") return undefined;
  const units = Object.keys(cost).filter((unit) => unit !== "calls");
  return units.length === 0 ? undefined : Object.fromEntries(units.map((unit) => [unit, 0]));
}

function isUnused(status: number | undefined): boolean {
  return status !== 503 && status !== 403;
}

/** Gives back what a refused call did not use. Never rejects. */
export async function settleRefused(
  outcome: ReportedOutcome,
  slot: Slot,
  cost: Cost | undefined,
): Promise<void> {
  const unused = refusedCost(outcome, cost);
  // The policy may have changed, and may no longer count these units.
  if (unused !== undefined) await slot.settle(unused).catch(() => {});
}

/** How much of their estimates the calls of a bucket used, over all replicas. */
interface Learned {
  /** The mean of used ÷ estimated for each name. The first use waits for the store; never rejects. */
  means(): Promise<ReadonlyMap<string, number>>;
  /** Adds the ratio of one call in the background. A ratio that is not a number from 0 is ignored. */
  learn(name: string, ratio: number): void;
  /** Resolves when the store has received all samples, or failed. */
  settled(): Promise<void>;
}

/** The largest age of a process's means before it reads them again. */
const STALE_MS = 10_000;
/** The most samples that wait for the store; more are dropped, because a mean needs few. */
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
