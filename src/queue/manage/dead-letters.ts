import * as z from "zod";
import type { Queue as StoredQueue } from "bullmq";
import { InvalidOptionError } from "../../core/errors.ts";
import { refuseUndefined } from "../../core/input/arguments.ts";
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
import type { NoteBulk } from "./noted.ts";

/** The jobs that have failed and will not be tried again. They are kept until somebody replays or purges them, unless `keepFailed` says otherwise. */
export interface DeadLetters<Data> {
  /**
   * The failed jobs that match a filter, the newest first, 100 unless `limit` says otherwise.
   * Redis is read in batches, back to `since`, until there are enough of them.
   *
   * @throws {@link InvalidOptionError} when the filter can never match.
   * @throws {@link StoreUnavailableError} when Redis is away.
   */
  failed(filter?: FailedFilter): Promise<FailedJob<Data>[]>;
  /**
   * Puts failed jobs back into the queue: the one of this id, or all that match a filter (`{}`: all).
   * Each runs again from attempt 1, on a slot of its own, and its `maxWaitMs` counts anew. Resolves with
   * how many were put back. A job that is no longer a dead letter is left alone, so it does no harm to
   * call this twice, or in two processes at once. Rejects as `failed` does, perhaps in the middle of many:
   * then call it again.
   *
   * `sluice.changes()` lists it; of one job by its id only with a `by`.
   */
  replay(idOrFilter: string | FailedFilter, byHand?: WhoAndWhy): Promise<number>;
  /** Removes failed jobs, by id or filter as `replay` does, and is listed as that. Resolves with how many were removed. */
  purge(idOrFilter: string | FailedFilter, byHand?: WhoAndWhy): Promise<number>;
}

/** A job that has failed and will not be tried again, with what is known of the error of its last attempt. */
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
  /** Where its last attempt threw; undefined if that is not known. */
  readonly stack: string | undefined;
}

/** What is done with one job, or with some at a time. */
interface Acts {
  readonly one: (id: string) => Promise<number>;
  readonly many: (ids: readonly string[]) => Promise<number>;
  /** Called before each look at many dead letters: until they are acted on, none may be removed since it is old. */
  readonly before?: () => Promise<void>;
}

const SHOWN = 100;
const PER_ROUND_TRIP = 100;

