import { isNativeError } from "node:util/types";
import { describeValue, withCause } from "../../core/describe.ts";
import { InvalidOptionError, type ErrorCause, type WaitTooLongError } from "../../core/errors.ts";
import { LONGEST_MS } from "../../core/input/options.ts";
import { CONTROL_MESSAGE, CONTROL_NAMES, FINAL_NAME, finalError } from "../bullmq/errors.ts";
import { responseStatusIn } from "../../throttle/feedback/layers.ts";
import type { BlamedParent } from "../bullmq/stored-job.ts";
import { CANCELLED, HandlerResponseError, JobCancelledError } from "../errors.ts";
import { standFor } from "../failure.ts";
import type { Job } from "../job.ts";

/**
 * A handler returns or throws this to retry its job after `ms`, instead of after the backoff delay. The attempt counts
 * as failed. After its last attempt, the job becomes a dead letter.
 *
 * @throws {@link InvalidOptionError} when `ms` is not from 0 to 2,147,483,647.
 */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  /** The delay until the retry, in ms: `500`. */
  readonly ms: number;

  constructor(ms: number, options?: ErrorCause) {
    super(`To be tried again after ${describeValue(ms)} ms`, options);
    if (!isDelay(ms)) {
      const remedy = `give milliseconds from 0 to ${LONGEST_MS}`;
      throw new InvalidOptionError({ where: "RetryAfter()", option: "ms", value: ms, remedy });
    }
    this.ms = ms;
  }
}

/** A handler returns or throws this to fail its job at once with this reason, even if attempts are left. */
export class Discard extends Error {
  override readonly name = "Discard";
  readonly reason: string;

  constructor(reason: string, options?: ErrorCause) {
    super(reason, options);
    this.reason = reason;
  }
}

/**
 * A handler returns this if a program outside of this process runs the job from now on (`held/handed-over.ts`). The job
 * stays active in Redis until that program reports how it ended, or the job's lock expires.
 */
export class HandOver {
  /** Renews the job's lock for this long, in ms. Undefined if the handler renews it itself. */
  readonly lockMs: number | undefined;
  /** True if the handler releases the slot of the attempt itself. */
  readonly keepsSlot: boolean;
  /** True if no program took the job, so that it goes back to the queue. */
  readonly isRefused: boolean;

  constructor(how: {
    readonly lockMs?: number;
    readonly keepsSlot?: boolean;
    readonly isRefused?: boolean;
  }) {
    this.lockMs = how.lockMs;
    this.keepsSlot = how.keepsSlot ?? false;
    this.isRefused = how.isRefused ?? false;
  }
}

/**
 * The most characters of an error message or a stack trace to store. Without this bound, errors that quote whole
 * responses could fill Redis.
 */
const LONGEST_REASON = 10_000;
/** A result whose JSON is longer than this is not stored. */
const MOST_RESULT_CHARACTERS = 1_000_000;
/** Replaces a result that could not be sent from the handler's child process. */
export const UNSTORABLE: symbol = Symbol("unstorable");

export function isRetryAfter(outcome: unknown): outcome is RetryAfter {
  // Checks the name instead of the class, because the error may come from another process, or from another copy of this
  // package.
  return outcome instanceof Error && outcome.name === "RetryAfter" && "ms" in outcome
    ? isDelay(outcome.ms)
    : false;
}

export function isDiscard(outcome: unknown): outcome is Discard {
  return outcome instanceof Error && outcome.name === "Discard" && "reason" in outcome;
}

/** True if a handler returned a failure, which counts as if the handler had thrown it. */
export function isFailure(result: unknown): result is RetryAfter | Discard | Error {
  return isRetryAfter(result) || isDiscard(result) || isNativeError(result);
}

/**
 * Returns the failure of an attempt whose handler returned a response with a status of 400 or more. Undefined for any
 * other result.
 */
export function responseFailure(result: unknown): HandlerResponseError | undefined {
  const status = responseStatusIn(result);
  return status !== undefined && status >= 400 ? failureByResponse(result) : undefined;
}

/** Returns the failure of an attempt whose handler returned a refusal with any status. */
export function failureByResponse(result: unknown): HandlerResponseError {
  return new HandlerResponseError(responseStatusIn(result), { cause: result });
}

/** Cancels the body of a response that nothing will read, which frees the response's connection. */
export function dropBody(result: unknown): void {
  const { body } = (result ?? {}) as { readonly body?: Partial<ReadableStream> | null };
  if (typeof body?.cancel === "function" && body.locked === false) body.cancel().catch(() => {});
}

/** Turns whatever a handler threw into an error that BullMQ counts as a failed attempt. */
export function asFailure(thrown: unknown): Error {
  return standFor(failureFor(thrown), thrown);
}

