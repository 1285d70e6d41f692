/**
 * Jobs that a worker has handed over: programs outside of this process run them, and report how they ended. The job
 * stays active in Redis, under the lock that the worker fetched it with. Without renewal, the lock expires, and the job
 * runs again, as after the death of a worker.
 *
 * To renew the lock or to store the outcome, a worker needs only the job's id and the token of its lock. So any worker
 * of the queue can do this, also in another process.
 */
import { reasonOf } from "../../../core/describe.ts";
import { StoreUnavailableError } from "../../../core/errors.ts";
import { LONGEST_MS } from "../../../core/input/options.ts";
import { headsOfText } from "../../../core/key-path.ts";
import type { Pass } from "../../../throttle/outage/breaker.ts";
import type { DrawnSlot } from "../../../throttle/slot/slot.ts";
import { codeOf } from "../../bullmq/errors.ts";
import {
  encodedKeyOf,
  fillDefaults,
  fieldsOf,
  isCancelled,
  isLockedBy,
  readJob,
  runNameOf,
  wasCancelled,
  type Stored,
} from "../../bullmq/stored-job.ts";
import { storedJobOf, storeOutcome, type AnyWorker } from "../../bullmq/stored-worker.ts";
import { HandlerTimeoutError, JobCancelledError, JobLostError } from "../../errors.ts";
import type { Fetcher } from "../../lanes/fetcher.ts";
import { parkFromWorker } from "../../lanes/park.ts";
import { encodedResult, outcomeOf, UncountedFailure, whyBlocked } from "../attempt.ts";
import {
  createJobContext,
  type JobContext,
  type OwnedJobContext,
  type WorkerContext,
} from "../context.ts";
import type { WorkerReport } from "../report.ts";
import type { ScheduledRuns } from "../runs.ts";
import type { JobReturns } from "./job-returns.ts";
import type { Receipt, TimeLimit } from "./receipt.ts";

/** The lock of a job. */
type JobLock = Pick<Receipt, "id" | "token">;

/** A job that a program runs, with its time limit. */
type HandedJob = JobLock & Pick<Receipt, "limit">;

/** What became of the lock of a job. */
export type LockState = "held" | "lost" | "cancelled";

/** How a handed-over job ended: with a result, or with whatever a handler would have thrown. */
export type HandedOutcome = { readonly result: unknown } | { readonly thrown: unknown };

/** What became of a job whose outcome was stored. */
export type EndedAs = "done" | "retried" | "failed";

/** The jobs of one queue that programs outside of this process run. */
export interface HandedOver {
  /** Renews locks for `lockMs` from now. Resolves with true for each lock that was still held. */
  renew(locks: readonly JobLock[], lockMs: number): Promise<readonly boolean[]>;
  /**
   * Does the same, and also looks for cancelled jobs. Resolves with what became of each: `held`, or `lost` if another
   * worker may have the job by now. `cancelled` means that the job was cancelled, so its work is no longer needed.
   */
  extend(locks: readonly JobLock[], lockMs: number): Promise<readonly LockState[]>;
  /**
   * Stores log lines or the progress of a job, if its lock is still held. `write` gets the context that the job's handler
   * would have. Resolves with what became of the lock.
   */
  note(
    lock: JobLock,
    write: (context: Pick<JobContext, "log" | "progress">) => Promise<void>,
  ): Promise<LockState>;
  /** Fails the attempt once its time is over, unless it has ended before. `fail` replaces how. */
  limit(job: HandedJob, fail?: (failure: HandedOutcome) => Promise<unknown>): void;
  /** Returns the failure of an attempt whose time is over, and undefined before. */
  overdue(job: HandedJob): HandedOutcome | undefined;
  /**
   * Stores how a job ended. After the time of the attempt, this is a failure, whatever `outcome` says. `slotOf` returns
   * the slot of the attempt, and is called only if the attempt failed. Without a slot, the bucket is not notified of a
   * failure.
   *
   * @throws {@link JobLostError} when the lock has expired or the job has ended. Nothing is stored then.
   * @throws {@link JobCancelledError} when the job was cancelled. The job has ended as cancelled then.
   * @throws {@link StoreUnavailableError} when Redis does not reply in time. The outcome may be stored.
   */
  settle(
    job: HandedJob,
    outcome: HandedOutcome,
    slotOf?: () => Promise<DrawnSlot>,
  ): Promise<EndedAs>;
  /** Puts a job back into its old position in the queue, without a counted attempt. Never rejects. */
  giveBack(lock: JobLock): Promise<void>;
  /** Forgets all time limits. */
  close(): void;
}