export function createDeadLetters<Data>({
  queue,
  access,
  lanes,
  freeKey,
  noteBulk,
  onRemoved,
  onDue,
  keepAll,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "remove">;
  readonly freeKey: FreeKey;
  readonly noteBulk: NoteBulk;
  readonly onRemoved: (ids: readonly string[]) => void;
  /** Called with a job that was made due now: of many one, since who takes it finds the others. */
  readonly onDue: (id: string) => void;
  /** Has no dead letter removed for a minute since it is old. */
  readonly keepAll: () => Promise<void>;
}): DeadLetters<Data> {
  async function purgeAll(ids: readonly string[]): Promise<number> {
    const removed = await access.ask(() => lanes.remove({ queue, state: "failed", ids }));
    onRemoved(removed);
    return removed.length;
  }

  async function replayAll(ids: readonly string[]): Promise<number> {
    const replayed = await Promise.all(ids.map((id) => freeKey(id, () => replayJob(access, id))));
    const first = ids[replayed.indexOf(true)];
    if (first !== undefined) onDue(first);
    return replayed.filter(Boolean).length;
  }

  async function replayOne(id: string): Promise<number> {
    const isReplayed = await freeKey(id, () => replayJob(access, id, keepAll));
    if (isReplayed) onDue(id);
    return Number(isReplayed);
  }

  /** Acts on one job, or on those that match, some at a time; resolves with how many acts succeeded. */
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
    refuseUndefined(where, given);
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
 * that fail meanwhile come after the newest, and jobs that are taken out leave all older ones in place. So none is
 * skipped, and a job that was replayed and has failed again is not met again.
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

/** A failed job, and what is known of its error. */
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

/** Which failed jobs are meant: those that match all that is given. */
export interface FailedFilter {
  /** The key that the job is for, or the head of it: all below that are meant, too. */
  readonly key?: Key | undefined;
  /** The name that `enqueue` gave the job. */
  readonly name?: string | undefined;
  /** The job has failed then or later, by Redis' clock: a date, or ms since 1970. */
  readonly since?: Date | number | undefined;
  /**
   * A part of the job's reason, or a regular expression that matches it: `"Expired:"`, `/timeout/i`. The messages and
   * codes of the errors that led to it are searched too.
   */
  readonly reason?: string | RegExp | undefined;
  /** The `code` of its error, or of one that led to it: `"ECONNREFUSED"`. */
  readonly code?: string | undefined;
  /** How many at most, the newest first. Defaults to 100 for `failed()`, and to no limit for `replay()` and `purge()`. */
  readonly limit?: number | undefined;
}

/** A filter whose time is a number. */
interface ReadFilter {
  /** Its text. */
  readonly key: string | undefined;
  readonly name?: string | undefined;
  readonly sinceMs: number;
  readonly reason: string | RegExp | undefined;
  readonly code: string | undefined;
  readonly limit: number | undefined;
}

/** What a filter is matched with. */
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
  // For a number out of bounds, the bound's message is shown and not the union's: both are the same.
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

/** Whether a job matches a filter, apart from its time. */
export function matches({ key, name, reason, code }: ReadFilter, job: FailedFacts): boolean {
  if (key !== undefined && (job.key === undefined || !isWithin(job.key, key))) return false;
  if (name !== undefined && job.name !== name) return false;
  if (code !== undefined && !hasCode(job.error, code)) return false;
  if (reason === undefined) return true;
  return textsOf(job.reason, job.error).some((text) =>
    // `search` starts at 0 each time, whatever the flags; `test` goes on where it ended before.
    typeof reason === "string" ? text.includes(reason) : text.search(reason) >= 0,
  );
}

/** Puts a failed job back into the queue, as if it had never run. False when it is no dead letter; of many calls at once, one gets true. */
function replayJob(
  access: StoredAccess,
  id: string,
  keepAll?: () => Promise<void>,
): Promise<boolean> {
  return access.ask(async (stored) => {
    const job = (await stored.getJob(id)) as Stored<unknown> | undefined;
    if (job === undefined || job.finishedOn === undefined) return false;
    await keepAll?.();
    // Before it goes back, since a worker may fetch it at once.
    await renew(stored, job, access.clock);
    const isHeldAnew = await holdDedupeId(access, job);
    try {
      await job.retry("failed", { resetAttemptsMade: true, resetAttemptsStarted: true });
      return true;
    } catch (error) {
      const code = codeOf(error);
      if (code !== NOT_THERE && code !== WRONG_STATE) throw error;
      const left = await stored.getJob(id);
      // Another call has replayed it, and it holds its dedupeId; or it has ended since, or was purged.
      const isThere = left?.name !== undefined && left.finishedOn === undefined;
      if (isHeldAnew && !isThere) await job.removeDeduplicationKey();
      // It was purged while it was renewed: what was written then is all that is left of it.
      if (left !== undefined && left.name === undefined) await stored.remove(id);
      return false;
    }
  });
}

/** Takes the dedupeId back that the job gave up when it failed; one with a time holds for that time. Whether it was free. */
async function holdDedupeId(access: StoredAccess, { id, opts }: Stored<unknown>): Promise<boolean> {
  const { id: dedupeId, ttl } = opts.deduplication ?? {};
  if (dedupeId === undefined || ttl !== undefined) return false;
  return access.holdDedupeId(dedupeId, id!);
}

/** Does something with a job that may keep its ordered key waiting: once it was done, workers look at that key. */
type FreeKey = (id: string, act: () => Promise<boolean>) => Promise<boolean>;

/** Without it, workers find out within seconds. In a queue that has no order, nothing is asked. */
export function createFreeKey({
  queue,
  access,
  lanes,
  isOrdered,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "lookAtHeads">;
  readonly isOrdered: boolean;
}): FreeKey {
  if (!isOrdered) return (_id, act) => act();

  async function keyOf(id: string): Promise<string | undefined> {
    const found = await access.ask((stored) => stored.getJob(id));
    return found && encodedKeyOf(found as Stored<unknown>);
  }

  return async (id, act) => {
    const key = await keyOf(id);
    const hasActed = await act();
    if (hasActed && key !== undefined) {
      // It was done: to reject would say that it was not.
      await access.ask(() => lanes.lookAtHeads({ queue, ofKeys: [key] })).catch(() => undefined);
    }
    return hasActed;
  };
}
