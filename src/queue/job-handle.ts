import type { TryOptions } from "../throttle/call-options.ts";
import type { Cost } from "../throttle/costs.ts";
import type { JobEta } from "./forecast/forecast.ts";
import type { Job } from "./job.ts";
import type { FinishedOptions } from "./manage/finished.ts";
import type { StoredAccess } from "./bullmq/stored-queue.ts";

/** Where a job is. */
export type JobState = "waiting" | "active" | "delayed" | "done" | "failed";

/** A job in its queue: what was enqueued, and what one can ask of it. Each method asks Redis anew. */
export interface QueuedJob<Data, Result = unknown> extends Job<Data> {
  /** Where the job is; undefined when it was removed, or is done for so long that it is no longer kept. */
  state(): Promise<JobState | undefined>;
  /** What its handlers have logged, the oldest first; empty when the job is not there. */
  logs(): Promise<readonly string[]>;
  /** What its handler has told last of how far it is; undefined for nothing. */
  progress(): Promise<unknown>;
  /**
   * When the job is expected to start, as the backlog and the limits stand now; undefined when it is not
   * there, or has ended. Within a tenth or so of the truth under a rate, while the backlog and its tenants stay as
   * they are; how long handlers take is not known, so limits on calls at once do not count.
   */
  eta(): Promise<JobEta | undefined>;
  /** Removes the job: true. False when it runs now, was not there, or is the next run of a recurring job. */
  remove(): Promise<boolean>;
  /**
   * Resolves with what its handler returned, as JSON holds it (null for nothing), also when it was
   * done before. The wait outlasts an outage of Redis. Many waits share one connection. `Result` is what the
   * queue says, or the call: nobody checks it.
   *
   * @throws {@link JobFailedError} when it has failed for good.
   * @throws {@link JobMissingError} when it was removed, or is no longer kept.
   * @throws {@link JobUnfinishedError} when it has not ended within `timeoutMs`.
   * @throws {@link StoreUnavailableError} when Redis is away as the wait begins.
   */
  finished(options?: FinishedOptions): Promise<Result>;
  finished<OfThisJob>(options?: FinishedOptions): Promise<OfThisJob>;
}

/** What a queue does with a job of its, by id. */
export interface JobActions {
  state(id: string): Promise<JobState | undefined>;
  logs(id: string): Promise<readonly string[]>;
  progress(id: string): Promise<unknown>;
  eta(id: string, about: TryOptions): Promise<JobEta | undefined>;
  remove(id: string): Promise<boolean>;
  finished(id: string, options: FinishedOptions | undefined): Promise<unknown>;
}

/** A class, since one call may return 100,000 of them: their methods are on the prototype. */
class JobHandle {
  declare readonly id: string;
  declare readonly key: string | undefined;
  declare readonly cost: Cost | undefined;
  readonly #actions: JobActions;

  constructor(actions: JobActions) {
    this.#actions = actions;
  }

  state(): Promise<JobState | undefined> {
    return this.#actions.state(this.id);
  }

  logs(): Promise<readonly string[]> {
    return this.#actions.logs(this.id);
  }

  progress(): Promise<unknown> {
    return this.#actions.progress(this.id);
  }

  eta(): Promise<JobEta | undefined> {
    return this.#actions.eta(this.id, { key: this.key, cost: this.cost });
  }

  remove(): Promise<boolean> {
    return this.#actions.remove(this.id);
  }

  finished<Result>(options?: FinishedOptions): Promise<Result> {
    return this.#actions.finished(this.id, options) as Promise<Result>;
  }
}

/** A job's facts, with methods that ask its queue. */
export function queuedJob<Data, Result>(
  job: Job<Data>,
  actions: JobActions,
): QueuedJob<Data, Result> {
  return Object.assign(new JobHandle(actions), job);
}

/** BullMQ's states, and ours. */
const STATES: Readonly<Record<string, JobState>> = {
  waiting: "waiting",
  prioritized: "waiting",
  "waiting-children": "waiting",
  active: "active",
  delayed: "delayed",
  completed: "done",
  failed: "failed",
};

export interface JobActionParts {
  readonly eta: (id: string, about: TryOptions) => Promise<JobEta | undefined>;
  /** Whether a job stands in the lane of its key. */
  readonly isParked: (id: string) => Promise<boolean>;
  readonly remove: (id: string) => Promise<boolean>;
  readonly until: (id: string, options: FinishedOptions | undefined) => Promise<unknown>;
}

/** What can be asked of a job by its id. */
export function createJobActions(access: StoredAccess, parts: JobActionParts): JobActions {
  return {
    state: (id) =>
      access.ask(async (stored) => {
        const state = STATES[await stored.getJobState(id)];
        return state === "delayed" && (await parts.isParked(id)) ? "waiting" : state;
      }),
    logs: (id) => access.ask(async (stored) => (await stored.getJobLogs(id)).logs),
    progress: (id) =>
      access.ask(async (stored) => {
        const job = await stored.getJob(id);
        // Before a handler has told anything, BullMQ says 0.
        return job?.progress === 0 ? undefined : job?.progress;
      }),
    remove: parts.remove,
    eta: parts.eta,
    finished: parts.until,
  };
}