export interface HandedOverParts {
  readonly worker: WorkerContext;
  readonly stored: AnyWorker;
  readonly fetcher: Pick<Fetcher, "endHead" | "look" | "wake">;
  /** Called with the id of a job once the outcome of an attempt is stored. */
  readonly onEnded: (id: string) => void;
  readonly report: Pick<WorkerReport<unknown, unknown>, "noteResult" | "resumed">;
  readonly runs: Pick<ScheduledRuns, "recover">;
  readonly back: Pick<JobReturns<unknown>, "returnUncounted">;
  /** Returns the breaker's pass of a job that this worker has handed over, and forgets it. */
  readonly takePass: (token: string) => Pass | undefined;
}

/** How long one request to Redis may take. */
const ANSWER_MS = 5_000;
const LOST = "its lock has expired, or the job has ended";

export function createHandedOver(parts: HandedOverParts): HandedOver {
  const { worker, stored, fetcher, onEnded, report, runs, back, takePass } = parts;
  const { queue, bucket, connection, clock, lockMs: ownLockMs } = worker;
  /** The timers of time limits, by the tokens of the jobs' locks. */
  const timers = new Map<string, NodeJS.Timeout>();

  function stopTimer({ token }: JobLock): void {
    clearTimeout(timers.get(token));
    timers.delete(token);
  }

  function warnOfLimit({ id }: JobLock, error: unknown): void {
    // The job has ended already, here or at another server.
    if (error instanceof JobLostError || error instanceof JobCancelledError) return;
    const reason = reasonOf(error);
    const problem = "Could not fail a job whose time is over; it runs again when its lock expires.";
    worker.logger.warn({ queue, job: id, reason }, problem);
  }

  /** Bounds a request to Redis. Errors with a numeric code are BullMQ's refusals. */
  function ask<Reply>(asking: Promise<Reply>): Promise<Reply> {
    return connection.inTime(ANSWER_MS, asking).catch((error: unknown) => {
      if (typeof codeOf(error) === "number") throw error;
      const problem = `Redis did not confirm a change of taken jobs of queue "${queue}"`;
      throw new StoreUnavailableError(`${problem}. Send the request again.`, error);
    });
  }

  async function renew(locks: readonly JobLock[], lockMs: number): Promise<readonly boolean[]> {
    if (locks.length === 0) return [];
    const ids = locks.map(({ id }) => id);
    // BullMQ names lost locks by the ids of their jobs, so two locks of one job need separate requests.
    if (new Set(ids).size < ids.length) {
      return (await Promise.all(locks.map((lock) => renew([lock], lockMs)))).flat();
    }
    const tokens = locks.map(({ token }) => token);
    const lost = new Set(await ask(stored.extendJobLocks(ids, tokens, lockMs)));
    return ids.map((id) => !lost.has(id));
  }

  async function read({ id, token }: JobLock): Promise<{
    readonly job: Stored<unknown>;
    /** True if the job was cancelled. */
    readonly isDropped: boolean;
  }> {
    const fields = await ask(fieldsOf(stored, id));
    if (fields.length === 0) throw lostError(id);
    const job: Stored<unknown> = storedJobOf(stored, { id, token, fields });
    fillDefaults(job);
    return { job, isDropped: wasCancelled(fields) };
  }

  /** Turns BullMQ's refusal of a lock into our error. Other errors pass. */
  function asLost(id: string, error: unknown): unknown {
    return typeof codeOf(error) === "number" ? lostError(id) : error;
  }

  /**
   * Reports a failed attempt to the bucket, and returns the error that its outcome is stored with. First confirms the
   * lock, because a late report must not slow the bucket down.
   */
  async function failureOf(
    job: Stored<unknown>,
    context: OwnedJobContext,
    pass: Pass,
    thrown: unknown,
    slotOf: (() => Promise<DrawnSlot>) | undefined,
  ): Promise<Error> {
    const [isHeld] = await renew([{ id: job.id!, token: context.token }], ownLockMs);
    if (isHeld !== true) throw lostError(job.id!);
    const attempt = { stored: job, job: readJob(job), context, pass };
    const blocked = await whyBlocked(worker, attempt, thrown);
    const slot = await slotOf?.();
    const call = slot && { slot, cost: attempt.job.cost, isSpared: blocked !== undefined };
    const { askedMs } = (call && (await bucket.report(thrown, call))) ?? {};
    try {
      outcomeOf(worker, attempt, { thrown, askedMs, blocked });
    } catch (failure) {
      return failure as Error;
    }
    throw new Error("a failed attempt has no failure");
  }

  async function fail(
    job: Stored<unknown>,
    context: OwnedJobContext,
    pass: Pass,
    failure: Error,
  ): Promise<EndedAs> {
    if (failure instanceof UncountedFailure) {
      // Always rejects, with the error that BullMQ expects from a processor.
      await back.returnUncounted(job, context, { error: failure, pass }).catch(() => undefined);
      return "retried";
    }
    await ask(storeOutcome(stored, job, context.token, { failure }));
    return job.finishedOn === undefined ? "retried" : "failed";
  }

  /** Lets the jobs start that waited for this one. */
  function letOthersStart(job: Stored<unknown>): void {
    const key = encodedKeyOf(job);
    const id = job.id!;
    onEnded(id);
    if (key !== undefined) {
      if (job.opts.sluice?.ordered !== undefined) fetcher.endHead(key);
      for (const head of headsOfText(key)) fetcher.wake(head);
    }
    const dedupeId = job.deduplicationId;
    if (dedupeId !== undefined)
      void connection.letFollow({ queue, id, dedupeId }).then(fetcher.look, () => undefined);
    if (runNameOf(id) !== undefined) void runs.recover([id]).then(fetcher.look);
  }

  function overdue({ limit }: HandedJob): HandedOutcome | undefined {
    if (limit === undefined || clock.latestMs() < limit.endsAtMs) return undefined;
    return timedOut(limit);
  }

  async function settle(
    lock: HandedJob,
    given: HandedOutcome,
    slotOf?: () => Promise<DrawnSlot>,
  ): Promise<EndedAs> {
    const { id, token } = lock;
    stopTimer(lock);
    const outcome = overdue(lock) ?? given;
    const { job, isDropped } = await read(lock);
    const key = encodedKeyOf(job);
    const context = createJobContext({ jobId: id, key, token, attempt: job.attemptsMade + 1 });
    const ranMs = Math.max(0, clock.latestMs() - (job.processedOn ?? clock.latestMs()));
    const startedAtMs = performance.now() - ranMs;
    const pass = takePass(token) ?? { passes: true, isProbe: false, startedAtMs };
    report.resumed(job, startedAtMs);
    if (isDropped) context.cancel();
    try {
      if ("thrown" in outcome || isDropped) {
        const thrown = "thrown" in outcome ? outcome.thrown : undefined;
        const failure = await failureOf(job, context, pass, thrown, slotOf);
        const ended = await fail(job, context, pass, failure);
        if (isDropped) throw new JobCancelledError(id);
        return ended;
      }
      const attempt = { stored: job, job: readJob(job), context, pass };
      const result = outcomeOf(worker, attempt, outcome);
      const isEncoded = worker.payloads.mustEncode(result);
      if (isEncoded) report.noteResult(job, result);
      const kept = isEncoded ? await encodedResult(worker, attempt.job, result) : result;
      await ask(storeOutcome(stored, job, token, { result: kept }));
      return "done";
    } catch (error) {
      throw asLost(id, error);
    } finally {
      bucket.breaker.release({ id, key }, pass);
      letOthersStart(job);
    }
  }

  return {
    renew,
    overdue,
    settle,
    async extend(locks, lockMs) {
      const [held, cancelled] = await Promise.all([
        renew(locks, lockMs),
        ask(Promise.all(locks.map(({ id }) => isCancelled(stored, id)))),
      ]);
      return held.map((isHeld, at) => {
        if (!isHeld) return "lost";
        return cancelled[at] === true ? "cancelled" : "held";
      });
    },
    async note(lock, write) {
      const { id, token } = lock;
      const { job, isDropped } = await read(lock);
      if (!(await ask(isLockedBy(stored, lock)))) return "lost";
      const key = encodedKeyOf(job);
      const context = createJobContext({ jobId: id, key, token, attempt: job.attemptsMade + 1 });
      context.begin(job, undefined, worker.payloads);
      await write(context);
      return isDropped ? "cancelled" : "held";
    },
    limit(job, fail = (failure) => settle(job, failure)) {
      const { limit } = job;
      if (limit === undefined) return;
      const end = (): void => {
        timers.delete(job.token);
        fail(timedOut(limit)).catch((error: unknown) => warnOfLimit(job, error));
      };
      const leftMs = Math.max(0, limit.endsAtMs - clock.latestMs());
      timers.set(job.token, setTimeout(end, Math.min(leftMs, LONGEST_MS)).unref());
    },
    async giveBack(lock) {
      stopTimer(lock);
      try {
        // Always rejects, with the error that BullMQ expects from a processor.
        const { job } = await read(lock);
        await parkFromWorker(job, lock.token, worker).catch(() => undefined);
      } catch (error) {
        const facts = { queue, job: lock.id, reason: reasonOf(error) };
        worker.logger.warn(facts, "Could not put a job back; it comes back when its lock expires.");
      }
    },
    close() {
      for (const timer of timers.values()) clearTimeout(timer);
      timers.clear();
    },
  };
}

function timedOut({ timeoutMs }: TimeLimit): HandedOutcome {
  return { thrown: new HandlerTimeoutError(timeoutMs) };
}

function lostError(jobId: string): JobLostError {
  return new JobLostError({ jobId, reason: LOST });
}
