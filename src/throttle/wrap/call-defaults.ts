/** What a bucket knows of all its calls: what one costs, by what it sends, and what it truly took, by what comes back. */
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

/** A call, as the `cost` of its bucket sees it. */
export interface SentCall {
  /** What the call sends: the arguments of the throttled function, or those of `fetch`; the data of a job; none for `run`. */
  readonly args: readonly unknown[];
  /** The method of the client under `throttledClient()` that was called, by its path: `"chat.completions.create"`. */
  readonly method?: string | undefined;
  readonly key: Key | undefined;
  /** The keys of a call that has several side by side. */
  readonly keys: NamedKeys | undefined;
  /**
   * The means of what calls were seen to take by {@link AnsweredCall.learn}, over all replicas, by name: `0.31`. The
   * first call of a process waits for them.
   */
  readonly learned: () => Promise<ReadonlyMap<string, number>>;
}

/** The same once it was answered, as the `settle` of its bucket sees it. */
export interface AnsweredCall extends SentCall {
  /** What was drawn for it. */
  readonly cost: Cost | undefined;
  /**
   * Notes what a call truly took of what was estimated, such as 0.31, under a name of up to 256 characters. All replicas
   * share the mean: of the first hundred, then each counts for a hundredth. 64 names are kept, those seen last.
   */
  readonly learn: (name: string, ratio: number) => void;
  /**
   * Books what the call truly took once a later call shows it, such as the read of an answer that was made in the
   * background. Only the first cost that is booked or settled counts. Undefined before the call has its slot.
   */
  readonly book?: ((cost: SettledCost) => void) | undefined;
}

type MaybeCost = Cost | undefined;
type KnownCost = SettledCost | null | undefined;

/** What a call of the bucket costs; undefined takes one call. */
export type CostOfCall = (call: SentCall) => MaybeCost | Promise<MaybeCost>;

/** What a call of the bucket truly took, by its result. */
export type SettleOfCall = (result: unknown, call: AnsweredCall) => KnownCost | Promise<KnownCost>;

/** The `cost` and `settle` that hold for each call that names none of its own. */
export interface CallDefaultsOptions {
  /**
   * What each call takes that names no `cost` itself, or a function of what the call sends: `({ args }) => …`. It holds
   * for throttled functions and clients, `fetch` and `run`, and for the jobs of the bucket's queues, by their data; and not
   * for what you draw for by hand. Defaults to 1 call.
   */
  readonly cost?: Cost | CostOfCall | undefined;
  /**
   * Reads the true cost from the result of each call that names no `settle` itself; a unit that is left out, or
   * undefined, stays as estimated. With `fetch` the result is a copy of the response. Of a generator it is the generator
   * itself, before its first step.
   */
  readonly settle?: SettleOfCall | undefined;
}

const isFunction = (value: unknown): boolean => typeof value === "function";

/**
 * The part of the options of `bucket()` that is about these.
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

/** What a bucket knows of its calls, and learns. */
export interface CallDefaults extends CallDefaultsOptions {
  readonly learned: Learned;
}

type Options = OptionsOfCall<CallOptions>;

/** A call's options with what its bucket adds. */
export type FilledOptions<Given extends Options> = Given & {
  /** Whether `settle` is the bucket's, which gets a generator before its first step. */
  readonly settlesAhead?: boolean | undefined;
  /** Is called with the slot on which the call leaves. */
  readonly onDrawn?: ((slot: Slot) => void) | undefined;
};

/** The client method of each call under `throttledClient()`, by the `this` of the call. */
const methods = new WeakMap<object, string>();

export function noteMethod(self: object, method: string | undefined): void {
  if (method !== undefined) methods.set(self, method);
}

export function methodNoted(self: unknown): string | undefined {
  return typeof self === "object" && self !== null ? methods.get(self) : undefined;
}

/** What a call sends, and through which method of a client. */
type Sent = Pick<SentCall, "args" | "method">;

/** The options of a call, with the bucket's own `cost` and `settle` where the call names none. */
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
  // A cost that cannot be booked, as under a policy that is no longer in force, leaves the estimate.
  const book = (booked: SettledCost): void => void slot?.settle(booked).catch(() => {});
  const answered = { cost, learn, book, ...call };
  const settle = (result: unknown): KnownCost | Promise<KnownCost> => settleBy(result, answered);
  return Object.assign({}, options, { cost, settle, settlesAhead: true, onDrawn });
}

function sentCall(learned: Learned, key: string | undefined, sent: Sent): SentCall {
  return { ...sent, learned: () => learned.means(), ...namedOf(key) };
}

/** The cost of a job that names none; its data is what it sends. Rejects with what the bucket's function throws. */
export function costOfJob(
  { cost, learned }: CallDefaults,
  where: string,
  job: { readonly data: unknown; readonly key: string | undefined },
): Promise<MaybeCost> {
  return costAnswered(where, cost, sentCall(learned, job.key, { args: [job.data] }));
}

/** What a function answers is checked; all else was read before. */
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
 * What a refused call cost in the end: none of what it was estimated to take, but the call itself, which most
 * downstreams count all the same. Undefined if it was not refused, or was estimated as calls only. After a 503 or a
 * 403 the estimate holds: work may have begun.
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

/** Gives back what a refused call did not take. Never rejects. */
export async function settleRefused(
  outcome: ReportedOutcome,
  slot: Slot,
  cost: Cost | undefined,
): Promise<void> {
  const unused = refusedCost(outcome, cost);
  // By now the policy may have changed, and may not count these units any more.
  if (unused !== undefined) await slot.settle(unused).catch(() => {});
}

/** What the calls of a bucket have shown, over all replicas: how much they took of what they were estimated to take. */
interface Learned {
  /** The mean of taken ÷ estimated of each name. Waits for the store at its first use; never rejects. */
  means(): Promise<ReadonlyMap<string, number>>;
  /** Takes one more call in, in the background. A ratio that is no number from 0 is ignored. */
  learn(name: string, ratio: number): void;
  /** Resolves when the store has all samples, or could not take them. */
  settled(): Promise<void>;
}

/** How old the means of a process may be that learns nothing itself. */
const STALE_MS = 10_000;
/** Samples that wait while the store answers; more are dropped, since a mean needs few. */
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
