import pTimeout from "p-timeout";
import { reasonOf } from "../../core/describe.ts";
import type { ReportedCall } from "../../throttle/bucket.ts";
import { isUnreachable } from "../../throttle/outage/unreachable.ts";
import {
  endJobSlot,
  jobSlotOf,
  mayCallBucket,
  runWithJobSlot,
  type JobSlot,
} from "../../throttle/slot/job-slot.ts";
import type { Pass } from "../../throttle/outage/breaker.ts";
import type { DrawnSlot } from "../../throttle/slot/slot.ts";
import { isFinalError } from "../bullmq/errors.ts";
import { DEFAULT_BASE_MS, setBackoff, type Stored } from "../bullmq/stored-job.ts";
import { check, type Schema } from "../enqueue/data.ts";
import { HandlerTimeoutError } from "../errors.ts";
import { keyTextOf, type Job } from "../job.ts";
import type { WhyBlocked } from "./held/downstream.ts";
import type { HandlerResult, OwnedJobContext, WorkerContext } from "./context.ts";
import {
  asFailure,
  cancelledFailure,
  dropBody,
  failureByResponse,
  HandOver,
  invalidFailure,
  isDiscard,
  isFailure,
  isRetryAfter,
  isStorable,
  responseFailure,
} from "./outcome.ts";

/** The parts of a worker that an attempt uses. */
type AttemptWorker<Data, Result> = Pick<
  WorkerContext<Data, Result>,
  | "queue"
  | "bucket"
  | "downstream"
  | "failOnResponse"
  | "handler"
  | "logger"
  | "payloads"
  | "schema"
  | "timeoutMs"
>;

/** One attempt at a job that has its slot. */
export interface Attempt<Data> {
  readonly stored: Stored<Data>;
  readonly job: Job<Data>;
  readonly context: OwnedJobContext;
  readonly slot: DrawnSlot;
  /** The pass that the breaker returned when it allowed the attempt to start. */
  readonly pass: Pass;
}

/**
 * Thrown when a failed attempt does not count, because the downstream is unreachable. The job goes back to the queue.
 */
export class UncountedFailure extends Error {
  override readonly name = "UncountedFailure";
  readonly blocked: WhyBlocked;
  readonly failure: Error;

  constructor(failure: Error, blocked: WhyBlocked) {
    super(failure.message);
    this.failure = failure;
    this.blocked = blocked;
  }
}

/** Runs the handler of a job. BullMQ stores the return value or the thrown error of this function. */
export async function runAttempt<Data, Result>(
  worker: AttemptWorker<Data, Result>,
  attempt: Attempt<Data>,
): Promise<Result | HandOver | undefined> {
  const { bucket } = worker;
  const { stored, job, context, slot } = attempt;
  const { cost } = job;
  /**
   * The slot for the handler's own calls. Undefined until the handler runs, and for handlers that cannot make calls
   * through the bucket.
   */
  let jobSlot: JobSlot | undefined;
  let isHandedOver = false;
  context.begin(stored, slot, worker.payloads);
  // Aborts the handler when the lease is lost, because another call may then run in its place. If this process was
  // blocked, the lease may be lost already.
  slot.onLeaseEnding((reason) => context.abort(reason));
  let result: Result | undefined;
  let failed: Extract<AttemptResult<Result>, { thrown: unknown }> | undefined;
  try {
    const given = await run(worker, { job, context }, () => {
      if (mayCallBucket(worker.handler, bucket, slot))
        jobSlot = jobSlotOf({ bucket, slot }, { ...job, key: keyTextOf(job) });
      return jobSlot;
    });
    if (given instanceof HandOver) {
      isHandedOver = given.keepsSlot;
      return given;
    }
    if (isFailure(given)) throw given;
    result = given;
    slot.noteOutcome(result);
  } catch (thrown) {
    slot.noteOutcome(thrown);
    const blocked = await whyBlocked(worker, attempt, thrown);
    const call = { slot: jobSlot?.replacedBy ?? slot, cost, isSpared: blocked !== undefined };
    const { askedMs } = await bucket.report(thrown, call);
    failed = { thrown, askedMs, blocked };
  } finally {
    if (!isHandedOver) slot.release();
    if (jobSlot !== undefined) endJobSlot(jobSlot);
  }
  failed ??= await refusedBy(worker, attempt, { result, slot: jobSlot?.replacedBy ?? slot, cost });
  if (failed !== undefined) return failedOutcome<Result>(worker, attempt, failed);
  return outcomeOf(worker, attempt, { result });
}

