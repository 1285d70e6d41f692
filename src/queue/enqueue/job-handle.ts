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

/** A job in its queue: what was enqueued, and what one can ask of it. Each method asks Redis anew. */
export interface QueuedJob<Data, Result = unknown> extends Job<Data> {
  /**
   * Whether this call of `enqueue` has stored it. False for a job that was there before, with its id or `dedupeId`: then
   * all that the job tells is what is stored of that one. False from `job()`, too.
   */
  readonly isNew: boolean;
  /** What its handler returned, as JSON. Undefined until the job is done, and for nothing. */
  readonly result: Result | undefined;
  /** Where the job is; undefined when it was removed, or is done and no longer kept. */
  state(): Promise<JobState | undefined>;
  /** The lines that its handlers have logged, the oldest first; empty when the job is not there. */
  logs(): Promise<readonly string[]>;
  /** The last progress that its handler has stored; undefined for none. */
  progress(): Promise<unknown>;
  /**
   * When the job is expected to start, by the backlog, the limits and the workers of now; undefined when it is not there, or has
   * ended. Under a rate it is right to about a tenth, while the backlog and its tenants stay as they are. How long
   * handlers take is not known, so limits on calls at once do not count.
   */
  eta(): Promise<JobEta | undefined>;
  /**
   * What the job waits for now, since when and until when: its time, a worker, a pause, a limit, or its turn. Undefined when
   * it runs, has ended, or is not there; and for up to half a second after a worker has got it, which waits for its slot.
   */
  explain(): Promise<JobExplanation | undefined>;
  /**
   * Gives a job other data that waits, is delayed or has failed: true. False when it was not there. What was read of the
   * job before keeps the data that it had.
   *
   * @throws {@link JobStateError} when the job runs or is done.
   * @throws {@link InvalidOptionError} when the data is not JSON, too large, or refused by the schema.
   */
  update(data: Data): Promise<boolean>;
  /**
   * Gives a job another time that waits or is delayed, also for its next attempt: true. Its `maxWaitMs` counts from that
   * time on. False when it runs now, has ended, was not there, or is a run of a recurring job that has not begun.
   *
   * @throws {@link InvalidOptionError} when the time can never be.
   */
  reschedule(due: DueOptions): Promise<boolean>;
  /**
   * Makes a job due that is delayed, or waits for its next attempt: true. It starts in its turn; a job that waits already
   * stays where it is: `reprioritise` puts it before others. False as `reschedule` says.
   */
  runNow(): Promise<boolean>;
  /** Removes the job: true. False when it runs now, was not there, or is a run of a recurring job that has not begun. */
  remove(): Promise<boolean>;
  /**
   * Cancels the job: true. If it waits, it is removed. If it runs, its handler's `signal` is aborted within a second in
   * whatever process that is, and it ends as a dead letter with the reason `"Cancelled: …"`. `queue.cancel` says more.
   */
  cancel(): Promise<boolean>;
  /**
   * Resolves with what its handler returned, as JSON (null for nothing), also when it was done before. The wait
   * outlasts an outage of Redis. Many waits share one connection. `Result` is the queue's, or that of the call; it is
   * not checked.
   *
   * @throws {@link JobFailedError} when it has failed and will not be tried again.
   * @throws {@link JobCancelledError} when it was cancelled.
   * @throws {@link JobMissingError} when it was removed, or is no longer kept.
   * @throws {@link JobUnfinishedError} when it has not ended within `timeoutMs`.
   * @throws {@link StoreUnavailableError} when Redis is away as the wait begins.
   */
  finished(options?: FinishedOptions): Promise<Result>;
  finished<OfThisJob>(options?: FinishedOptions): Promise<OfThisJob>;
}

/** The state for each of BullMQ's. */
const STATES: Readonly<Record<string, JobState>> = {
  waiting: "waiting",
  prioritized: "waiting",
  "waiting-children": "waiting",
  active: "active",
  delayed: "delayed",
  completed: "done",
  failed: "failed",
};

/** What the methods of a job ask its queue. */
export interface JobSource {
  readonly access: StoredAccess;
  /** Whether a job is in the lane of its key. */
  readonly isParked: (id: string) => Promise<boolean>;
  readonly eta: (id: string, about: TryCall) => Promise<JobEta | undefined>;
  readonly explain: (id: string) => Promise<JobExplanation | undefined>;
  readonly remove: (id: string) => Promise<boolean>;
  readonly cancel: (id: string) => Promise<boolean>;
  readonly changes: Changes;
  /** What is stored of data that `update` gets. */
  readonly jsonOf: (where: string, data: unknown) => Promise<string>;
  readonly finished: (id: string, options: FinishedOptions | undefined) => Promise<unknown>;
}

/** A class, since one call may return 100,000 jobs: their methods are on the prototype. */
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

/** A job's data and facts, with methods that ask its queue. */
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
