import { assertArgumentCount } from "../../core/input/arguments.ts";
import type { Key } from "../../core/key-path.ts";
import type { TryCall } from "../../throttle/call-options.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import type { JobExplanation } from "../forecast/explain.ts";
import type { JobEta } from "../forecast/forecast.ts";
import { keyTextOf, type Job, type JobState } from "../job.ts";
import type { Changes, DueOptions } from "../manage/changes.ts";
import type { FinishedOptions } from "../manage/finished.ts";

/** A job in its queue: what was enqueued, and methods that read or change it. Each method asks Redis. */
export interface QueuedJob<Data, Result = unknown> extends Job<Data> {
  /**
   * True if this call of `enqueue` stored it. False if a job with its `id` or `dedupeId` existed already: then all
   * fields are those of that job. False from `job()`, too.
   */
  readonly isNew: boolean;
  /** What its handler returned, as JSON. Undefined until the job is done, or if it returned nothing. */
  readonly result: Result | undefined;
  /** The state of the job; undefined if it was removed, or is done and no longer kept. */
  state(): Promise<JobState | undefined>;
  /** The lines that its handlers have logged, the oldest first; empty if the job does not exist. */
  logs(): Promise<readonly string[]>;
  /** The last progress that its handler has stored; undefined if there is none. */
  progress(): Promise<unknown>;
  /**
   * Returns when the job is expected to start, by the current backlog, limits and workers; undefined if it does not
   * exist or has ended. Under a rate, this is right to about a tenth while the backlog and its tenants stay as they
   * are. The time that handlers take is unknown, so limits on concurrent calls do not count.
   */
  eta(): Promise<JobEta | undefined>;
  /**
   * Returns what the job waits for now, since when and until when: its time, a worker, a pause, a limit, or its turn.
   * Undefined if it runs, has ended, or does not exist; and for up to half a second after a worker has fetched it to
   * wait for its slot.
   */
  explain(): Promise<JobExplanation | undefined>;
  /**
   * Replaces the data of a job that waits, is delayed or has failed. Resolves with false if the job does not exist. Job
   * objects that were read before keep their data.
   *
   * @throws {@link JobStateError} when the job runs or is done.
   * @throws {@link InvalidOptionError} when the data is not JSON, too large, or refused by the schema.
   */
  update(data: Data): Promise<boolean>;
  /**
   * Changes the time of a job that waits or is delayed, even for its next attempt. Its `maxWaitMs` counts from the new
   * time. Resolves with false if it runs now, has ended, does not exist, or is a run of a recurring job that has not
   * begun.
   *
   * @throws {@link InvalidOptionError} when the time is invalid.
   */
  reschedule(due: DueOptions): Promise<boolean>;
  /**
   * Makes a job due now that is delayed, or waits for its next attempt. It starts in its turn. A job that waits already
   * keeps its position; `reprioritise` moves it forward. Resolves with false as `reschedule` does.
   */
  runNow(): Promise<boolean>;
  /**
   * Removes the job. Resolves with false if it runs now, does not exist, or is a run of a recurring job that has not
   * begun.
   */
  remove(): Promise<boolean>;
  /**
   * Cancels the job. If it waits, it is removed. If it runs, in any process, its handler's `signal` is aborted within a
   * second, and it ends as a dead letter with the reason `"Cancelled: …"`. `queue.cancel` says more.
   */
  cancel(): Promise<boolean>;
  /**
   * Resolves with what its handler returned, as JSON (null for nothing), even if it was done before. The wait survives
   * an outage of Redis. Many waits share one connection. `Result` is the queue's, or that of the call; it is not
   * checked.
   *
   * @throws {@link JobFailedError} when it has failed and will not be tried again.
   * @throws {@link JobCancelledError} when it was cancelled.
   * @throws {@link JobMissingError} when it was removed, or is no longer kept.
   * @throws {@link JobUnfinishedError} when it has not ended within `timeoutMs`.
   * @throws {@link StoreUnavailableError} when Redis is unreachable as the wait begins.
   */
  finished(options?: FinishedOptions): Promise<Result>;
  finished<OfThisJob>(options?: FinishedOptions): Promise<OfThisJob>;
}

/** Our state for each of BullMQ's. */
const STATES: Readonly<Record<string, JobState>> = {
  waiting: "waiting",
  prioritized: "waiting",
  "waiting-children": "waiting",
  active: "active",
  delayed: "delayed",
  completed: "done",
  failed: "failed",
};

/** What the methods of a job use of its queue. */
export interface JobSource {
  readonly access: StoredAccess;
  /** True if a job is in the lane of its key. */
  readonly isParked: (id: string) => Promise<boolean>;
  readonly eta: (id: string, about: TryCall) => Promise<JobEta | undefined>;
  readonly explain: (id: string) => Promise<JobExplanation | undefined>;
  readonly remove: (id: string) => Promise<boolean>;
  readonly cancel: (id: string) => Promise<boolean>;
  readonly changes: Changes;
  /** Returns the JSON to store for the data given to `update`. */
  readonly jsonOf: (where: string, data: unknown) => Promise<string>;
  readonly finished: (id: string, options: FinishedOptions | undefined) => Promise<unknown>;
}

/** A class, because one call may return 100,000 jobs: their methods are on the prototype. */
class JobHandle {
  declare readonly id: string;
  declare readonly key: Key | undefined;
  declare readonly cost: Cost | undefined;
  readonly #source: JobSource;

  constructor(source: JobSource) {
    this.#source = source;
  }

  state(): Promise<JobState | undefined> {
    const { access, isParked } = this.#source;
    return access.ask(async (stored) => {
      const state = STATES[await stored.getJobState(this.id)];
      return state === "delayed" && (await isParked(this.id)) ? "waiting" : state;
    });
  }

  logs(): Promise<readonly string[]> {
    return this.#source.access.ask(async (stored) => (await stored.getJobLogs(this.id)).logs);
  }

  progress(): Promise<unknown> {
    return this.#source.access.ask(async (stored) => {
      const job = await stored.getJob(this.id);
      // BullMQ's progress is 0 before a handler has stored any.
      return job?.progress === 0 ? undefined : job?.progress;
    });
  }

  eta(): Promise<JobEta | undefined> {
    return this.#source.eta(this.id, { key: keyTextOf(this), cost: this.cost });
  }

  explain(): Promise<JobExplanation | undefined> {
    return this.#source.explain(this.id);
  }

  async update(data: unknown): Promise<boolean> {
    const { changes, jsonOf } = this.#source;
    return changes.update(this.id, await jsonOf("update()", data));
  }

  reschedule(due: DueOptions): Promise<boolean> {
    return this.#source.changes.reschedule(this.id, due);
  }

  runNow(): Promise<boolean> {
    return this.#source.changes.runNow(this.id);
  }

  remove(): Promise<boolean> {
    return this.#source.remove(this.id);
  }

  cancel(): Promise<boolean> {
    return this.#source.cancel(this.id);
  }

  finished<Result>(options?: FinishedOptions): Promise<Result> {
    return this.#source.finished(this.id, options) as Promise<Result>;
  }
}

assertArgumentCount(JobHandle.prototype);

/** Combines a job's stored data and state with the methods of its handle, which send requests to the job's queue. */
export function queuedJob<Data, Result>(
  job: Job<Data>,
  source: JobSource,
  isNew: boolean = false,
): QueuedJob<Data, Result> {
  return Object.assign(new JobHandle(source), job, {
    isNew,
    result: job.result as Result | undefined,
  });
}