/** Reports a handler's result to the bucket. Returns the failure if the result is a refusal or an error response. */
async function refusedBy<Data, Result>(
  worker: AttemptWorker<Data, Result>,
  attempt: Attempt<Data>,
  { result, slot, cost }: { readonly result: unknown } & Pick<ReportedCall, "slot" | "cost">,
): Promise<Extract<AttemptResult<Result>, { thrown: unknown }> | undefined> {
  const { bucket, failOnResponse = true } = worker;
  const failure = failOnResponse ? responseFailure(result) : undefined;
  const blocked = failure && (await whyBlocked(worker, attempt, failure));
  const reported = bucket.report(result, { slot, cost, isSpared: blocked !== undefined });
  if (!failOnResponse) return undefined;
  const outcome = reported instanceof Promise ? await reported : reported;
  const isRefused = outcome.isRefusal && outcome.heard.refused;
  const thrown = failure ?? (isRefused ? failureByResponse(result) : undefined);
  if (thrown === undefined) return undefined;
  dropBody(result);
  return { thrown, askedMs: outcome.askedMs, blocked };
}

/** The parts of an attempt on which its outcome depends, for data of any type. */
interface AttemptParts {
  readonly stored: Pick<Stored<unknown>, "opts" | "attemptsMade">;
  readonly job: Pick<Job<unknown>, "id" | "key">;
  readonly context: OwnedJobContext;
  readonly pass: Pass;
}

/** The outcome of a handler call for one job. */
type AttemptResult<Result> =
  | { readonly result: Result }
  | {
      readonly thrown: unknown;
      readonly askedMs?: number | undefined;
      /** Why the attempt does not count. Undefined if it counts. */
      readonly blocked: WhyBlocked | undefined;
    };

/** Reports a failure to the breaker. Resolves with a reason if the attempt does not count. */
export async function whyBlocked(
  { downstream }: Pick<WorkerContext, "downstream">,
  { job, context, pass }: AttemptParts,
  thrown: unknown,
): Promise<WhyBlocked | undefined> {
  // Cancellations and final errors say nothing about the downstream.
  if (context.isCancelled || isFinalError(thrown)) return undefined;
  const isOwnChoice = isRetryAfter(thrown) || isDiscard(thrown);
  return downstream.failed(job, pass, isOwnChoice ? undefined : thrown);
}

/**
 * Ends a failed attempt. If it is the job's last attempt, this function first waits until it is clear whether the
 * downstream is unreachable. Jobs of an ordered key do not wait, because no other job of the key could start during
 * that time.
 */
export async function failedOutcome<Result>(
  worker: Pick<WorkerContext, "queue" | "downstream" | "logger">,
  attempt: AttemptParts,
  failed: Extract<AttemptResult<Result>, { thrown: unknown }>,
  counted: AttemptParts["job"] = attempt.job,
): Promise<Result | undefined> {
  const { stored, context } = attempt;
  const { opts, attemptsMade } = stored as Stored<unknown>;
  const isLast = attemptsMade + 1 >= (opts.attempts ?? 1);
  const isOrdered = opts.sluice?.ordered !== undefined;
  if (failed.blocked !== undefined || !isLast || isOrdered || context.isCancelled) {
    return outcomeOf(worker, attempt, failed);
  }
  if (isFinalError(failed.thrown) || !isUnreachable(failed.thrown)) {
    return outcomeOf(worker, attempt, failed);
  }
  const blocked = await worker.downstream.verdict(counted, context);
  return outcomeOf(worker, attempt, { ...failed, blocked });
}

/** Returns the job's result for BullMQ to store, or throws the failure of its attempt. */
export function outcomeOf<Result>(
  { queue, downstream, logger }: Pick<WorkerContext, "queue" | "downstream" | "logger">,
  { stored, job, context, pass }: AttemptParts,
  attemptResult: AttemptResult<Result>,
): Result | undefined {
  if (context.isCancelled) throw cancelledFailure(job.id);
  if ("thrown" in attemptResult) {
    setRetryDelay(stored, attemptResult.thrown, attemptResult.askedMs);
    const failure = asFailure(attemptResult.thrown);
    throw attemptResult.blocked === undefined
      ? failure
      : new UncountedFailure(failure, attemptResult.blocked);
  }
  downstream.succeeded(job, pass);
  if (isStorable(attemptResult.result)) return attemptResult.result;
  const problem = "A handler's result is not JSON, or too long; the job is done without it.";
  logger.warn({ queue, job: job.id }, problem);
  return undefined;
}

/**
 * Returns the value that Redis stores as the result of a job. The job is done even if its result cannot be encoded:
 * running it again would repeat its effects.
 */
