import * as z from "zod";
import type { Queue as StoredQueue } from "bullmq";
import type { Payloads } from "../../core/codec.ts";
import type { CodecError } from "../../core/errors.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import { KEY, readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import { readWhoAndWhy, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import { decodeKey, isWithin, type Key } from "../../core/key-path.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import { codeOf, NOT_THERE, WRONG_STATE } from "../bullmq/errors.ts";
import {
  blamedParentOf,
  encodedKeyOf,
  FAILURE,
  readFailures,
  readJob,
  renew,
  type Stored,
  type StoredOptions,
} from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import {
  failureGroupOf,
  hasCode,
  parseErrorFacts,
  textsOf,
  type FailureFacts,
} from "../failure.ts";
import { decodeJob, mapInTurns, readJobId } from "../job.ts";
import type { NoteBulk } from "./changes.ts";
import type { Flows } from "./flows.ts";

/**
 * Reads, replays and removes dead letters: jobs that failed for the last time. Dead letters are kept until they are
 * replayed or purged, unless `keepFailed` sets a limit.
 */
export interface DeadLetters<Data> {
  /**
   * Returns the failed jobs that match a filter, the newest first. Returns at most `limit` jobs, 100 by default. Reads
   * Redis in batches, back to `since`, until enough jobs are found.
   *
   * @throws {@link InvalidOptionError} when the filter can never match.
   * @throws {@link StoreUnavailableError} when Redis is unreachable.
   */
  failed(filter?: FailedFilter): Promise<FailedJob<Data>[]>;
  /**
   * Groups the dead letters that match a filter by their error, the largest group first. Jobs are in one group if the
   * name, code and status of their errors are equal, and their reasons differ only in numbers and ids. Reads the newest
   * dead letters, 10,000 by default, in batches, and without their data. Throws as `failed` does.
   */
  failedGroups(filter?: FailedGroupsFilter): Promise<FailedGroups>;
  /**
   * Puts failed jobs back into the queue: the job with this id, or all jobs that match a filter. The filter `{}`
   * matches all failed jobs. Each job runs again from attempt 1 on a new slot, and its `maxWaitMs` starts again.
   * Resolves with the number of replayed jobs. A job that is no longer a dead letter is ignored, so it is safe to call
   * this twice, or in two processes at once. The jobs that failed because of a replayed job wait for it again. So a filter leaves
   * such jobs out while their parent is a dead letter or runs; by its id, such a job runs at once. Rejects as `failed` does. If it rejects after some of the jobs were
   * replayed, call it again.
   *
   * `sluice.changes()` lists each replay by filter. It lists a replay by id only if `by` is set.
   */
  replay(idOrFilter: string | FailedFilter, byHand?: WhoAndWhy): Promise<number>;
  /**
   * Removes failed jobs, by id or by filter. Resolves with the number of removed jobs. `sluice.changes()` lists purges
   * under the same conditions as replays.
   */
  purge(idOrFilter: string | FailedFilter, byHand?: WhoAndWhy): Promise<number>;
}

/** A job that failed for the last time, with the code, status and causes of its last attempt's error. */
export interface FailedJob<Data> extends FailureFacts {
  readonly id: string;
  /** The name of the job, as passed to `enqueue`. */
  readonly name: string | undefined;
  readonly key: Key | undefined;
  /** The data of the job. Undefined if this process cannot decode it: `unreadable` says why. */
  readonly data: Data;
  /** Why this process cannot decode the job's data. Undefined if it can. */
  readonly unreadable?: CodecError | undefined;
  /** The error message of the last attempt. For a job that did not start in time, `"Expired: …"`. */
  readonly reason: string;
  /** When the job failed, in ms since 1970, on the clock of Redis. */
  readonly failedAtMs: number;
  /** How many attempts of the job have failed: `5`. */
  readonly attempts: number;
  /** The stack trace of the last attempt's error. Undefined if it is unknown. */
  readonly stack: string | undefined;
}

/** Selects the dead letters to group. */
export interface FailedGroupsFilter extends Omit<FailedFilter, "limit"> {
  /** The most dead letters to read, the newest first: 1 to 100,000. Defaults to 10,000. */
  readonly look?: number | undefined;
}

