import type { TryOptions } from "../throttle/draw-options.ts";
import type { FinishedOptions } from "./finished.ts";
import type { JobEta } from "./outlook.ts";
import type { JobActions, JobState } from "./queued-job.ts";
import type { StoredAccess } from "./stored-queue.ts";

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