export async function encodedResult<Result>(
  { queue, logger, payloads }: Pick<WorkerContext, "queue" | "logger" | "payloads">,
  { id }: Pick<Job<unknown>, "id">,
  result: Result,
): Promise<Result | undefined> {
  const json = JSON.stringify(result) as string | undefined;
  if (json === undefined) return undefined;
  try {
    const about = { kind: "result", id, dueInMs: 0, isShared: false } as const;
    const envelope = await payloads.encode(json, about);
    return envelope === undefined ? result : (envelope as Result);
  } catch (error) {
    const reason = reasonOf(error);
    const problem = `A handler's result could not be encoded; the job is done without it: ${reason}`;
    logger.warn({ queue, job: id, reason }, problem);
    return undefined;
  }
}

/**
 * Checks the job's data and runs the handler within its time limit. `takeJobSlot` returns the slot for the handler's
 * calls. This function is not async: if the handler throws synchronously, the function throws too.
 */
function run<Data, Result>(
  { handler, schema, timeoutMs }: AttemptWorker<Data, Result>,
  { job, context }: Pick<Attempt<Data>, "job" | "context">,
  takeJobSlot: () => JobSlot | undefined,
): HandlerResult<Result> | Promise<HandlerResult<Result>> {
  const limitMs = job.timeoutMs ?? timeoutMs;
  context.limitMs = limitMs;
  const handle = (given: Job<Data>): HandlerResult<Result> | Promise<HandlerResult<Result>> => {
    const jobSlot = takeJobSlot();
    if (jobSlot === undefined) return handler(given, context);
    return runWithJobSlot(jobSlot, () => handler(given, context));
  };
  const running =
    schema === undefined ? handle(job) : checked({ schema }, { job, context }).then(handle);
  return limitMs === undefined ? running : inTime(running, limitMs, context);
}

/** Returns the job with checked data, if the queue has a schema. */
export async function checked<Data>(
  { schema }: Pick<AttemptWorker<Data, unknown>, "schema">,
  { job, context }: Pick<Attempt<Data>, "job" | "context">,
): Promise<Job<Data>> {
  if (schema === undefined) return job;
  const found = await withCheckedData(schema, job);
  // The job timed out or was cancelled during the check, or another worker has the job by now.
  if (context.isAborted) throw context.signal.reason;
  return found;
}

async function withCheckedData<Data>(schema: Schema<Data>, job: Job<Data>): Promise<Job<Data>> {
  const found = await check(schema, job.data);
  if (found.isValid) return { ...job, data: found.value };
  const where = found.path === "" ? "the data" : `data.${found.path}`;
  throw invalidFailure(`${where} is refused by the queue's schema: ${found.message}`);
}

/**
 * Waits for a handler, and rejects after `timeoutMs`. A handler function cannot be stopped, so its signal is aborted
 * and its later result is ignored.
 */
export function inTime<Result>(
  running: Result | Promise<Result>,
  timeoutMs: number,
  context: OwnedJobContext,
): Promise<Result> {
  return pTimeout(Promise.resolve(running), {
    milliseconds: timeoutMs,
    // With a fallback, p-timeout does not call the `cancel` method that the promise of an HTTP client may have.
    fallback(): never {
      const error = new HandlerTimeoutError(timeoutMs);
      context.abort(error);
      throw error;
    },
  });
}

const DEFAULT_MAX_MS = 3_600_000;

/**
 * Sets when BullMQ retries this job. The delay is an exponential backoff with full jitter (Brooker, "Exponential
 * Backoff And Jitter", 2015), and at least the time that the downstream asked for. BullMQ's own backoff is not used,
 * because it has no upper bound: with a base of 1 s, attempt 30 would come after 17 years. No upstream issue known;
 * checked with bullmq 6.7.0 (`backoffs.js`).
 */
export function setRetryDelay(
  { opts, attemptsMade }: Pick<Stored<unknown>, "opts" | "attemptsMade">,
  thrown: unknown,
  askedMs: number | undefined,
): void {
  const { sluice: { maxBackoffMs = DEFAULT_MAX_MS } = {}, backoff } =
    opts as Stored<unknown>["opts"];
  const baseMs = (typeof backoff === "object" && backoff.delay) || DEFAULT_BASE_MS;
  const ownMs = Math.floor(Math.random() * Math.min(maxBackoffMs, baseMs * 2 ** attemptsMade));
  const delay = isRetryAfter(thrown) ? thrown.ms : Math.max(ownMs, askedMs ?? 0);
  setBackoff({ opts }, Math.ceil(delay));
}
