import type { Payloads } from "../../core/codec.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import type { Key } from "../../core/key-path.ts";
import type { TryCall } from "../../throttle/call-options.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import type { JobExplanation } from "../forecast/explain.ts";
import type { JobEta } from "../forecast/forecast.ts";
import { keyTextOf, type Job, type JobFlow, type JobState } from "../job.ts";
import type { Changes, DueOptions } from "../manage/changes.ts";
import type { FinishedOptions } from "../manage/finished.ts";

/** A job in its queue, with methods that read or change the job. Each method sends a request to Redis. */
export interface QueuedJob<Data, Result = unknown> extends Job<Data> {
  /** The name of the job's queue. */
  readonly queue: string;
  /**
   * True if this call of `enqueue` stored the job. False if a job with the same `id` or `dedupeId` existed already:
   * then all fields describe that existing job. Also false for jobs from `job()`.
   */
  readonly isNew: boolean;
  /** What the handler returned, as JSON. Undefined until the job is done, or if the handler returned nothing. */
  readonly result: Result | undefined;
  /** Resolves with the state of the job, or with undefined if the job was removed, or is done and no longer kept. */
  state(): Promise<JobState | undefined>;
  /** Resolves with the log lines of the job's handlers, the oldest first. Empty if the job does not exist. */
  logs(): Promise<readonly string[]>;
  /**
   * Resolves with the latest progress that the job's handler has stored, or with undefined if there is none.
   *
   * @throws {@link CodecError} when this process cannot decode it.
   */
  progress(): Promise<unknown>;
  /**
   * Estimates when the job will start, from the current backlog, limits and workers. Resolves with undefined if the job
   * does not exist, waits for its parents, or has ended. Under a rate limit, the estimate is accurate to about a tenth, as long as the backlog
   * and its tenants do not change. Limits on concurrent calls are ignored, because the duration of handlers is unknown.
   */
  eta(): Promise<JobEta | undefined>;
  /**
   * Returns why the job waits, since when, and until when. A job can wait for its parents, its start time, a worker, the end of a
   * pause, room under a limit, or its turn. Undefined if the job runs, has ended, or does not exist. Also undefined for
   * up to half a second after a worker has fetched the job, while the job waits for its slot.
   */
  explain(): Promise<JobExplanation | undefined>;
  /**
   * Returns the jobs directly before and after this one in its flow: the parents that it waits for, those that have
   * ended, and the jobs that wait for it. All numbers are 0 for a job that belongs to no flow, or does not exist.
   */
  flow(): Promise<JobFlow>;
  /**
   * Replaces the data of a job that waits, is delayed or has failed. Resolves with false if the job does not exist. Job
   * objects that were read earlier keep the old data.
   *
   * @throws {@link JobStateError} when the job runs or is done.
   * @throws {@link InvalidOptionError} when the data is not JSON, is too large, or is rejected by the schema.
   */
  update(data: Data): Promise<boolean>;
  /**
   * Changes when a waiting or delayed job may start. Also works for a job that waits for its next attempt. The job's
   * `maxWaitMs` counts from the new time. Resolves with false if the job runs now, has ended, does not exist, or is a
   * run of a recurring job that has not begun.
   *
   * @throws {@link InvalidOptionError} when the time is invalid.
   */
  reschedule(due: DueOptions): Promise<boolean>;
  /**
   * Makes the job due now if it is delayed or waits for its next attempt. The job then starts in its turn. A job that
   * is already due keeps its position; use `reprioritise` to move it forward. Resolves with false in the same cases as
   * `reschedule`.
   */
  runNow(): Promise<boolean>;
  /**
   * Removes the job. Resolves with false if the job runs now, does not exist, or is a run of a recurring job that has
   * not begun.
   */
  remove(): Promise<boolean>;
  /**
   * Cancels the job. A waiting job is removed. For a running job, in any process, the handler's `signal` is aborted
   * within a second, and the job becomes a dead letter with the reason `"Cancelled: …"`. See `queue.cancel` for
   * details.
   */
  cancel(): Promise<boolean>;
  /**
   * Waits until the job is done, and resolves with what its handler returned, as JSON (null for nothing). Also works if
   * the job is done already. The wait survives an outage of Redis. Many waits share one connection. `Result` is the
   * queue's result type, or the type argument of this call. The result is not checked against this type.
   *
   * @throws {@link JobFailedError} when the job has failed and will not be retried.
   * @throws {@link JobCancelledError} when the job was cancelled.
   * @throws {@link JobMissingError} when the job was removed, or is no longer kept.
   * @throws {@link JobUnfinishedError} when the job has not ended within `timeoutMs`.
   * @throws {@link CodecError} when this process cannot decode the result.
   * @throws {@link StoreUnavailableError} when Redis is unreachable at the start of the wait.
   */
  finished(options?: FinishedOptions): Promise<Result>;
  finished<OfThisJob>(options?: FinishedOptions): Promise<OfThisJob>;
}

/** Our job state for each of BullMQ's states. */
const STATES: Readonly<Record<string, JobState>> = {
  waiting: "waiting",
  prioritized: "waiting",
  "waiting-children": "waiting",
  active: "active",
  delayed: "delayed",
  completed: "done",
  failed: "failed",
};

/** The parts of a queue that the methods of its jobs use. */
export interface JobSource {
  readonly queue: string;
  readonly access: StoredAccess;
  /** True if a job is in the lane of its key. */
  readonly isParked: (id: string) => Promise<boolean>;
  readonly eta: (id: string, about: TryCall) => Promise<JobEta | undefined>;
  readonly explain: (id: string) => Promise<JobExplanation | undefined>;
  readonly flow: (id: string) => Promise<JobFlow>;
  readonly remove: (id: string) => Promise<boolean>;
  readonly cancel: (id: string) => Promise<boolean>;
  readonly changes: Changes;
  readonly payloads: Pick<Payloads, "decode">;
  /** Checks the data that was passed to `update`, and returns the JSON to store. */
  readonly jsonOf: (where: string, data: unknown) => Promise<string>;
  readonly finished: (id: string, options: FinishedOptions | undefined) => Promise<unknown>;
}

/** The methods of a job. This is a class, so that 100,000 jobs from one call share the methods on its prototype. */
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
      // BullMQ's progress is 0 until a handler has stored progress.
      const progress = job?.progress === 0 ? undefined : job?.progress;
      return this.#source.payloads.decode(progress, { kind: "progress", id: this.id });
    });
  }

  eta(): Promise<JobEta | undefined> {
    return this.#source.eta(this.id, { key: keyTextOf(this), cost: this.cost });
  }

  explain(): Promise<JobExplanation | undefined> {
    return this.#source.explain(this.id);
  }

  flow(): Promise<JobFlow> {
    return this.#source.flow(this.id);
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
    queue: source.queue,
    isNew,
    result: job.result as Result | undefined,
  });
}
