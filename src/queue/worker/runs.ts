/**
 * What a worker does beside all else with a run of a recurring job (`lua/lib/runs/`):
 *
 *     fetched ──▶ may it wait? ──▶ has its slot ──▶ may it begin? ──▶ handler ──▶ stored ──▶ settled
 *                   │ no                              │ no
 *                   ▼                                 ▼
 *                 left out: it is gone, or held back by the one before it
 *
 * As it begins, the next run is planned. A run that expires is left out too, and counts as missed. One that fails without
 * a beginning is a dead letter, like any job.
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
  /** Whether a run that was fetched may wait for its slot. */
  mayWait(run: RunName): Promise<boolean>;
  /** Whether a run that has its slot may begin; the next one is planned then. */
  mayBegin(run: RunName, token: string): Promise<boolean>;
  /** Whether a run that failed before it began is to be a dead letter. */
  mayFail(run: RunName, token: string, failure: unknown): Promise<boolean>;
  /** Counts a run that has not begun as missed: true. False if it is to go on. */
  leaveOut(run: RunName): Promise<boolean>;
  /** Takes note of what was stored of a run that this worker has begun, by the token of its lock. Never rejects. */
  readonly settle: (token: string) => Promise<void> | undefined;
  /** Takes note of runs that were recovered from workers that died. Never rejects. */
  readonly recover: (ids: readonly string[]) => Promise<void>;
}

/** The run that a job is; undefined for any other job. */
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
  /** Those that have begun here as runs of their schedules and are not settled yet. */
  const begun = new Map<string, RunName>();

  /** Asks until no more is to be computed. Undefined if Redis does not say: the job comes back with its lock's end. */
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
      if (connection.isReady()) warn(run, "Could not store how a recurring job went", error);
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
      // It is to be tried again, and its schedule waits for it.
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
      // Not async: called with the end of each job.
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
