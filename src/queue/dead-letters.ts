import type { Queue as StoredQueue } from "bullmq";
import { isMeant, readFilter, type FailedFilter, type ReadFilter } from "./failed-filter.ts";
import { readJobId } from "./job-id.ts";
import { readJob, type Stored } from "./job.ts";
import { replayJob } from "./replay-job.ts";
import type { StoredAccess } from "./stored-queue.ts";

/** The jobs that have failed for good. They are kept until somebody has replayed or purged them. */
export interface DeadLetters<Data> {
  /**
   * The failed jobs that a filter means, the newest first, 100 unless `limit` says otherwise.
   * Redis is read in batches, back to `since`, until there are enough of them.
   *
   * @throws {@link InvalidOptionError} when the filter can never work.
   * @throws {@link StoreUnavailableError} when Redis is away.
   */
  failed(filter?: FailedFilter): Promise<FailedJob<Data>[]>;
  /**
   * Puts failed jobs back into the queue: the one of this id, or all that a filter means (`{}`: all).
   * Each runs again from attempt 1, on a slot of its own, and its `maxWaitMs` counts anew. Resolves with
   * how many were put back. A job that is no longer a dead letter is left alone, so it does no harm to
   * say it twice, or in two processes at once. Rejects as `failed` does, in the middle of many perhaps:
   * then say it again.
   */
  replay(idOrFilter: string | FailedFilter): Promise<number>;
  /** Removes failed jobs, by id or filter as `replay` does. Resolves with how many were removed. */
  purge(idOrFilter: string | FailedFilter): Promise<number>;
}

/** A job that has failed for good. */
export interface FailedJob<Data> {
  readonly id: string;
  readonly key: string | undefined;
  readonly data: Data;
  /** The message of what its last attempt threw; `"Expired: …"` if it did not start in time. */
  readonly reason: string;
  /** In ms since 1970, on the clock of the worker that ran it. */
  readonly failedAtMs: number;
  /** How many attempts have failed: `5`. */
  readonly attempts: number;
  /** Where its last attempt threw; undefined if that is not known. */
  readonly stack: string | undefined;
}

const SHOWN = 100;
const PER_ROUND_TRIP = 100;

export function createDeadLetters<Data>(
  access: StoredAccess,
  onRemoved: (ids: readonly string[]) => void,
): DeadLetters<Data> {
  async function purgeJob(id: string): Promise<boolean> {
    // Taken out first: a job that somebody else replays at this moment is no dead letter any more, and must stay.
    if (!(await access.takeFailed(id))) return false;
    await access.ask((stored) => stored.remove(id));
    onRemoved([id]);
    return true;
  }

  /** Does something to each job that is meant; resolves with how often it did. */
  async function forEach(
    where: string,
    given: string | FailedFilter,
    act: (id: string) => Promise<boolean>,
  ): Promise<number> {
    if (typeof given === "string") {
      const id = readJobId(where, given);
      return id === undefined ? 0 : Number(await act(id));
    }
    const filter = readFilter(where, given);
    let count = 0;
    let left = filter.limit ?? Infinity;
    for await (const batch of meant(access, filter)) {
      const ids = batch.slice(0, left).map(({ id }) => id!);
      const acted = await Promise.all(ids.map(act));
      count += acted.filter(Boolean).length;
      left -= ids.length;
      if (left === 0) break;
    }
    return count;
  }

  return {
    async failed(given = {}) {
      const filter = readFilter("failed()", given);
      const limit = filter.limit ?? SHOWN;
      const found = new Map<string, FailedJob<Data>>();
      for await (const batch of meant(access, filter)) {
        for (const stored of batch) found.set(stored.id!, readFailed(stored as Stored<Data>));
        if (found.size >= limit) break;
      }
      return [...found.values()].slice(0, limit);
    },
    replay: (given) => forEach("replay()", given, (id) => replayJob(access, id)),
    purge: (given) => forEach("purge()", given, purgeJob),
  };
}

/**
 * The failed jobs that a filter means, in batches, the newest first. Jobs are counted from the oldest:
 * those that fail meanwhile come behind the first, and those that are taken out leave all before them
 * in place. So none is passed over, and a job that was replayed and failed again is not met again.
 */
async function* meant(access: StoredAccess, filter: ReadFilter): AsyncGenerator<Stored<unknown>[]> {
  let end = await access.ask((stored) => stored.getFailedCount());
  while (end > 0) {
    const start = Math.max(0, end - PER_ROUND_TRIP);
    const batch = await access.ask((stored) => readRange(stored, start, end - 1));
    const recent = batch.filter((job) => (job.finishedOn ?? 0) >= filter.sinceMs);
    const found = recent.filter((job) => isMeant(filter, factsOf(job)));
    if (found.length > 0) yield found;
    if (recent.length < batch.length) return;
    end = start;
  }
}

/** Their ids first: BullMQ's `getJobs` reads each job twice, once of them while Redis serves nobody else. */
async function readRange(
  stored: StoredQueue,
  first: number,
  last: number,
): Promise<Stored<unknown>[]> {
  const ids = await stored.getRanges(["failed"], first, last, true);
  const jobs = await Promise.all(ids.reverse().map((id) => stored.getJob(id)));
  return jobs.filter((job) => job !== undefined) as Stored<unknown>[];
}

function factsOf(stored: Stored<unknown>): { key: string | undefined; reason: string } {
  return { key: readJob(stored).key, reason: stored.failedReason ?? "" };
}

function readFailed<Data>(stored: Stored<Data>): FailedJob<Data> {
  const { id, key, data } = readJob(stored);
  return {
    id,
    key,
    data,
    reason: stored.failedReason ?? "",
    failedAtMs: stored.finishedOn ?? 0,
    attempts: stored.attemptsMade,
    stack: stored.stacktrace?.at(-1),
  };
}
