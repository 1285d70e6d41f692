import { withForever } from "../../core/describe.ts";
import { decodeKey, encodeKey, headsOfText } from "../../core/key-path.ts";
import type { LanesSeen } from "../../stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { BucketState, LimitState } from "../../throttle/bucket/bucket-state.ts";
import type { Cost } from "../../throttle/costs.ts";
import { readAwaits, readDue, readJob, type Stored } from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { keyTextOf, type AwaitedParents, type Job } from "../job.ts";
import type { NoForecastReason } from "./forecast.ts";

/**
 * The reason why a job waits:
 *
 * - `"parents"`: the end of jobs in its `after`, or of its group
 * - `"delay"`: the job's start time; `"retry"`: the time of its next attempt
 * - a reason of {@link NoForecastReason}: no worker is alive, a pause is active, or the downstream is unreachable
 * - `"cooldown"`: the end of a cooldown
 * - `"limit"`: room under a limit of the bucket; `"key"`: room under a limit of its key
 * - `"turns"`: room under a limit of the bucket, in which calls of another key have the next turn
 * - `"lease"`: the end of a running call, under a limit on concurrent calls
 * - `"lane"`: the job's turn and a free place in a worker; its limits have room
 */
export type WaitsFor =
  | "parents"
  | "delay"
  | "retry"
  | NoForecastReason
  | "cooldown"
  | "limit"
  | "turns"
  | "key"
  | "lease"
  | "lane";

/** Why a job waits, since when, and until when. */
export interface JobExplanation {
  readonly waitsFor: WaitsFor;
  /**
   * The limit that has no room: `"100/s"`. If keys have several levels, this includes the level: `"2/s (level 1)"`.
   * Undefined if no limit is the reason.
   */
  readonly limit: string | undefined;
  /**
   * When this wait began, in ms since 1970 on the clock of Redis. For a delayed job, this is when the job was stored.
   * For a delayed retry, it is when the last attempt began. Otherwise, it is when the job became due, or due again
   * after a retry, a replay or the death of its worker.
   */
  readonly sinceMs: number;
  /**
   * The earliest time at which this reason ends. After that, the job may wait for another reason; use `eta()` for its
   * expected start. Undefined if the time is unknown. Infinity (in JSON `"forever"`) for a pause without an end.
   */
  readonly untilMs: number | undefined;
  /** The parents that the job still waits for: their number, and the first ten. Undefined for other reasons. */
  readonly parents?: AwaitedParents | undefined;
  /** True if the job is the final job of a group that is still open. */
  readonly isGroupOpen?: boolean | undefined;
}

interface Reason {
  readonly waitsFor: WaitsFor;
  readonly limit?: string | undefined;
  /** Ms until the reason ends. Undefined if this is unknown. */
  readonly forMs?: number | undefined;
}

interface Facts {
  readonly seen: LanesSeen;
  readonly isWorked: boolean;
  /** For how many ms the queue is paused, and for how many ms the key or one of its parents is paused. */
  readonly queueMs: number;
  readonly keyMs: number;
  /** The state of the bucket for all calls, and for calls with the job's key. */
  readonly shared: BucketState;
  readonly own: BucketState;
}

/** The most parents to name. */
const MOST_PARENTS = 10;
/** The most fetched jobs of workers among which to search for the job. */
const MOST_COUNTED = 2_000;

export function createExplanations({
  queue,
  bucket,
  lanes,
  access,
  awaited,
}: {
  readonly queue: string;
  readonly bucket: Pick<OwnedBucket, "peek">;
  readonly lanes: Pick<LaneStore, "look" | "pauses" | "workers">;
  readonly access: StoredAccess;
  /** Reads the parents that a job still waits for. */
  readonly awaited: (id: string, most: number) => Promise<AwaitedParents>;
}): (id: string) => Promise<JobExplanation | undefined> {
  async function readFacts(id: string, key: string | undefined): Promise<Facts> {
    const [seen, pauses, live, shared, own] = await Promise.all([
      lanes.look({ queue, id, counted: MOST_COUNTED }),
      lanes.pauses({ queue }),
      lanes.workers({ queue }),
      bucket.peek(),
      bucket.peek(key === undefined ? {} : { key: decodeKey(key) }),
    ]);
    const heads = key === undefined ? [] : headsOfText(key);
    const pausedMs = (isMeant: (key: string | undefined) => boolean): number =>
      Math.max(0, ...pauses.map((pause) => (isMeant(pause.key) ? pause.forMs : 0)));
    return {
      seen,
      isWorked: live.workers > 0,
      queueMs: pausedMs((each) => each === undefined),
      keyMs: pausedMs((each) => each !== undefined && heads.includes(each)),
      shared,
      own,
    };
  }

  return async (id) => {
    const stored = await access.ask((backend) => backend.getJob(id));
    if (stored === undefined) return undefined;
    const job = readJob(stored as Stored<unknown>);
    const { awaits, isGroupOpen } = await access.ask((backend) => readAwaits(backend, id));
    if (awaits) {
      const parents = await access.ask(() => awaited(id, MOST_PARENTS));
      const none = { limit: undefined, untilMs: undefined };
      return { waitsFor: "parents", ...none, sinceMs: job.enqueuedAtMs, parents, isGroupOpen };
    }
    const facts = await access.ask(() => readFacts(id, keyTextOf(job)));
    const nowMs = access.clock.latestMs();
    const reason = reasonFor(job, facts, nowMs);
    if (reason === undefined) return undefined;
    const { waitsFor, limit, forMs } = reason;
    const dueAgainMs = await access.ask((backend) => readDue(backend, id));
    const sinceMs =
      waitsFor === "delay" ? job.enqueuedAtMs : waitsSinceMs(job, { waitsFor, dueAgainMs });
    const untilMs = forMs === undefined ? undefined : nowMs + Math.ceil(forMs);
    return withForever({ waitsFor, limit, sinceMs, untilMs });
  };
}

