import type { RunStore } from "../../core/stores/queue/runs.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { runNameOf } from "../bullmq/stored-job.ts";
import { askOfRun } from "../bullmq/stored-schedule.ts";

/**
 * Runs of recurring jobs that wait for their next attempt: one that is removed makes way for the next of its schedule. An
 * event tells those who wait for its end.
 */
export interface RetriedRuns {
  /** Removes a run that waits for its next attempt: true. False for any other job; the run that is yet to come stays. */
  remove(id: string): Promise<boolean>;
  /** Those of all schedules; how many. */
  removeAll(): Promise<number>;
}

export function createRetriedRuns({
  queue,
  access,
  runs,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly runs: Pick<RunStore, "drop">;
}): RetriedRuns {
  async function remove(id: string): Promise<boolean> {
    const run = runNameOf(id);
    if (run === undefined) return false;
    const { says } = await access.ask(() => askOfRun((next) => runs.drop(queue, { ...run, next })));
    return says === "left out";
  }

  return {
    remove,
    async removeAll() {
      // Of each schedule, the one at hand: others that wait for an attempt are removed like any job.
      const found = await access.ask((stored) => stored.getJobSchedulers(0, -1, true));
      let count = 0;
      for (const { key, next } of found) if (await remove(`repeat:${key}:${next}`)) count += 1;
      return count;
    },
  };
}
