import * as z from "zod";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import { KEY, readOptions, wholeNumber } from "../../core/input/options.ts";
import { readWhoAndWhy, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { RunStore, LaneStore } from "../../stores/redis/queue/store.ts";
import type { JobMove } from "../../stores/redis/scripts/queue/steering.ts";
import { runNameOf } from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { askOfRun } from "../bullmq/stored-schedule.ts";
import { readDue, type Changes, type DueOptions, type NoteBulk } from "./changes.ts";
import type { JobsFilter, Pages } from "./pages.ts";

/** Selects the jobs to remove. A job must match all given fields. */
export interface RemoveFilter extends JobsFilter {
  /** The state of the jobs. Defaults to waiting and delayed jobs. */
  readonly state?: "waiting" | "delayed" | "done" | "failed" | undefined;
  /** The most jobs to remove. Defaults to no limit. */
  readonly limit?: number | undefined;
}

/** Selects the jobs to reschedule. A job must match all given fields. */
export interface RescheduleFilter extends JobsFilter {
  /** The state of the jobs. Defaults to waiting and delayed jobs. */
  readonly state?: "waiting" | "delayed" | undefined;
  /** The most jobs to reschedule. Defaults to no limit. */
  readonly limit?: number | undefined;
}

/**
 * Changes all jobs that match a filter. Redis changes a few jobs at a time, so that it can serve other requests in
 * between. A job that a worker fetches during that time is not changed. If a method rejects partway, call it again.
 * `sluice.changes()` lists these changes. Both methods reject with StoreUnavailableError when Redis is unreachable.
 */
export interface BulkChanges {
  /**
   * Removes the jobs that match, except for runs of recurring jobs that have not begun. Resolves with the number of
   * removed jobs.
   *
   * @throws {@link InvalidOptionError} when the filter can never match.
   */
  removeJobs(filter: RemoveFilter, byHand?: WhoAndWhy): Promise<number>;
  /**
   * Reschedules the jobs that match, as `job.reschedule` does. Resolves with the number of rescheduled jobs.
   *
   * @throws {@link InvalidOptionError} when the filter can never match, or the time is invalid.
   */
  rescheduleJobs(filter: RescheduleFilter, due: DueOptions, byHand?: WhoAndWhy): Promise<number>;
}

/** How many jobs one script removes or reschedules. Redis is blocked while the script runs. */
const CHANGED_AT_ONCE = 100;

type PendingState = "waiting" | "delayed";
type EndedState = "done" | "failed";

const PENDING: readonly PendingState[] = ["delayed", "waiting"];

function filterOf(states: readonly (PendingState | EndedState)[]) {
  const known = states.map((state) => `"${state}"`).join(", ");
  return z.strictObject({
    state: z
      .enum(states, { error: `give one of ${known}; jobs that run stay as they are` })
      .optional(),
    key: KEY_PATH.optional(),
    name: KEY.optional(),
    limit: wholeNumber(1, 1_000_000_000, "jobs").optional(),
  });
}

const REMOVED = filterOf([...PENDING, "done", "failed"]);
const MOVED = filterOf(PENDING);

/** A validated filter, with its key encoded as text. */
type ReadFilter = Omit<RemoveFilter, "key"> & { readonly key?: string | undefined };

export interface OwnedBulkChanges extends BulkChanges {
  /** {@link BulkChanges.removeJobs} for a filter that was validated already. */
  remove(filter: ReadFilter): Promise<number>;
}

export function createBulkChanges({
  queue,
  access,
  lanes,
  pages,
  changes,
  retriedRuns,
  noteBulk,
  onRemoved,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "remove">;
  readonly pages: Pick<Pages, "idsOf">;
  readonly changes: Pick<Changes, "move">;
  readonly retriedRuns: Pick<RetriedRuns, "remove">;
  readonly noteBulk: NoteBulk;
  /** Must be called with the ids of removed jobs. */
  readonly onRemoved: (ids: readonly string[]) => Promise<void>;
}): OwnedBulkChanges {
  /** Calls `act` with batches of the jobs that match, until it has succeeded for `limit` jobs. */
  async function forEach(
    { state, limit = Infinity, ...filter }: ReadFilter,
    act: (ids: readonly string[], state: PendingState | EndedState) => Promise<number>,
  ): Promise<number> {
    let count = 0;
    for (const each of state === undefined ? PENDING : [state]) {
      for await (const found of pages.idsOf({ ...filter, state: each })) {
        for (let at = 0; at < found.length && count < limit;) {
          const ids = found.slice(at, at + Math.min(CHANGED_AT_ONCE, limit - count));
          count += await act(ids, each);
          at += ids.length;
        }
        if (count >= limit) return count;
      }
    }
    return count;
  }

  async function removeAll(
    ids: readonly string[],
    state: PendingState | EndedState,
  ): Promise<number> {
    const from = state === "done" || state === "failed" ? state : "pending";
    const removed = await access.ask(() => lanes.remove({ queue, state: from, ids }));
    await onRemoved(removed);
    let count = removed.length;
    if (from !== "pending" || count === ids.length) return count;
    for (const id of ids) if (!removed.includes(id) && (await retriedRuns.remove(id))) count += 1;
    return count;
  }

  const remove = (filter: ReadFilter): Promise<number> => forEach(filter, removeAll);

  return {
    remove,
    async removeJobs(given, byHand) {
      assertNoUndefined("removeJobs()", given);
      const filter = readOptions("removeJobs()", REMOVED, given) as ReadFilter;
      const said = readWhoAndWhy("removeJobs()", byHand);
      return noteBulk({ action: "remove", filter: { ...filter }, ...said }, () => remove(filter));
    },
    async rescheduleJobs(given, due, byHand) {
      const where = "rescheduleJobs()";
      assertNoUndefined(where, given);
      const filter = readOptions(where, MOVED, given) as ReadFilter;
      // Uses the same time for all jobs, so that a job that is found twice is not moved twice.
      let at: JobMove["at"] = readDue(where, due);
      const { at: dueAt, delayMs } = due;
      const about = { ...filter, at: dueAt === undefined ? undefined : Number(dueAt), delayMs };
      const said = { action: "reschedule", ...readWhoAndWhy(where, byHand) } as const;
      return noteBulk({ ...said, filter: about }, () =>
        forEach(filter, async (ids) => {
          const { moved, atMs } = await changes.move(ids, at);
          at = { ms: atMs };
          return moved;
        }),
      );
    },
  };
}

/**
 * Removes runs of recurring jobs that wait for their next attempt. The next run of the same schedule replaces the
 * removed run. An event notifies callers of `finished()` that the run was removed.
 */
export interface RetriedRuns {
  /**
   * Removes a run that waits for its next attempt. Resolves with false for any other job, including a run that has not
   * begun.
   */
  remove(id: string): Promise<boolean>;
  /** Removes the runs of all schedules that wait for their next attempt. Resolves with the number of removed runs. */
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
    const { says } = await access.ask(() => askOfRun((next) => runs.drop({ queue, ...run, next })));
    return says === "left out";
  }

  return {
    remove,
    async removeAll() {
      // Removes only the current run of each schedule. Other runs that wait for an attempt are removed like ordinary
      // jobs.
      const found = await access.ask((stored) => stored.getJobSchedulers(0, -1, true));
      let count = 0;
      for (const { key, next } of found) if (await remove(`repeat:${key}:${next}`)) count += 1;
      return count;
    },
  };
}