/** Dead letters by their error. */
export interface FailedGroups {
  /** Up to 100 groups, the largest first. */
  readonly groups: readonly FailedGroup[];
  /** How many groups there are: `340`. The smallest are left out of `groups` if there are more than 100. */
  readonly totalGroups: number;
  /** How many dead letters were read: `10000`. */
  readonly looked: number;
  /** True if the queue may have more dead letters than were read. */
  readonly hasMore: boolean;
}

/** The dead letters with one error. */
export interface FailedGroup {
  /** The id of the group, for `replay({ group })` and `purge({ group })`: `"3f9a0c12de"`. The same in all processes. */
  readonly group: string;
  /** The reason of the newest dead letter of the group. */
  readonly reason: string;
  readonly errorName: string | undefined;
  readonly code: string | undefined;
  /** How many of the dead letters that were read are in the group: `120`. */
  readonly count: number;
  /** When the oldest of them failed, in ms since 1970. */
  readonly firstAtMs: number;
  /** When the newest of them failed, in ms since 1970. */
  readonly lastAtMs: number;
  /** How many tenants they belong to, by the first part of their keys: `7`. */
  readonly tenants: number;
  /** Up to five of these tenants, those with the most dead letters first. */
  readonly topTenants: readonly string[];
}

/** The action on one dead letter, and on a batch of dead letters. */
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
  flows,
  payloads,
}: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "remove">;
  readonly withKeyCheck: KeyCheck;
  readonly noteBulk: NoteBulk;
  readonly onRemoved: (ids: readonly string[]) => Promise<void>;
  /** Called with the first of the replayed jobs. The worker that fetches this job finds the other jobs. */
  readonly onDue: (id: string) => void;
  /** Keeps all dead letters from expiring for a minute. */
  readonly keepAll: () => Promise<void>;
  readonly flows: Pick<Flows, "isResumable" | "settleReplayed">;
  readonly payloads: Pick<Payloads, "decode">;
}): DeadLetters<Data> {
  async function purgeAll(ids: readonly string[]): Promise<number> {
    const removed = await access.ask(() => lanes.remove({ queue, state: "failed", ids }));
    await onRemoved(removed);
    return removed.length;
  }

  async function replayAll(ids: readonly string[]): Promise<number> {
    const replayed = await Promise.all(
      ids.map(async (id) => {
        // A replay of its parent resumes the job once the parent is done.
        const parent = await access.ask((stored) => blamedParentOf(stored, id));
        if (parent !== undefined && (await access.ask(() => flows.isResumable(parent))))
          return false;
        return withKeyCheck(id, () => replayJob(access, id));
      }),
    );
    const first = ids[replayed.indexOf(true)];
    if (first !== undefined) onDue(first);
    await flows.settleReplayed(
      queue,
      ids.filter((_id, index) => replayed[index]),
    );
    return replayed.filter(Boolean).length;
  }

  async function replayOne(id: string): Promise<number> {
    const isReplayed = await withKeyCheck(id, () => replayJob(access, id, keepAll));
    if (isReplayed) {
      onDue(id);
      await flows.settleReplayed(queue, [id]);
    }
    return Number(isReplayed);
  }

  /**
   * Replays or purges one job by its id, or all jobs that match a filter, in batches. Resolves with the number of
   * changed jobs.
   */
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
      const found = new Map<string, Found>();
      for await (const batch of matching(access, filter)) {
        for (const each of batch) found.set(each.stored.id!, each);
        if (found.size >= limit) break;
      }
      const newest = [...found.values()].slice(0, limit);
      return mapInTurns(newest, (each) => readFailed<Data>(payloads, each));
    },
    async failedGroups(given) {
      const where = "failedGroups()";
      const { look = LOOKED_AT, ...others } = readOptional(where, GROUPS_FILTER, given);
      const filter = readFilter(where, others);
      const counting = createGroups();
      let end = await access.ask((stored) => stored.getFailedCount());
      const count = end;
      let looked = 0;
      for (let isOlder = false; end > 0 && looked < look && !isOlder;) {
        const start = Math.max(0, end - Math.min(BRIEFS_PER_ROUND_TRIP, look - looked));
        const last = end - 1;
        const found = await access.ask((stored) => readBriefs(stored, start, last));
        for (const each of found) {
          isOlder ||= each.failedAtMs < filter.sinceMs;
          if (each.failedAtMs >= filter.sinceMs && matches(filter, each)) counting.add(each);
        }
        looked += end - start;
        end = start;
      }
      return { ...counting.groups(), looked, hasMore: looked < count && looked >= look };
    },
    replay: (given, byHand) =>
      change("replay", given, byHand, { one: replayOne, many: replayAll, before: keepAll }),
    purge: (given, byHand) =>
      change("purge", given, byHand, { one: (id) => purgeAll([id]), many: purgeAll }),
  };
}

