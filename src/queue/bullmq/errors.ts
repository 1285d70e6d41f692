/**
 * How a processor talks to BullMQ by errors. BullMQ recognises its own errors by their names, and one by its message,
 * so ours need the same names. What a handler throws must not have them: `worker/outcome.ts` ensures that. No upstream
 * issue known; checked with bullmq 6.7.0 (`handleFailed` in worker.js, `shouldRetryJob` in job.js).
 */

/** The names of errors that BullMQ treats as commands, and the message that it treats as a rate limit. */
export const CONTROL_NAMES: readonly string[] = [
  "DelayedError",
  "RateLimitError",
  "WaitingError",
  "WaitingChildrenError",
];
export const CONTROL_MESSAGE = "bullmq:rateLimitExceeded";
/** The name of errors that fail a job at once in BullMQ, even if attempts are left. */
export const FINAL_NAME = "UnrecoverableError";

const ours = new WeakSet<Error>();

/** Returns an error that makes BullMQ fail a job at once, with this reason. */
export function finalError(reason: string, options?: ErrorOptions): Error {
  const error = named(FINAL_NAME, new Error(reason, options));
  ours.add(error);
  return error;
}

/** True if an error was made by {@link finalError}. An application's error may have the same name. */
export function isFinalError(error: unknown): boolean {
  return error instanceof Error && ours.has(error);
}

/** What a processor throws after it has moved its job to the delayed ones. */
export function movedToDelayed(): Error {
  return named("DelayedError", new Error("The job was moved to the delayed ones"));
}

/** What a processor throws after it has moved its job back to the waiting ones, or has lost it. */
export function movedToWait(): Error {
  return named("WaitingError", new Error("The job was moved back to the waiting ones"));
}

function named(name: string, error: Error): Error {
  error.name = name;
  return error;
}

/** Codes with which BullMQ's scripts refuse (its `ErrorCode`): no such job, and a job in another state. */
export const NOT_THERE = -1;
export const WRONG_STATE = -3;

export function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
