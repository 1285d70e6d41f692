/**
 * The additional steps of a worker for a run of a recurring job (`lua/lib/runs/`):
 *
 *     fetched ──▶ may it wait? ──▶ has its slot ──▶ may it begin? ──▶ handler ──▶ stored ──▶ settled
 *                   │ no                              │ no
 *                   ▼                                 ▼
 *                 skipped: it is gone, or the run before it holds it back
 *
 * When a run begins, the next run is planned. A run that expires is also skipped, and counts as missed. A run that
 * fails before it begins becomes a dead letter, like any other job.
 */
import { reasonOf } from "../../core/describe.ts";
import type { RunName, RunStep } from "../../stores/redis/scripts/queue/runs.ts";
import { isFinalError } from "../bullmq/errors.ts";
import { runNameOf, scheduleOf } from "../bullmq/stored-job.ts";
import { askOfRun } from "../bullmq/stored-schedule.ts";
import type { HeldJob } from "../bullmq/stored-worker.ts";
import type { WorkerContext } from "./context.ts";
import { isExpiry } from "./outcome.ts";

export interface ScheduledRuns {
  /** True if a fetched run may wait for its slot. */
  mayWait(run: RunName): Promise<boolean>;
  /** True if a run that has its slot may begin. If so, the next run is planned. */
  mayBegin(run: RunName, token: string): Promise<boolean>;
  /** True if a run that failed before it began must become a dead letter. */
  mayFail(run: RunName, token: string, failure: unknown): Promise<boolean>;
  /** Skips a run that has not begun, and counts it as missed. Resolves with false if the run was not skipped. */
  leaveOut(run: RunName): Promise<boolean>;
  /**
   * Records in the schedule that the outcome of a run was stored. Finds the run by the token of its lock, among the
   * runs that began in this worker. Never rejects.
   */
  readonly settle: (token: string) => Promise<void> | undefined;
  /** Records in their schedules that runs were recovered from dead workers. Never rejects. */
  readonly recover: (ids: readonly string[]) => Promise<void>;
}

/** Returns the schedule's name and the job's id if a job is a run of a schedule. Undefined for any other job. */
export function runOf({ id, fields }: HeldJob): RunName | undefined {
  const name = scheduleOf(fields);
  return name === undefined ? undefined : { name, id };
}

export function createScheduledRuns({
  queue,
  connection,
  logger,
}: Pick<WorkerContext, "queue" | "connection" | "logger">): ScheduledRuns {
  const { runs } = connection;
  /** The runs that began in this worker and are not settled yet. */
  const begun = new Map<string, RunName>();

  /**
   * Asks Redis whether a run may take the next step, and repeats the request as long as Redis needs another time of the
   * schedule. Resolves with undefined if Redis does not reply. The job then returns to the queue when its lock expires.
   */
  async function ask(run: RunName, step: RunStep["step"]) {
    try {
      return await askOfRun((next) => runs.begin({ queue, ...run, step, next }));
    } catch (error) {
      warn(run, "Could not ask Redis whether a recurring job may run; it comes back", error);
      return undefined;
    }
  }

  async function begin(run: RunName, token: string): Promise<boolean> {
    const answer = await ask(run, "begin");
    if (answer?.says !== "go") return false;
    if (answer.isOfSchedule) begun.set(token, run);
    return true;
  }

  async function settle(run: RunName, hasBegun: boolean): Promise<void> {
    try {
      await runs.settle({ queue, ...run, hasBegun });
    } catch (error) {
      if (connection.isReady()) warn(run, "Could not store the outcome of a recurring job", error);
    }
  }

  function warn({ name, id }: RunName, problem: string, error: unknown): void {
    const reason = reasonOf(error);
    logger.warn({ queue, schedule: name, job: id, reason }, `${problem}: ${reason}`);
  }

  return {
    mayWait: async (run) => (await ask(run, "look"))?.says === "go",
    mayBegin: begin,
    async mayFail(run, token, failure) {
      // The failure is not final, so the run will be retried. Its schedule waits for the retry.
      if (!isFinalError(failure)) return true;
      if (!isExpiry(failure)) return begin(run, token);
      const answer = await ask(run, "miss");
      if (answer?.says !== "left out") return answer?.says === "go";
      const problem = `A run of "${run.name}" was missed: it could not start within maxWaitMs.`;
      logger.warn({ queue, schedule: run.name, job: run.id }, problem);
      return false;
    },
    leaveOut: async (run) => (await ask(run, "miss"))?.says === "left out",
    settle(token) {
      // Not async, to avoid a promise at the end of each job.
      const run = begun.get(token);
      if (run === undefined) return undefined;
      begun.delete(token);
      return settle(run, true);
    },
    async recover(ids) {
      for (const id of ids) {
        const run = runNameOf(id);
        if (run !== undefined) await settle(run, false);
      }
    },
  };
}