/**
 * Yields the failed jobs that match a filter, in batches, the newest first. Positions are counted from the oldest job.
 * A job that fails in the meantime is added after the newest job, and removing a job does not move older jobs. So no
 * job is skipped, and a job that was replayed and has failed again is not found twice.
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

/**
 * Reads a range of failed jobs, the newest first. Reads the ids first, because BullMQ's `getJobs` reads each job twice,
 * once inside a script. No upstream issue known; checked with bullmq 6.7.0.
 */
async function readRange(stored: StoredQueue, first: number, last: number): Promise<Found[]> {
  const ids = await stored.getRanges(["failed"], first, last, true);
  ids.reverse();
  const reading = Promise.all(ids.map((id) => stored.getJob(id)));
  const [jobs, facts] = await Promise.all([reading, readFailures(stored, ids)]);
  return jobs.flatMap((job, at) =>
    job === undefined ? [] : [{ stored: job as Stored<unknown>, facts: facts[at]! }],
  );
}

/** The facts of a failed job by which it is grouped. */
interface Brief extends FailedFacts {
  readonly failedAtMs: number;
}

/** Reads the facts of a range of failed jobs, the newest first. Leaves their data in Redis. */
async function readBriefs(stored: StoredQueue, first: number, last: number): Promise<Brief[]> {
  const ids = await stored.getRanges(["failed"], first, last, true);
  const redis = (await stored.getBackend().client) as unknown as FieldReader;
  const fields = ["name", "failedReason", "finishedOn", "opts", FAILURE];
  const found = await Promise.all(ids.map((id) => redis.hmget(stored.toKey(id), ...fields)));
  return found.toReversed().flatMap(([name, reason, finishedOn, opts, failure]) => {
    // The job was removed after its id was read.
    if (name == null) return [];
    const { sluice } = JSON.parse(opts ?? "{}") as StoredOptions;
    return {
      key: encodedKeyOf({ name }),
      name: sluice?.name,
      reason: reason ?? "",
      error: parseErrorFacts(failure ?? ""),
      failedAtMs: Number(finishedOn ?? 0),
    };
  });
}

/** The method of ioredis that this module uses. BullMQ's type of the client does not have it. */
interface FieldReader {
  hmget(key: string, ...fields: string[]): Promise<readonly (string | null)[]>;
}

/** The most tenants that are counted in a group. */
const MOST_TENANTS = 10_000;
const TOP_TENANTS = 5;
const MOST_GROUPS = 100;

/** Counts dead letters by their error. Adds them in order, the newest first. */
function createGroups(): {
  add(job: Brief): void;
  groups(): Pick<FailedGroups, "groups" | "totalGroups">;
} {
  const byId = new Map<
    string,
    Omit<FailedGroup, "tenants" | "topTenants"> & {
      readonly byTenant: Map<string, number>;
    }
  >();
  return {
    add(job) {
      const { reason, error, failedAtMs } = job;
      const group = failureGroupOf(reason, error);
      const { errorName, code } = error;
      const found = byId.get(group) ?? {
        group,
        reason,
        errorName,
        code,
        count: 0,
        firstAtMs: failedAtMs,
        lastAtMs: failedAtMs,
        byTenant: new Map<string, number>(),
      };
      const { byTenant } = found;
      const tenant = job.key === undefined ? undefined : namesOf(decodeKey(job.key))[0]!;
      if (tenant !== undefined && (byTenant.has(tenant) || byTenant.size < MOST_TENANTS)) {
        byTenant.set(tenant, (byTenant.get(tenant) ?? 0) + 1);
      }
      byId.set(group, { ...found, count: found.count + 1, firstAtMs: failedAtMs });
    },
    groups() {
      const largest = [...byId.values()].sort((one, other) => other.count - one.count);
      const groups = largest.slice(0, MOST_GROUPS).map(({ byTenant, ...group }) => {
        const most = [...byTenant].sort(([, one], [, other]) => other - one);
        const topTenants = most.slice(0, TOP_TENANTS).map(([tenant]) => tenant);
        return { ...group, tenants: byTenant.size, topTenants };
      });
      return { groups, totalGroups: byId.size };
    },
  };
}

