import * as z from "zod";
import { KEY, readOptions, wholeNumber } from "../../core/options.ts";
import type { JobMove } from "../../core/queue/steering.ts";
import type { LaneStore } from "../../core/queue/store.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { readDue, type Changes, type DueOptions } from "./changes.ts";
import type { JobsFilter, Pages } from "./pages.ts";

/** Which jobs are removed: those that match all that is given. */
export interface RemoveFilter extends JobsFilter {
  /** Where the jobs are. Without it, those are meant that wait or are delayed. */
  readonly state?: "waiting" | "delayed" | "done" | "failed" | undefined;
  /** How many at most. Defaults to no limit. */
  readonly limit?: number | undefined;
}

/** Which jobs get another time: those that match all that is given. */
export interface RescheduleFilter extends JobsFilter {
  /** Where the jobs are. Without it, those are meant that wait or are delayed. */
  readonly state?: "waiting" | "delayed" | undefined;
  /** How many at most. Defaults to no limit. */
  readonly limit?: number | undefined;
}

/**
 * Changes of many jobs by a filter. Redis is asked for a few at a time, so that calls and other jobs go on meanwhile. A job
 * that a worker takes meanwhile stays as it is. A call that rejects in the middle can be repeated. Both reject with
 * StoreUnavailableError when Redis is away.
 */
export interface BulkChanges {
  /**
   * Removes the jobs that match. Runs of recurring jobs that are still to come stay. Resolves with how many were removed.
   *
   * @throws {@link InvalidOptionError} when the filter can never match.
   */
  removeJobs(filter: RemoveFilter): Promise<number>;
  /**
   * Gives the jobs that match another time, as `job.reschedule` does. Resolves with how many have got another one.
   *
   * @throws {@link InvalidOptionError} when the filter can never match, or the time can never be.
   */
  rescheduleJobs(filter: RescheduleFilter, due: DueOptions): Promise<number>;
}

/** How many jobs are removed at a time: each is a script of its own. */
const REMOVED_AT_ONCE = 50;
/** How many jobs one script moves: Redis serves no other request meanwhile. */
const MOVED_AT_ONCE = 100;

type PendingState = "waiting" | "delayed";
type EndedState = "done" | "failed";

const PENDING: readonly PendingState[] = ["delayed", "waiting"];
/** BullMQ's names of the states of ended jobs. */
const ENDED = { done: "completed", failed: "failed" } as const;

function filterOf(states: readonly (PendingState | EndedState)[]) {
  const known = states.map((state) => `"${state}"`).join(", ");
  return z.strictObject({
    state: z
      .enum(states, { error: `give one of ${known}; jobs that run stay as they are` })
      .optional(),
    key: KEY.optional(),
    name: KEY.optional(),
    limit: wholeNumber(1, 1_000_000_000, "jobs").optional(),
  });
}

const REMOVED = filterOf([...PENDING, "done", "failed"]);
const MOVED = filterOf(PENDING);

export interface OwnedBulkChanges extends BulkChanges {
  /** {@link BulkChanges.removeJobs} with a filter that was read already. */
  remove(filter: RemoveFilter): Promise<number>;
}

export function createBulkChanges({
  queue,
  access,
  lanes,
  pages,
  changes,
  onRemoved,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "withdraw">;
  readonly pages: Pick<Pages, "idsOf">;
  readonly changes: Pick<Changes, "move">;
  readonly onRemoved: (ids: readonly string[]) => void;
}): OwnedBulkChanges {
  /** Acts on the jobs that match, some at a time, until `limit` acts have succeeded. */
  async function forEach(
    { state, limit = Infinity, ...filter }: RemoveFilter,
    atOnce: number,
    act: (ids: readonly string[], state: PendingState | EndedState) => Promise<number>,
  ): Promise<number> {
    let count = 0;
    for (const each of state === undefined ? PENDING : [state]) {
      for await (const found of pages.idsOf({ ...filter, state: each })) {
        for (let at = 0; at < found.length && count < limit;) {
          const ids = found.slice(at, at + Math.min(atOnce, limit - count));
          count += await act(ids, each);
          at += ids.length;
        }
        if (count >= limit) return count;
      }
    }
    return count;
  }

  /** First they are taken out of where they are: of two who act on a job at once, one gets it. */
  async function removeAll(
    ids: readonly string[],
    state: PendingState | EndedState,
  ): Promise<number> {
    const taken =
      state === "waiting" || state === "delayed"
        ? await access.ask(() => lanes.withdraw(queue, ids))
        : await takeEnded(ids, ENDED[state]);
    await access.ask((stored) => Promise.all(taken.map((id) => stored.remove(id))));
    onRemoved(taken);
    return taken.length;
  }

  async function takeEnded(
    ids: readonly string[],
    state: "failed" | "completed",
  ): Promise<readonly string[]> {
    const isTaken = await Promise.all(ids.map((id) => access.takeEnded(id, state)));
    return ids.filter((_id, index) => isTaken[index]);
  }

  const remove = (filter: RemoveFilter): Promise<number> =>
    forEach(filter, REMOVED_AT_ONCE, removeAll);

  return {
    remove,
    async removeJobs(given) {
      return remove(readOptions("removeJobs()", REMOVED, given) as RemoveFilter);
    },
    async rescheduleJobs(given, due) {
      const where = "rescheduleJobs()";
      const filter = readOptions(where, MOVED, given) as RescheduleFilter;
      // One time for all: one that is met twice has got it already.
      let at: JobMove["at"] = readDue(where, due);
      return forEach(filter, MOVED_AT_ONCE, async (ids) => {
        const { moved, atMs } = await changes.move(ids, at);
        at = { ms: atMs };
        return moved;
      });
    },
  };
}