function waitsSinceMs(
  { attemptsMade, startedAtMs, dueAtMs }: Job<unknown>,
  {
    waitsFor,
    dueAgainMs,
  }: { readonly waitsFor: WaitsFor; readonly dueAgainMs: number | undefined },
): number {
  if (dueAgainMs !== undefined && waitsFor !== "retry") return dueAgainMs;
  return attemptsMade > 0 && startedAtMs !== undefined ? startedAtMs : dueAtMs;
}

/** Returns the first reason that applies to a job. Undefined if the job runs, has ended, or does not exist. */
function reasonFor(job: Job<unknown>, facts: Facts, nowMs: number): Reason | undefined {
  const { seen, isWorked, queueMs, keyMs, shared, own } = facts;
  const { jobPosition } = seen;
  if (jobPosition === undefined || jobPosition.in === "worker") return undefined;
  const dueInMs = jobPosition.in === "delay" ? jobPosition.dueInMs : 0;
  if (dueInMs > 0 && job.attemptsMade > 0) return { waitsFor: "retry", forMs: dueInMs };
  // A due job with a delay is on its way to its lane. BullMQ's delay is only a safeguard in case the job does not
  // arrive.
  if (dueInMs > 0 && job.dueAtMs > nowMs) return { waitsFor: "delay", forMs: dueInMs };
  if (!isWorked) return { waitsFor: "no worker" };
  if (queueMs > 0) return { waitsFor: "queue paused", forMs: queueMs };
  if (shared.pausedForMs > 0) return { waitsFor: "bucket paused", forMs: shared.pausedForMs };
  if (shared.unreachableForMs > 0)
    return { waitsFor: "downstream away", forMs: shared.unreachableForMs };
  const keyPausedMs = Math.max(keyMs, own.pausedForMs);
  if (keyPausedMs > 0) return { waitsFor: "key paused", forMs: keyPausedMs };
  if (own.unreachableForMs > 0) return { waitsFor: "key away", forMs: own.unreachableForMs };
  if (own.coolingForMs > 0) return { waitsFor: "cooldown", forMs: own.coolingForMs };
  const full = ofLimits(own.limits, job.cost) ?? asideFor(keyTextOf(job), seen);
  if (full?.waitsFor === "limit" && isTurnOfOther(shared.turns, keyTextOf(job))) {
    return { waitsFor: "turns", limit: full.limit };
  }
  return full ?? { waitsFor: "lane" };
}

/** True if calls of another key have the next turn at the limits that all keys share. */
function isTurnOfOther([next]: BucketState["turns"], key: string | undefined): boolean {
  if (next === undefined) return false;
  return next.keys !== undefined || (next.key && encodeKey(next.key)) !== key;
}

/**
 * Returns the full limit that will be the last to have room. A full limit on concurrent calls takes precedence, because
 * the time at which it will have room is unknown.
 */
function ofLimits(limits: readonly LimitState[], cost: Cost | undefined): Reason | undefined {
  const full = limits.filter((limit) => limit.remaining < costOf(limit, cost));
  const [last] = full.toSorted((a, b) => (b.nextFreeMs ?? Infinity) - (a.nextFreeMs ?? Infinity));
  if (last === undefined) return undefined;
  const { name: limit, scope, nextFreeMs } = last;
  if (nextFreeMs === undefined) return { waitsFor: "lease", limit };
  // The time at which the limit has room is known only for a cost of 1, and for a budget that is spent completely.
  const isKnown = costOf(last, cost) <= 1 && nextFreeMs > 0;
  const forMs = isKnown ? nextFreeMs : undefined;
  return { waitsFor: scope === "bucket" ? "limit" : "key", limit, forMs };
}

function costOf({ unit }: LimitState, cost: Cost = 1): number {
  if (typeof cost === "number") return unit === "calls" ? cost : 0;
  return cost[unit] ?? (unit === "calls" ? 1 : 0);
}

/** Returns a reason if the lane of this key, or a parent of the key, is blocked until its limits have room again. */
function asideFor(key: string | undefined, { lanes, heads }: LanesSeen): Reason | undefined {
  if (key === undefined) return undefined;
  const path = headsOfText(key);
  const forMs = Math.max(
    0,
    ...[...lanes, ...heads].map((each) => (path.includes(each.key) ? each.asideMs : 0)),
  );
  return forMs > 0 ? { waitsFor: "key", forMs } : undefined;
}