function namesOf(key: Key): readonly string[] {
  return typeof key === "string" ? [key] : key;
}

/** A failed job, with the code, status and causes of its error. */
interface Found {
  readonly stored: Stored<unknown>;
  readonly facts: FailureFacts;
}

function factsOf({ stored, facts }: Found): FailedFacts {
  const { name } = readJob(stored);
  return { key: encodedKeyOf(stored), name, reason: stored.failedReason ?? "", error: facts };
}

async function readFailed<Data>(
  payloads: Pick<Payloads, "decode">,
  { stored, facts }: Found,
): Promise<FailedJob<Data>> {
  const { id, name, key, data, unreadable } = await decodeJob(
    payloads,
    readJob(stored as Stored<Data>),
  );
  return {
    id,
    name,
    key,
    data,
    ...(unreadable && { unreadable }),
    reason: stored.failedReason ?? "",
    failedAtMs: stored.finishedOn ?? 0,
    attempts: stored.attemptsMade,
    stack: stored.stacktrace?.at(-1),
    ...facts,
  };
}

/** Selects failed jobs. A job must match all given fields. */
export interface FailedFilter {
  /** The key of the jobs. All keys below this key are included. */
  readonly key?: Key | undefined;
  /** The name of the job, as passed to `enqueue`. */
  readonly name?: string | undefined;
  /** Only jobs that failed at this time or later: a Date, or ms since 1970, on the clock of Redis. */
  readonly since?: Date | number | undefined;
  /**
   * A part of the job's reason, or a regular expression that matches the reason: `"Expired:"`, `/timeout/i`. Also
   * searches the error's code, and the messages and codes of its causes.
   */
  readonly reason?: string | RegExp | undefined;
  /** The `code` of the job's error, or of one of the error's causes: `"ECONNREFUSED"`. */
  readonly code?: string | undefined;
  /** The id of a group of `failedGroups()`: `"3f9a0c12de"`. */
  readonly group?: string | undefined;
  /**
   * The most jobs to select, the newest first. Defaults to 100 for `failed()`, and to no limit for `replay()` and
   * `purge()`.
   */
  readonly limit?: number | undefined;
}

/** A validated filter, with its time in ms. */
interface ReadFilter {
  /** The key, encoded as text. */
  readonly key: string | undefined;
  readonly name?: string | undefined;
  readonly sinceMs: number;
  readonly reason: string | RegExp | undefined;
  readonly code: string | undefined;
  readonly group?: string | undefined;
  readonly limit: number | undefined;
}

/** The fields of a failed job that a filter is compared with. */
interface FailedFacts {
  readonly key: string | undefined;
  readonly name?: string | undefined;
  readonly reason: string;
  readonly error: FailureFacts;
}

