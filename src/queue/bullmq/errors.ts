/**
 * The errors with which a processor gives commands to BullMQ. BullMQ recognises these errors by their names, and one of
 * them by its message, so our errors need the same names. Errors of handlers must not have these names:
 * `worker/outcome.ts` ensures this. No upstream issue known; checked with bullmq 6.7.0 (`handleFailed` in worker.js,
 * `shouldRetryJob` in job.js).
 */

/**
 * The error names that BullMQ treats as commands. `CONTROL_MESSAGE` is the error message that it treats as a rate
 * limit.
 */
export const CONTROL_NAMES: readonly string[] = [
  "DelayedError",
  "RateLimitError",
  "WaitingError",
  "WaitingChildrenError",
];
export const CONTROL_MESSAGE = "bullmq:rateLimitExceeded";
/** The error name with which BullMQ fails a job at once, even if attempts are left. */
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

/** Returns the error that a processor throws after it has moved its job to the delayed jobs. */
export function movedToDelayed(): Error {
  return named("DelayedError", new Error("The job was moved to the delayed ones"));
}

/**
 * Returns the error that a processor throws after it has moved its job back to the waiting jobs, or has lost the job.
 */
export function movedToWait(): Error {
  return named("WaitingError", new Error("The job was moved back to the waiting ones"));
}

function named(name: string, error: Error): Error {
  error.name = name;
  return error;
}

/**
 * Codes that BullMQ's scripts return when they reject a request (its `ErrorCode`): the job does not exist, or the job
 * is in another state.
 */
export const NOT_THERE = -1;
export const WRONG_STATE = -3;

export function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
