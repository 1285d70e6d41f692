/**
 * How a processor and BullMQ speak by errors. BullMQ recognises its own errors by their names as well, and one by its
 * message, so what a handler throws must not have these: `worker/outcome.ts` sees to that.
 * No upstream issue known; checked with bullmq 6.7.0 (`handleFailed` in worker.js, `shouldRetryJob` in job.js).
 */
import { DelayedError, UnrecoverableError, WaitingError } from "bullmq";

/** Names by which BullMQ takes an error for a command of its own, and the message by which it takes one for a limit. */
export const CONTROL_NAMES: readonly string[] = [
  "DelayedError",
  "RateLimitError",
  "WaitingError",
  "WaitingChildrenError",
];
export const CONTROL_MESSAGE = "bullmq:rateLimitExceeded";
/** The name by which BullMQ fails a job at once, whatever attempts are left. */
export const FINAL_NAME = "UnrecoverableError";

/** Has BullMQ fail a job at once, with this reason. */
export function finalError(reason: string): Error {
  return new UnrecoverableError(reason);
}

export function isFinalError(error: unknown): boolean {
  return error instanceof UnrecoverableError;
}

/** What a processor throws once it has moved its job to the delayed ones. */
export function movedToDelayed(): Error {
  return new DelayedError();
}

/** What a processor throws once it has moved its job back to the waiting ones, or has lost it. */
export function movedToWait(): Error {
  return new WaitingError();
}

/** Codes of what BullMQ's scripts refuse (its `ErrorCode`): no such job, a job in another state, the next run of a schedule. */
export const NOT_THERE = -1;
export const WRONG_STATE = -3;
export const IS_SCHEDULED = -8;

export function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
