import { SluiceError, type FactsOf } from "../core/errors.ts";
import { withoutStop } from "../core/describe.ts";
import type { Key } from "../core/key-path.ts";

/**
 * The reason of the signal and of the failed attempt when a job's handler, including the check of its data, took longer
 * than its worker's `timeoutMs`.
 */
export class HandlerTimeoutError extends SluiceError<HandlerTimeoutError> {
  override readonly name = "HandlerTimeoutError";
  readonly code = "ERR_HANDLER_TIMEOUT";
  declare readonly timeoutMs: number;

  constructor(timeoutMs: number) {
    super(
      `The handler took longer than ${timeoutMs} ms. End its work when its signal is aborted, or raise timeoutMs.`,
      { timeoutMs },
    );
  }
}

/**
 * The reason of a failed attempt whose handler returned an error response: a status of 400 or more, or a refusal with
 * another status. Its `cause` is what the handler returned.
 */
export class HandlerResponseError extends SluiceError<HandlerResponseError> {
  override readonly name = "HandlerResponseError";
  readonly code = "ERR_HANDLER_RESPONSE";
  /** The response's status: `429`. Undefined if a refusal has none, such as Slack's `{ ok: false }`. */
  declare readonly status: number | undefined;

  constructor(status: number | undefined, options?: ErrorOptions) {
    const what = status === undefined ? "a refusal" : `a response with status ${status}`;
    super(
      `The handler returned ${what}, so the attempt has failed. Return something else if the job is done, or set failOnResponse: false on the worker.`,
      { status },
      options,
    );
  }
}

/** The reason of the handler's signal when its worker must give up the job, because another worker may run it. */
export class JobLostError extends SluiceError<JobLostError> {
  override readonly name = "JobLostError";
  readonly code = "ERR_JOB_LOST";
  declare readonly jobId: string;

  constructor({ jobId, reason }: { jobId: string; reason: string }) {
    super(`Job ${jobId} is no longer this worker's: ${reason}. End its work; another may run it.`, {
      jobId,
    });
  }
}

/**
 * The reason of the handler's signal when its job was cancelled. `finished()` then rejects with it, once the job has
 * ended or was removed.
 */
export class JobCancelledError extends SluiceError<JobCancelledError> {
  override readonly name = "JobCancelledError";
  readonly code = "ERR_JOB_CANCELLED";
  declare readonly jobId: string;

  constructor(jobId: string) {
    super(`Job ${jobId} was cancelled. End its work; it will not be tried again.`, { jobId });
  }
}

/** The reason of a dead letter whose job was cancelled while it ran. */
export const CANCELLED = "Cancelled: somebody cancelled the job while it ran";

/**
 * What `finished()` rejects with when the job has failed for the last time. Its `cause` is an error like that of the
 * last attempt, with its message, `code`, `status` and causes.
 */
export class JobFailedError extends SluiceError<JobFailedError> {
  override readonly name = "JobFailedError";
  readonly code = "ERR_JOB_FAILED";
  declare readonly jobId: string;
  /**
   * The message of the error of its last attempt: `"downstream says no"`; or `"Expired: …"` if it did not start in
   * time.
   */
  declare readonly reason: string;

  constructor({ jobId, reason, cause }: { jobId: string; reason: string; cause?: Error }) {
    super(
      `Job ${jobId} has failed: ${withoutStop(reason)}. See queue.failed(), and replay it by its id.`,
      { jobId, reason },
      { cause },
    );
  }
}

/** What `finished()` rejects with when the job was removed, or is done and no longer kept. */
export class JobMissingError extends SluiceError<JobMissingError> {
  override readonly name = "JobMissingError";
  readonly code = "ERR_JOB_MISSING";
  declare readonly jobId: string;

  constructor(jobId: string) {
    super(
      `Job ${jobId} is not there: it was removed, or it has ended and is no longer kept. Wait for it before it ends, or raise the queue's keepDone or keepFailed.`,
      { jobId },
    );
  }
}

/** What `finished()` rejects with when the job has not ended within `timeoutMs`; the job goes on. */
export class JobUnfinishedError extends SluiceError<JobUnfinishedError> {
  override readonly name = "JobUnfinishedError";
  readonly code = "ERR_JOB_UNFINISHED";
  declare readonly jobId: string;

  constructor({ jobId, timeoutMs }: { jobId: string; timeoutMs: number }) {
    super(
      `Job ${jobId} has not ended within ${timeoutMs} ms; it goes on. Wait longer, or listen.`,
      { jobId },
    );
  }
}

/** What `update()` rejects with when the job is running or done, so that its handler already has the data. */
export class JobStateError extends SluiceError<JobStateError> {
  override readonly name = "JobStateError";
  readonly code = "ERR_JOB_STATE";
  declare readonly jobId: string;
  /** Where the job is. */
  declare readonly state: "active" | "done";

  constructor({ jobId, state }: { jobId: string; state: "active" | "done" }) {
    const is = state === "active" ? "runs now, or is about to" : "is done";
    super(`Job ${jobId} ${is}; its data was not changed. Enqueue another job with the new data.`, {
      jobId,
      state,
    });
  }
}

/**
 * What `enqueue` rejects with when the queue has as many pending jobs as its `maxBacklog` allows. No job of the round
 * trip was stored.
 */
export class QueueFullError extends SluiceError<QueueFullError> {
  override readonly name = "QueueFullError";
  readonly code = "ERR_QUEUE_FULL";
  declare readonly queue: string;
  /** How many jobs may wait: `10_000`. */
  declare readonly limit: number;
  /** How many waited. */
  declare readonly waiting: number;
  /** How many jobs the round trip was to store. 1 for `enqueue`. */
  declare readonly asked: number;
  /** The key that has too many jobs; undefined if all keys together have too many. */
  declare readonly key: Key | undefined;
  /** How many jobs of this `enqueueMany` earlier round trips have stored: the first ones. 0 for `enqueue`. */
  declare readonly storedCount: number;

  constructor(facts: FactsOf<QueueFullError>) {
    const { queue, limit, waiting, key, asked, storedCount } = facts;
    const whose = key === undefined ? "" : ` of key ${JSON.stringify(key)}`;
    const outcome =
      storedCount === 0 ? "nothing was stored" : `only the first ${storedCount} jobs were stored`;
    const more = asked === 1 ? "one more was" : `${asked} more were`;
    super(
      `Queue "${queue}" is full: ${waiting} jobs${whose} wait, ${more} to be stored, and its maxBacklog is ${limit}; ${outcome}. Enqueue later, or raise maxBacklog.`,
      facts,
    );
  }
}
