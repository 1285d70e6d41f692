import type { Queue as StoredQueue } from "bullmq";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { PRIORITIES, PRIORITY, type Priority } from "../../core/input/options.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { QueueCounts } from "../../stores/redis/scripts/queue/steering.ts";
import { codeOf, NOT_THERE } from "../bullmq/errors.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { JOB_STATES, readJobId } from "../job.ts";
import { readOfKey, readOfKeyByHand, type KeyFilter, type OfKeyByHand } from "../options.ts";
import type { OwnedBulkChanges, RetriedRuns } from "./bulk.ts";
import type { NoteBulk } from "./changes.ts";
import type { Flows } from "./flows.ts";
import type { Pages } from "./pages.ts";

/**
 * Operations on a whole queue or on one of its jobs. All methods reject with StoreUnavailableError when Redis is
 * unreachable.
 */
export interface QueueSteering {
  /**
   * Counts the jobs in each state: waiting, active, delayed, failed, and done jobs that are still kept. With a key,
   * counts only the jobs of that key. Counting by key reads all jobs of the queue, a thousand at a time.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  counts(options?: KeyFilter): Promise<QueueCounts>;
  /**
   * Removes all waiting and delayed jobs, a thousand at a time. With a key, removes only the jobs of that key. Running
   * and ended jobs stay, and so do the schedules of recurring jobs. A job that is enqueued during the call may be
   * removed or may stay. Resolves with the number of removed jobs. `sluice.changes()` lists this change.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  drain(options?: OfKeyByHand): Promise<number>;
  /**
   * Removes a job. The jobs that wait for it are cancelled, as by `cancel`. Resolves with false if the job runs now, does not exist, or is a run of a recurring job that has not
   * begun.
   */
  remove(id: string): Promise<boolean>;
  /**
   * Cancels a job. A job that waits for a worker, a slot, a later time or its next attempt is removed. If the job is
   * running, in any process, the handler's `signal` is aborted with {@link JobCancelledError} within a second. When
   * that handler ends, the job becomes a dead letter with the reason `"Cancelled: …"`, whatever the handler returns or
   * throws. If the handler ends before its signal is aborted, its result is kept.
   *
   * The jobs that wait for a removed job are cancelled, too, and so on down the tree, except those with
   * `onParentFailure: "run"`. The jobs that wait for a job that runs see its failure.
   *
   * Resolves with false if the job has ended, does not exist, or is a run of a recurring job that has not begun.
   */
  cancel(id: string): Promise<boolean>;
  /**
   * Changes the priority of a job. The job goes behind other jobs that already have this priority. For a running job,
   * the new priority applies to its next attempt. Resolves with false if the job does not exist or has ended.
   *
   * @throws {@link InvalidOptionError} when there is no such priority.
   */
  reprioritise(id: string, priority: Priority): Promise<boolean>;
}

const PER_ROUND_TRIP = 1_000;
/** A time in ms since 1970 that is later than that of any job, even if the clock of its producer was wrong. */
const END_OF_TIME_MS = 8.64e15;