function failureFor(thrown: unknown): Error {
  if (isDiscard(thrown)) {
    const reason = String(thrown.reason);
    return finalFailure(isBlank(reason) ? "Discarded without a reason" : reason, thrown);
  }
  if (!(thrown instanceof Error)) {
    const isText = typeof thrown === "string" && !isBlank(thrown);
    const what = isText ? thrown : describeValue(thrown);
    return new Error(shorten(`The handler threw ${what}`), { cause: thrown });
  }
  const { name, message, stack } = thrown;
  if (typeof message !== "string" || message.length > LONGEST_REASON) {
    const reason = String(message);
    if (name === FINAL_NAME) return finalFailure(reason, thrown);
    return new Error(shorten(reason), { cause: thrown });
  }
  if (CONTROL_NAMES.includes(name) || message === CONTROL_MESSAGE) {
    return new Error(`The handler threw ${name}: ${message}`, { cause: thrown });
  }
  // Adds the cause to the message, because BullMQ stores only the message, and a message such as "fetch failed" does
  // not say why.
  const whole = shorten(withCause(isBlank(message) ? textOfBlank(thrown) : message, thrown));
  const isLong = typeof stack === "string" && stack.length > LONGEST_REASON;
  if (!isLong && whole === message) return thrown;
  const failure = Object.assign(new Error(whole, { cause: thrown }), { name });
  return typeof stack === "string" ? Object.assign(failure, { stack: shorten(stack) }) : failure;
}

function isBlank(text: string): boolean {
  return text.trim() === "";
}

/** Returns a message for an error that has none: `"AggregateError without a message, ECONNREFUSED"`. */
function textOfBlank(error: Error): string {
  const { code } = error as NodeJS.ErrnoException;
  const text = `${error.name} without a message`;
  return typeof code === "string" && code !== "" ? `${text}, ${code}` : text;
}

/** Returns an error that makes BullMQ fail the job at once. */
function finalFailure(reason: string, cause?: unknown): Error {
  return finalError(shorten(reason), cause === undefined ? undefined : { cause });
}

/**
 * Returns the failure of a job whose first attempt did not start within `maxWaitMs`, or cannot start in time according
 * to `refusal`.
 */
export function expiredFailure(
  { startByMs }: Job<unknown>,
  nowMs: number,
  refusal?: WaitTooLongError,
): Error {
  const dueMs = startByMs ?? nowMs;
  const by = new Date(dueMs).toISOString();
  const { limitedBy, retryAfterMs = 0 } = refusal ?? {};
  const why =
    limitedBy !== undefined && nowMs < dueMs
      ? `${limitedBy} lets it start in about ${retryAfterMs} ms at the earliest`
      : `was ${nowMs - dueMs} ms too late`;
  const failure = finalFailure(`Expired: it had to start by ${by}, and ${why}`);
  expiries.add(failure);
  return failure;
}

const expiries = new WeakSet<Error>();

/** True if {@link expiredFailure} returned this failure. */
export function isExpiry(failure: unknown): boolean {
  return failure instanceof Error && expiries.has(failure);
}

/** Returns the failure of a job that can never start under the active limits. */
export function impossibleFailure(cause: Error): Error {
  return finalFailure(`Impossible: ${cause.message}`, cause);
}

/**
 * Returns the failure of a job that was running each time one of its workers died. The reason begins with the text that
 * BullMQ uses for such jobs.
 */
export function deadlyFailure(deaths: number): Error {
  const what = `its workers have died ${deaths} times while it ran`;
  return finalFailure(`job stalled more than allowable limit: ${what}`);
}

/** Returns the failure of a job that was cancelled while it ran. */
export function cancelledFailure(jobId: string): Error {
  // Keeps the `code` of the error with which the handler's signal was aborted.
  return standFor(finalFailure(CANCELLED), new JobCancelledError(jobId));
}

/** Returns the failure of a job that does not run, because one of its parents has failed. */
export function parentFailure({ queue, id, reason }: BlamedParent): Error {
  return finalFailure(`Parent failed: job ${id} of queue "${queue}": ${reason}`);
}

/**
 * Returns the failure of a job whose name has no handler in this worker. This can happen if the job's producer is newer
 * than the worker.
 */
export function unknownNameFailure(name: string | undefined, known: string): Error {
  const which = name === undefined ? "jobs without a name" : `jobs named "${name}"`;
  const what = `its worker has none for ${which}, only for ${known}`;
  return finalFailure(`No handler: ${what}; deploy one that has, and replay it`);
}

/** Returns the failure of a job whose data the schema rejects. */
export function invalidFailure(problem: string): Error {
  return finalFailure(`Invalid: ${problem}`);
}

/**
 * True if BullMQ can store the result. BullMQ would repeat a job whose result it cannot store, so such a result is
 * dropped.
 */
export function isStorable(result: unknown): boolean {
  if (result === undefined) return true;
  if (result === UNSTORABLE) return false;
  try {
    const text = JSON.stringify(result) as string | undefined;
    return text === undefined || text.length <= MOST_RESULT_CHARACTERS;
  } catch {
    // The result has a cycle, a BigInt, or a `toJSON` that throws.
    return false;
  }
}

function isDelay(ms: unknown): boolean {
  return typeof ms === "number" && ms >= 0 && ms <= LONGEST_MS;
}

function shorten(reason: string): string {
  return reason.length <= LONGEST_REASON ? reason : `${reason.slice(0, LONGEST_REASON)}…`;
}