const SINCE_ERROR = { error: "give a date, or milliseconds since 1970" };
const REASON_ERROR = { error: "give a part of the reason, or a regular expression" };
/** How many dead letters `failedGroups` reads by default and at most, and in one round trip. */
const [LOOKED_AT, MOST_LOOKED_AT, BRIEFS_PER_ROUND_TRIP] = [10_000, 100_000, 1_000];
const FILTER = z.strictObject({
  key: KEY_PATH.optional(),
  name: KEY.optional(),
  // For a number out of bounds, zod shows the error of the bound instead of the error of the union. So both have the
  // same error.
  since: z
    .union([z.date(), z.number().min(0, SINCE_ERROR).max(8.64e15, SINCE_ERROR)], SINCE_ERROR)
    .optional(),
  reason: z.union([z.string().min(1, REASON_ERROR), z.instanceof(RegExp)], REASON_ERROR).optional(),
  code: z
    .string({ error: 'give the code of an error, such as "ECONNREFUSED"' })
    .min(1, { error: 'give the code of an error, such as "ECONNREFUSED"' })
    .optional(),
  group: z
    .string({ error: "give the id of a group that failedGroups() returned" })
    .regex(/^[0-9a-f]{10}$/, { error: "give the id of a group that failedGroups() returned" })
    .optional(),
  limit: wholeNumber(1, 1_000_000_000, "jobs").optional(),
});
const GROUPS_FILTER = FILTER.omit({ limit: true }).extend({
  look: wholeNumber(1, MOST_LOOKED_AT, "dead letters").optional(),
});

/**
 * Validates a filter of failed jobs.
 *
 * @throws {@link InvalidOptionError} when a filter can never match.
 */
export function readFilter(where: string, given: unknown): ReadFilter {
  const { key, name, since, reason, code, group, limit } = readOptions(where, FILTER, given);
  return { key, name, sinceMs: Number(since ?? 0), reason, code, group, limit };
}

/** True if a job matches all fields of a filter, apart from `since`. */
export function matches({ key, name, reason, code, group }: ReadFilter, job: FailedFacts): boolean {
  if (key !== undefined && (job.key === undefined || !isWithin(job.key, key))) return false;
  if (name !== undefined && job.name !== name) return false;
  if (code !== undefined && !hasCode(job.error, code)) return false;
  if (group !== undefined && failureGroupOf(job.reason, job.error) !== group) return false;
  if (reason === undefined) return true;
  return textsOf(job.reason, job.error).some((text) =>
    // Uses `search`, which always starts at 0. With the flags `g` or `y`, `test` would continue where its last match
    // ended.
    typeof reason === "string" ? text.includes(reason) : text.search(reason) >= 0,
  );
}

/**
 * Puts a failed job back into the queue, as if it had never run. Returns false if the job is not a dead letter. If
 * several calls replay the same job at once, only one of them returns true.
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
    // Resets the job before it goes back, because a worker may fetch it at once.
    await renew(stored, job, access.clock);
    const isHeldAnew = await holdDedupeId(access, job);
    try {
      await job.retry("failed", { resetAttemptsMade: true, resetAttemptsStarted: true });
      return true;
    } catch (error) {
      const code = codeOf(error);
      if (code !== NOT_THERE && code !== WRONG_STATE) throw error;
      const left = await stored.getJob(id);
      // The job stays in the queue if another call has replayed it. Then it keeps its dedupeId. Otherwise, the job has
      // ended again, or was purged.
      const isThere = left?.name !== undefined && left.finishedOn === undefined;
      if (isHeldAnew && !isThere) await job.removeDeduplicationKey();
      // The job was purged while `renew` reset it, so only the fields that `renew` wrote are left.
      if (left !== undefined && left.name === undefined) await stored.remove(id);
      return false;
    }
  });
}

/**
 * Takes back the dedupeId that the job released when it failed. Returns whether the dedupeId was free. Does nothing for
 * a dedupeId with a time limit, because that dedupeId expires only after its time.
 */
async function holdDedupeId(access: StoredAccess, { id, opts }: Stored<unknown>): Promise<boolean> {
  const { id: dedupeId, ttl } = opts.deduplication ?? {};
  if (dedupeId === undefined || ttl !== undefined) return false;
  return access.holdDedupeId(dedupeId, id!);
}

/** Runs `act` on a job that may block its ordered key, then makes workers check that key. */
type KeyCheck = (id: string, act: () => Promise<boolean>) => Promise<boolean>;

/**
 * Makes workers check an ordered key at once. Without this, they would notice the change within seconds. For a queue
 * without ordered keys, no request is sent.
 */
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
      // Ignores an error here, because the action itself has succeeded.
      await access.ask(() => lanes.lookAtHeads({ queue, ofKeys: [key] })).catch(() => undefined);
    }
    return hasActed;
  };
}
