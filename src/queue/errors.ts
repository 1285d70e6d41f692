import { SluiceError, type ErrorCause, type FactsOf } from "../core/errors.ts";
import { withoutStop } from "../core/describe.ts";
import type { Key } from "../core/key-path.ts";
import type { JobReference } from "./job.ts";

/**
 * The handler of a job took longer than `timeoutMs`, including the check of the job's data. The handler's signal is
 * aborted with this error, and the attempt fails with it.
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
 * The attempt failed because its handler returned an error response: a status of 400 or more, or a refusal with another
 * status. The `cause` is what the handler returned.
 */
export class HandlerResponseError extends SluiceError<HandlerResponseError> {
  override readonly name = "HandlerResponseError";
  readonly code = "ERR_HANDLER_RESPONSE";
  /** The response's status: `429`. Undefined for a refusal without a status, such as Slack's `{ ok: false }`. */
  declare readonly status: number | undefined;

  constructor(status: number | undefined, options?: ErrorCause) {
    const what = status === undefined ? "a refusal" : `a response with status ${status}`;
    super(
      `The handler returned ${what}, so the attempt has failed. Return something else if the job is done, or set failOnResponse: false on the worker.`,
      { status },
      options,
    );
  }
}

/**
 * The worker must give up the job, because another worker may run it. The handler's signal is aborted with this error.
 */
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
 * The job was cancelled. The signal of a running handler is aborted with this error. `finished()` rejects with this
 * error once the job has ended or was removed.
 */
export class JobCancelledError extends SluiceError<JobCancelledError> {
  override readonly name = "JobCancelledError";
  readonly code = "ERR_JOB_CANCELLED";
  declare readonly jobId: string;

  constructor(jobId: string) {
    super(`Job ${jobId} was cancelled. End its work; it will not be tried again.`, { jobId });
  }
}

/** The dead-letter reason of a job that was cancelled while it ran. */
export const CANCELLED = "Cancelled: somebody cancelled the job while it ran";

/**
 * The job has failed for the last time. `finished()` rejects with this error. Its `cause` is a copy of the last
 * attempt's error, with the same message, `code`, `status` and causes.
 */
export class JobFailedError extends SluiceError<JobFailedError> {
  override readonly name = "JobFailedError";
  readonly code = "ERR_JOB_FAILED";
  declare readonly jobId: string;
  /**
   * The error message of the last attempt: `"downstream says no"`. For a job that did not start in time,
   * `"Expired: …"`.
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

/** The job was removed, or is done and no longer kept. `finished()` rejects with this error. */
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

/** The job has not ended within `timeoutMs`. `finished()` rejects with this error. The job itself continues. */
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

/** The job is running or done, so its handler already has the old data. `update()` rejects with this error. */
export class JobStateError extends SluiceError<JobStateError> {
  override readonly name = "JobStateError";
  readonly code = "ERR_JOB_STATE";
  declare readonly jobId: string;
  /** The state of the job. */
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
 * The queue already has as many pending jobs as its `maxBacklog` allows. `enqueue` and `enqueueMany` reject with this
 * error. No job of the rejected round trip was stored.
 */
export class QueueFullError extends SluiceError<QueueFullError> {
  override readonly name = "QueueFullError";
  readonly code = "ERR_QUEUE_FULL";
  declare readonly queue: string;
  /** The exceeded `maxBacklog`, in pending jobs: `10_000`. */
  declare readonly limit: number;
  /** How many jobs were pending. */
  declare readonly waiting: number;
  /** How many jobs the rejected round trip contained. 1 for `enqueue`. */
  declare readonly asked: number;
  /** The key that has too many pending jobs. Undefined if all keys together have too many. */
  declare readonly key: Key | undefined;
  /**
   * How many jobs of this `enqueueMany` were stored in earlier round trips: the first ones of its list. 0 for
   * `enqueue`.
   */
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

/**
 * The group is closed, so its final job waits for no more jobs, or there is no such group. `add()` rejects with this
 * error. None of the jobs of the rejected round trip was stored.
 */
export class GroupClosedError extends SluiceError<GroupClosedError> {
  override readonly name = "GroupClosedError";
  readonly code = "ERR_GROUP_CLOSED";
  /** The queue and the id of the group's final job. */
  declare readonly queue: string;
  declare readonly jobId: string;

  constructor({ final, isMissing }: { final: JobReference; isMissing: boolean }) {
    const { queue, id } = final;
    const what = isMissing
      ? `Job ${id} of queue "${queue}" is not the final job of a group, or is no longer stored`
      : `The group of job ${id} in queue "${queue}" is closed, so its final job would not wait`;
    super(`${what}; nothing was stored. Add jobs before close(), or begin another group.`, {
      queue,
      jobId: id,
    });
  }
}

/** A middleware has called `next()` twice or too late, or an `enqueue` middleware has returned no stored jobs. */
export class MiddlewareError extends SluiceError<MiddlewareError> {
  override readonly name = "MiddlewareError";
  readonly code = "ERR_MIDDLEWARE";
  /** The function of the middleware: `"enqueue"`. */
  declare readonly hook: "handler" | "batch" | "enqueue";

  constructor(hook: "handler" | "batch" | "enqueue", problem: string) {
    const remedy =
      hook === "enqueue"
        ? "Jobs may be stored. Call next() once, and return what it resolves with"
        : "Call next() once, and await it";
    super(`The ${hook} function of a middleware ${problem}. ${remedy}.`, { hook });
  }
}