export function createControl(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: LaneStore;
  readonly flows: Pick<Flows, "settleRemoved">;
  readonly pages: Pick<Pages, "idsOf">;
  readonly bulk: Pick<OwnedBulkChanges, "remove">;
  readonly noteBulk: NoteBulk;
  readonly retriedRuns: RetriedRuns;
  /** Must be called with the ids of removed jobs. */
  readonly onRemoved: (ids: readonly string[]) => Promise<void>;
}): QueueSteering {
  const { queue, access, lanes, flows, retriedRuns, pages, bulk, noteBulk, onRemoved } = parts;

  async function countsOf(key: string): Promise<QueueCounts> {
    const counts = { waiting: 0, active: 0, delayed: 0, done: 0, failed: 0 };
    for (const state of JOB_STATES) {
      for await (const ids of pages.idsOf({ state, key })) counts[state] += ids.length;
    }
    return counts;
  }

  async function drainAll(): Promise<number> {
    let count = await retriedRuns.removeAll();
    for (const state of ["prioritized", "wait", "delayed"] as const) {
      count += await drainState(access, state, onRemoved);
    }
    await access.ask(() => lanes.clear({ queue }));
    return count;
  }

  async function remove(id: string): Promise<boolean> {
    if (await retriedRuns.remove(id)) return true;
    return (await access.ask(() => lanes.remove({ queue, state: "any", ids: [id] }))).length > 0;
  }

  return {
    async counts(given) {
      const { key } = readOfKey("counts()", given);
      return key === undefined ? access.ask(() => lanes.counts({ queue })) : countsOf(key);
    },
    async drain(given) {
      assertNoUndefined("drain()", given);
      const { key, ...byHand } = readOfKeyByHand("drain()", given);
      const drain = { action: "drain", filter: { key }, ...byHand } as const;
      return noteBulk(drain, () => (key === undefined ? drainAll() : bulk.remove({ key })));
    },
    async remove(given) {
      const id = readJobId("remove()", given);
      if (id === undefined || !(await remove(id))) return false;
      await flows.settleRemoved(queue, [id]);
      return true;
    },
    async cancel(given) {
      const id = readJobId("cancel()", given);
      if (id === undefined) return false;
      if (!(await access.ask(() => cancelJob({ queue, lanes }, id, () => remove(id)))))
        return false;
      await flows.settleRemoved(queue, [id]);
      return true;
    },
    async reprioritise(given, priority) {
      const id = readJobId("reprioritise()", given);
      if (!PRIORITY.safeParse(priority).success) {
        const remedy = PRIORITY.safeParse(priority).error!.issues[0]!.message;
        const where = "reprioritise()";
        throw new InvalidOptionError({ where, option: "priority", value: priority, remedy });
      }
      if (id === undefined) return false;
      return access.ask(async (stored) => {
        const isChanged = await changePriority(stored, id, priority);
        if (isChanged) await lanes.join({ queue, jobs: [{ id, isAnew: true }] });
        return isChanged;
      });
    },
  };
}

/**
 * Removes the jobs in one state, in batches. BullMQ's `drain` removes all jobs at once, which blocks Redis: for many
 * seconds with 1,000,000 jobs (as in OptimalBits/bull#1303; checked with bullmq 6.7.0).
 */
async function drainState(
  access: StoredAccess,
  state: "prioritized" | "wait" | "delayed",
  onRemoved: (ids: readonly string[]) => Promise<void>,
): Promise<number> {
  let count = 0;
  for (let limit = PER_ROUND_TRIP; ;) {
    const ids = await access.ask((stored) =>
      stored.getBackend().cleanJobsByState(state, END_OF_TIME_MS, limit),
    );
    await onRemoved(ids);
    count += ids.length;
    if (ids.length > 0) continue;
    // Planned runs of recurring jobs are not removed. If a whole batch consists of such runs, a larger batch finds the
    // jobs behind them.
    const left = await access.ask((stored) => stored.getJobCountByTypes(state));
    if (left <= limit) return count;
    limit *= 2;
  }
}

async function changePriority(
  stored: StoredQueue,
  id: string,
  priority: Priority,
): Promise<boolean> {
  const backend = stored.getBackend();
  const state = await backend.getState(id);
  if (state === "unknown" || state === "completed" || state === "failed") return false;
  try {
    await backend.changePriority(id, PRIORITIES.indexOf(priority) + 1);
    return true;
  } catch (error) {
    if (codeOf(error) === NOT_THERE) return false;
    throw error;
  }
}

/** How often to try to remove a job that moves between a worker and the queue in the meantime. */
const MOST_ROUNDS = 5;

/**
 * Cancels a job. Returns false if the job has ended or does not exist. `remove` must remove a pending job, and return
 * whether it removed the job.
 */
async function cancelJob(
  { queue, lanes }: { readonly queue: string; readonly lanes: Pick<LaneStore, "cancel"> },
  id: string,
  remove: () => Promise<boolean>,
): Promise<boolean> {
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const found = await lanes.cancel({ queue, id });
    if (found === "scheduled") return remove();
    if (found === "held") return true;
    // After the first round, no worker begins the job. If the job is gone in a later round, it ended after it was
    // cancelled.
    if (found === "over") return round > 0;
    if (await remove()) return true;
  }
  return true;
}
