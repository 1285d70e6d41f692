import * as z from "zod";
import type { Queue as StoredQueue } from "bullmq";
import { InvalidOptionError } from "../../core/errors.ts";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import { KEY, readOptions, wholeNumber } from "../../core/input/options.ts";
import { readWhoAndWhy, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import { isWithin, type Key } from "../../core/key-path.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import { codeOf, NOT_THERE, WRONG_STATE } from "../bullmq/errors.ts";
import { readFailures, readJob, renew, encodedKeyOf, type Stored } from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { hasCode, textsOf, type FailureFacts } from "../failure.ts";
import { readJobId } from "../job.ts";
import type { NoteBulk } from "./changes.ts";

/**
 * The jobs that failed for the last time. They are kept until they are replayed or purged, unless `keepFailed` says
 * otherwise.
 */
export interface DeadLetters<Data> {
  /**
   * Returns the failed jobs that match a filter, the newest first, 100 unless `limit` says otherwise. Redis is read in
   * batches, back to `since`, until enough are found.
   *
   * @throws {@link InvalidOptionError} when the filter can never match.
   * @throws {@link StoreUnavailableError} when Redis is unreachable.
   */
  failed(filter?: FailedFilter): Promise<FailedJob<Data>[]>;
  /**
   * Puts failed jobs back into the queue: the job with this id, or all that match a filter (`{}`: all). Each runs again
   * from attempt 1 on a new slot, and its `maxWaitMs` starts again. Resolves with the number of jobs put back. A job
   * that is no longer a dead letter is ignored, so it is safe to call this twice, or in two processes at once. Rejects
   * as `failed` does, perhaps in the middle of many jobs: then call it again.
   *
   * `sluice.changes()` lists it; for one job by its id, only with a `by`.
   */
  replay(idOrFilter: string | FailedFilter, byHand?: WhoAndWhy): Promise<number>;
  /** Removes failed jobs, by id or filter, and is listed, as `replay` is. Resolves with the number of removed jobs. */
  purge(idOrFilter: string | FailedFilter, byHand?: WhoAndWhy): Promise<number>;
}

/** A job that failed for the last time, with the facts of the error of its last attempt. */
export interface FailedJob<Data> extends FailureFacts {
  readonly id: string;
  /** The name that `enqueue` gave the job. */
  readonly name: string | undefined;
  readonly key: Key | undefined;
  readonly data: Data;
  /** The message of the error of its last attempt; `"Expired: …"` if it did not start in time. */
  readonly reason: string;
  /** In ms since 1970, on Redis' clock. */
  readonly failedAtMs: number;
  /** How many attempts have failed: `5`. */
  readonly attempts: number;
  /** Where its last attempt threw; undefined if unknown. */
  readonly stack: string | undefined;
}

/** What to do with one job, and with several at a time. */
interface Acts {
  readonly one: (id: string) => Promise<number>;
  readonly many: (ids: readonly string[]) => Promise<number>;
  /** Called before each read of many dead letters, so that none of them expires before it is handled. */
  readonly before?: () => Promise<void>;
}

const SHOWN = 100;
const PER_ROUND_TRIP = 100;

export function createDeadLetters<Data>({
  queue,
  access,
  lanes,
  withKeyCheck,
  noteBulk,
  onRemoved,
  onDue,
  keepAll,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "remove">;
  readonly withKeyCheck: KeyCheck;
  readonly noteBulk: NoteBulk;
  readonly onRemoved: (ids: readonly string[]) => void;
  /** Called with the first of the jobs that were made due now. The worker that takes it finds the others. */
  readonly onDue: (id: string) => void;
  /** Keeps all dead letters from expiring for a minute. */
  readonly keepAll: () => Promise<void>;
}): DeadLetters<Data> {
  async function purgeAll(ids: readonly string[]): Promise<number> {
    const removed = await access.ask(() => lanes.remove({ queue, state: "failed", ids }));
    onRemoved(removed);
    return removed.length;
  }

  async function replayAll(ids: readonly string[]): Promise<number> {
    const replayed = await Promise.all(
      ids.map((id) => withKeyCheck(id, () => replayJob(access, id))),
    );
    const first = ids[replayed.indexOf(true)];
    if (first !== undefined) onDue(first);
    return replayed.filter(Boolean).length;
  }

  async function replayOne(id: string): Promise<number> {
    const isReplayed = await withKeyCheck(id, () => replayJob(access, id, keepAll));
    if (isReplayed) onDue(id);
    return Number(isReplayed);
  }

  /** Acts on one job, or on those that match, some at a time. Resolves with how many acts succeeded. */
  async function change(
    action: "replay" | "purge",
    given: string | FailedFilter,
    byHand: WhoAndWhy | undefined,
    acts: Acts,
  ): Promise<number> {
    const where = `${action}()`;
    const said = { action, ...readWhoAndWhy(where, byHand) };
    if (typeof given === "string") {
      const id = readJobId(where, given);
      if (id === undefined) return 0;
      if (said.by === undefined) return acts.one(id);
      return noteBulk({ ...said, filter: { id } }, () => acts.one(id));
    }
    if (given === undefined) {
      const remedy = `give the id of a failed job, or a filter such as { reason: "timeout" }; ${action}({}) means all`;
      throw new InvalidOptionError({ where, option: "idOrFilter", value: given, remedy });
    }
    assertNoUndefined(where, given);
    const filter = readFilter(where, given);
    const since = filter.sinceMs === 0 ? undefined : filter.sinceMs;
    const { sinceMs: _sinceMs, ...about } = { ...filter, since };
    return noteBulk({ ...said, filter: about }, () => forEach(filter, acts));
  }

  async function forEach(filter: ReadFilter, { many: act, before }: Acts): Promise<number> {
    let count = 0;
    let left = filter.limit ?? Infinity;
    for await (const batch of matching(access, filter, before)) {
      const ids = batch.slice(0, left).map(({ stored }) => stored.id!);
      count += await act(ids);
      left -= ids.length;
      if (left === 0) break;
    }
    return count;
  }

  return {
    async failed(given) {
      const filter = readFilter("failed()", given === undefined ? {} : given);
      const limit = filter.limit ?? SHOWN;
      const found = new Map<string, FailedJob<Data>>();
      for await (const batch of matching(access, filter)) {
        for (const { stored, facts } of batch)
          found.set(stored.id!, readFailed(stored as Stored<Data>, facts));
        if (found.size >= limit) break;
      }
      return [...found.values()].slice(0, limit);
    },
    replay: (given, byHand) =>
      change("replay", given, byHand, { one: replayOne, many: replayAll, before: keepAll }),
    purge: (given, byHand) =>
      change("purge", given, byHand, { one: (id) => purgeAll([id]), many: purgeAll }),
  };
}

/**
 * Yields the failed jobs that match a filter, in batches, the newest first. Positions count from the oldest job: jobs
 * that fail during this come after the newest, and jobs that are removed leave the older ones in place. So no job is
 * skipped, and a job that was replayed and has failed again is not found twice.
 */
async function* matching(
  access: StoredAccess,
  filter: ReadFilter,
  before?: () => Promise<void>,
): AsyncGenerator<Found[]> {
  if (before !== undefined) await access.ask(before);
  let end = await access.ask((stored) => stored.getFailedCount());
  while (end > 0) {
    const start = Math.max(0, end - PER_ROUND_TRIP);
    const batch = await access.ask((stored) => readRange(stored, start, end - 1));
    const recent = batch.filter(({ stored }) => (stored.finishedOn ?? 0) >= filter.sinceMs);
    const found = recent.filter((each) => matches(filter, factsOf(each)));
    if (found.length > 0) yield found;
    if (recent.length < batch.length) return;
    end = start;
    if (before !== undefined) await access.ask(before);
  }
}

/** Reads the ids first: BullMQ's `getJobs` reads each job twice, once inside a script; no upstream issue known, checked with bullmq 6.7.0. */
async function readRange(stored: StoredQueue, first: number, last: number): Promise<Found[]> {
  const ids = await stored.getRanges(["failed"], first, last, true);
  ids.reverse();
  const reading = Promise.all(ids.map((id) => stored.getJob(id)));
  const [jobs, facts] = await Promise.all([reading, readFailures(stored, ids)]);
  return jobs.flatMap((job, at) =>
    job === undefined ? [] : [{ stored: job as Stored<unknown>, facts: facts[at]! }],
  );
}

/** A failed job, and the facts of its error. */
interface Found {
  readonly stored: Stored<unknown>;
  readonly facts: FailureFacts;
}

function factsOf({ stored, facts }: Found): FailedFacts {
  const { name } = readJob(stored);
  return { key: encodedKeyOf(stored), name, reason: stored.failedReason ?? "", error: facts };
}

function readFailed<Data>(stored: Stored<Data>, facts: FailureFacts): FailedJob<Data> {
  const { id, name, key, data } = readJob(stored);
  return {
    id,
    name,
    key,
    data,
    reason: stored.failedReason ?? "",
    failedAtMs: stored.finishedOn ?? 0,
    attempts: stored.attemptsMade,
    stack: stored.stacktrace?.at(-1),
    ...facts,
  };
}

/** Which failed jobs are meant: those that match everything that is given. */
export interface FailedFilter {
  /** The job's key, or a parent of it: all keys below are included. */
  readonly key?: Key | undefined;
  /** The name that `enqueue` gave the job. */
  readonly name?: string | undefined;
  /** The job failed at this time or later, by the clock of Redis: a date, or ms since 1970. */
  readonly since?: Date | number | undefined;
  /**
   * A part of the job's reason, or a regular expression that matches it: `"Expired:"`, `/timeout/i`. Also searches the
   * messages and codes of the causes of the error.
   */
  readonly reason?: string | RegExp | undefined;
  /** The `code` of its error, or of one of its causes: `"ECONNREFUSED"`. */
  readonly code?: string | undefined;
  /** The most jobs, the newest first. Defaults to 100 for `failed()`, and to no limit for `replay()` and `purge()`. */
  readonly limit?: number | undefined;
}

/** A filter whose time is a number. */
interface ReadFilter {
  /** The key as text. */
  readonly key: string | undefined;
  readonly name?: string | undefined;
  readonly sinceMs: number;
  readonly reason: string | RegExp | undefined;
  readonly code: string | undefined;
  readonly limit: number | undefined;
}

/** The facts that a filter is compared with. */
interface FailedFacts {
  readonly key: string | undefined;
  readonly name?: string | undefined;
  readonly reason: string;
  readonly error: FailureFacts;
}

const SINCE_ERROR = { error: "give a date, or milliseconds since 1970" };
const REASON_ERROR = { error: "give a part of the reason, or a regular expression" };
const FILTER = z.strictObject({
  key: KEY_PATH.optional(),
  name: KEY.optional(),
  // For a number out of bounds, zod shows the message of the bound instead of the union's, so both are the same.
  since: z
    .union([z.date(), z.number().min(0, SINCE_ERROR).max(8.64e15, SINCE_ERROR)], SINCE_ERROR)
    .optional(),
  reason: z.union([z.string().min(1, REASON_ERROR), z.instanceof(RegExp)], REASON_ERROR).optional(),
  code: z
    .string({ error: 'give the code of an error, such as "ECONNREFUSED"' })
    .min(1, { error: 'give the code of an error, such as "ECONNREFUSED"' })
    .optional(),
  limit: wholeNumber(1, 1_000_000_000, "jobs").optional(),
});

/** @throws {@link InvalidOptionError} when a filter can never match. */
export function readFilter(where: string, given: unknown): ReadFilter {
  const { key, name, since, reason, code, limit } = readOptions(where, FILTER, given);
  return { key, name, sinceMs: Number(since ?? 0), reason, code, limit };
}

/** True if a job matches a filter, apart from its time. */
export function matches({ key, name, reason, code }: ReadFilter, job: FailedFacts): boolean {
  if (key !== undefined && (job.key === undefined || !isWithin(job.key, key))) return false;
  if (name !== undefined && job.name !== name) return false;
  if (code !== undefined && !hasCode(job.error, code)) return false;
  if (reason === undefined) return true;
  return textsOf(job.reason, job.error).some((text) =>
    // `search` starts at 0 each time, whatever the flags. `test` would continue where it last ended.
    typeof reason === "string" ? text.includes(reason) : text.search(reason) >= 0,
  );
}

/**
 * Puts a failed job back into the queue, as if it had never run. False if it is not a dead letter. Of several calls at
 * once, one gets true.
 */
function replayJob(
  access: StoredAccess,
  id: string,
  keepAll?: () => Promise<void>,
): Promise<boolean> {
  return access.ask(async (stored) => {
    const job = (await stored.getJob(id)) as Stored<unknown> | undefined;
    if (job === undefined || job.finishedOn === undefined) return false;
    await keepAll?.();
    // Before the job goes back, because a worker may fetch it at once.
    await renew(stored, job, access.clock);
    const isHeldAnew = await holdDedupeId(access, job);
    try {
      await job.retry("failed", { resetAttemptsMade: true, resetAttemptsStarted: true });
      return true;
    } catch (error) {
      const code = codeOf(error);
      if (code !== NOT_THERE && code !== WRONG_STATE) throw error;
      const left = await stored.getJob(id);
      // Another call has replayed it, and it keeps its dedupeId; or it has ended since, or was purged.
      const isThere = left?.name !== undefined && left.finishedOn === undefined;
      if (isHeldAnew && !isThere) await job.removeDeduplicationKey();
      // It was purged during the renewal: only the fields that the renewal wrote are left.
      if (left !== undefined && left.name === undefined) await stored.remove(id);
      return false;
    }
  });
}

/**
 * Takes back the dedupeId that the job gave up when it failed. A dedupeId with a time limit holds for that time.
 * Returns whether it was free.
 */
async function holdDedupeId(access: StoredAccess, { id, opts }: Stored<unknown>): Promise<boolean> {
  const { id: dedupeId, ttl } = opts.deduplication ?? {};
  if (dedupeId === undefined || ttl !== undefined) return false;
  return access.holdDedupeId(dedupeId, id!);
}

/** Acts on a job that may block its ordered key. Afterwards, workers check that key. */
type KeyCheck = (id: string, act: () => Promise<boolean>) => Promise<boolean>;

/** Without this, workers notice within seconds. A queue without order sends no request. */
export function createKeyCheck({
  queue,
  access,
  lanes,
  isOrdered,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "lookAtHeads">;
  readonly isOrdered: boolean;
}): KeyCheck {
  if (!isOrdered) return (_id, act) => act();

  async function keyOf(id: string): Promise<string | undefined> {
    const found = await access.ask((stored) => stored.getJob(id));
    return found && encodedKeyOf(found as Stored<unknown>);
  }

  return async (id, act) => {
    const key = await keyOf(id);
    const hasActed = await act();
    if (hasActed && key !== undefined) {
      // The act succeeded, and a rejection would say that it did not.
      await access.ask(() => lanes.lookAtHeads({ queue, ofKeys: [key] })).catch(() => undefined);
    }
    return hasActed;
  };
}
