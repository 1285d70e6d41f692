import type { Queue as StoredQueue } from "bullmq";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { PRIORITIES, PRIORITY, type Priority } from "../../core/input/options.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { QueueCounts } from "../../stores/redis/scripts/queue/steering.ts";
import { codeOf, NOT_THERE } from "../bullmq/errors.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { JOB_STATES, readJobId } from "../job.ts";
import { readOfKey, readOfKeyByHand, type OfKey, type OfKeyByHand } from "../options.ts";
import type { OwnedBulkChanges, RetriedRuns } from "./bulk.ts";
import type { NoteBulk } from "./changes.ts";
import type { Pages } from "./pages.ts";

/**
 * Operations on a whole queue or on one of its jobs. All reject with StoreUnavailableError when Redis is unreachable.
 */
export interface QueueSteering {
  /**
   * Counts the jobs that wait, run, are delayed, have failed, or are done and still kept. With a key, it counts the
   * jobs of that key: it then reads all jobs of the queue, a thousand at a time.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  counts(options?: OfKey): Promise<QueueCounts>;
  /**
   * Removes all jobs that wait or are delayed, a thousand at a time. Running and ended jobs stay, and so do the
   * schedules of recurring jobs. A job that is enqueued during the call is removed, or waits as usual. With a key,
   * removes the jobs of that key. Resolves with the number of removed jobs. `sluice.changes()` lists it.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  drain(options?: OfKeyByHand): Promise<number>;
  /**
   * Removes a job. Resolves with false if it runs now, does not exist, or is a run of a recurring job that has not
   * begun.
   */
  remove(id: string): Promise<boolean>;
  /**
   * Cancels a job. A job that waits for a worker, a slot, a later time or its next attempt is removed. In a running
   * job, the handler's `signal` is aborted with {@link JobCancelledError} within a second, in any process. Once that
   * handler has ended, whatever it returns or throws, the job becomes a dead letter with the reason `"Cancelled: …"`. A
   * handler that ends before its signal is aborted keeps its result.
   *
   * Resolves with false if the job has ended, does not exist, or is a run of a recurring job that has not begun.
   */
  cancel(id: string): Promise<boolean>;
  /**
   * Gives a job another priority, behind the jobs that already have it. Resolves with false if the job does not exist
   * or has ended. A running job gets it for its next attempt.
   *
   * @throws {@link InvalidOptionError} when there is no such priority.
   */
  reprioritise(id: string, priority: Priority): Promise<boolean>;
}

const PER_ROUND_TRIP = 1_000;
/** Later than the time of any job, whatever its producer's clock said; in ms since 1970. */
const END_OF_TIME_MS = 8.64e15;

export function createControl(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: LaneStore;
  readonly pages: Pick<Pages, "idsOf">;
  readonly bulk: Pick<OwnedBulkChanges, "remove">;
  readonly noteBulk: NoteBulk;
  readonly retriedRuns: RetriedRuns;
  readonly onRemoved: (ids: readonly string[]) => void;
}): QueueSteering {
  const { queue, access, lanes, retriedRuns, pages, bulk, noteBulk, onRemoved } = parts;

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
      if (id === undefined) return false;
      return remove(id);
    },
    async cancel(given) {
      const id = readJobId("cancel()", given);
      if (id === undefined) return false;
      return access.ask(() => cancelJob({ queue, lanes }, id, () => remove(id)));
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
 * Removes the jobs of a state in batches. BullMQ's `drain` removes all at once and blocks Redis for that time: many
 * seconds for 1,000,000 jobs (as in OptimalBits/bull#1303; checked with bullmq 6.7.0).
 */
async function drainState(
  access: StoredAccess,
  state: "prioritized" | "wait" | "delayed",
  onRemoved: (ids: readonly string[]) => void,
): Promise<number> {
  let count = 0;
  for (let limit = PER_ROUND_TRIP; ;) {
    const ids = await access.ask((stored) =>
      stored.getBackend().cleanJobsByState(state, END_OF_TIME_MS, limit),
    );
    onRemoved(ids);
    count += ids.length;
    if (ids.length > 0) continue;
    // Planned runs of recurring jobs stay. If a thousand of them come first, the jobs to remove lie behind them.
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

/** How often a job may move between a worker and the queue while it is being removed. */
const MOST_ROUNDS = 5;

/**
 * Cancels a job. `remove` removes a pending job, and returns whether it did. False if the job has ended or does not
 * exist.
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
    // After the first round no worker begins the job, so whatever removed it did so after it was cancelled.
    if (found === "over") return round > 0;
    if (await remove()) return true;
  }
  return true;
}
