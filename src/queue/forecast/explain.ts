import { withForever } from "../../core/describe.ts";
import { headsOfText, decodeKey } from "../../core/key-path.ts";
import type { LanesSeen } from "../../stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { BucketState, LimitState } from "../../throttle/bucket/bucket-state.ts";
import type { Cost } from "../../throttle/costs.ts";
import { readDue, readJob, type Stored } from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { keyTextOf, type Job } from "../job.ts";
import type { NoPromise } from "./forecast.ts";

/**
 * What a job waits for:
 *
 * - `"delay"`: its time; `"retry"`: the time of its next attempt
 * - a reason of {@link NoPromise}: a worker, the end of a pause, or a downstream that is unreachable
 * - `"cooldown"`: the end of a cooldown
 * - `"limit"`: room under a limit of the bucket; `"key"`: room under a limit of its key
 * - `"lease"`: the end of a running call, under a limit on concurrent calls
 * - `"lane"`: there is room, and it waits for its turn and a free place in a worker
 */
export type WaitsFor =
  | "delay"
  | "retry"
  | NoPromise
  | "cooldown"
  | "limit"
  | "key"
  | "lease"
  | "lane";

/** Why a job waits. */
export interface JobExplanation {
  readonly waitsFor: WaitsFor;
  /**
   * The limit without room: `"100/s"`; if keys have several levels, with the level: `"2/s (level 1)"`. Undefined
   * without one.
   */
  readonly limit: string | undefined;
  /**
   * When this wait began, in ms since 1970 on Redis' clock. For a delayed job, when it was stored; for a delayed retry,
   * when its last attempt began. Otherwise when it became due, or due again after a retry, a replay or the death of its
   * worker.
   */
  readonly sinceMs: number;
  /**
   * This reason holds until then at least. After that, the job may wait for something else; `eta()` says when it
   * starts. Undefined if unknown; Infinity, in JSON `"forever"`, for a pause without an end.
   */
  readonly untilMs: number | undefined;
}

interface Reason {
  readonly waitsFor: WaitsFor;
  readonly limit?: string | undefined;
  /** Ms until it ends; undefined if it is not known. */
  readonly forMs?: number | undefined;
}

interface Facts {
  readonly seen: LanesSeen;
  readonly isWorked: boolean;
  /** Ms for which the queue is paused, and the key or a parent of it. */
  readonly queueMs: number;
  readonly keyMs: number;
  /** The state of the bucket for all calls, and for those of the job's key. */
  readonly shared: BucketState;
  readonly own: BucketState;
}

/** How many of the jobs that workers have fetched to search for it. */
const MOST_COUNTED = 2_000;

export function createExplanations({
  queue,
  bucket,
  lanes,
  access,
}: {
  readonly queue: string;
  readonly bucket: Pick<OwnedBucket, "peek">;
  readonly lanes: Pick<LaneStore, "look" | "pauses" | "workers">;
  readonly access: StoredAccess;
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

/** Returns the first reason that applies; undefined if the job runs, has ended, or does not exist. */
function reasonFor(job: Job<unknown>, facts: Facts, nowMs: number): Reason | undefined {
  const { seen, isWorked, queueMs, keyMs, shared, own } = facts;
  const { jobPosition } = seen;
  if (jobPosition === undefined || jobPosition.in === "worker") return undefined;
  const dueInMs = jobPosition.in === "delay" ? jobPosition.dueInMs : 0;
  if (dueInMs > 0 && job.attemptsMade > 0) return { waitsFor: "retry", forMs: dueInMs };
  // A job that is due now is on its way to its lane. It has a delay in case it gets lost there.
  if (dueInMs > 0 && job.dueAtMs > nowMs) return { waitsFor: "delay", forMs: dueInMs };
  if (!isWorked) return { waitsFor: "no worker" };
  if (queueMs > 0) return { waitsFor: "queue paused", forMs: queueMs };
  if (shared.pausedForMs > 0) return { waitsFor: "bucket paused", forMs: shared.pausedForMs };
  if (shared.awayForMs > 0) return { waitsFor: "downstream away", forMs: shared.awayForMs };
  const keyPausedMs = Math.max(keyMs, own.pausedForMs);
  if (keyPausedMs > 0) return { waitsFor: "key paused", forMs: keyPausedMs };
  if (own.awayForMs > 0) return { waitsFor: "key away", forMs: own.awayForMs };
  if (own.coolingForMs > 0) return { waitsFor: "cooldown", forMs: own.coolingForMs };
  return ofLimits(own.limits, job.cost) ?? asideFor(keyTextOf(job), seen) ?? { waitsFor: "lane" };
}

/** Returns the full limit that will have room last. A limit on concurrent calls comes before all others. */
function ofLimits(limits: readonly LimitState[], cost: Cost | undefined): Reason | undefined {
  const full = limits.filter((limit) => limit.remaining < costOf(limit, cost));
  const [last] = full.toSorted((a, b) => (b.nextFreeMs ?? Infinity) - (a.nextFreeMs ?? Infinity));
  if (last === undefined) return undefined;
  const { name: limit, scope, nextFreeMs } = last;
  if (nextFreeMs === undefined) return { waitsFor: "lease", limit };
  // The time is known only for a cost of 1.
  const forMs = costOf(last, cost) > 1 ? undefined : nextFreeMs;
  return { waitsFor: scope === "bucket" ? "limit" : "key", limit, forMs };
}

function costOf({ unit }: LimitState, cost: Cost = 1): number {
  if (typeof cost === "number") return unit === "calls" ? cost : 0;
  return cost[unit] ?? (unit === "calls" ? 1 : 0);
}

/** Its lane, or a parent of its key, is blocked until its limits have room again. */
function asideFor(key: string | undefined, { lanes, heads }: LanesSeen): Reason | undefined {
  if (key === undefined) return undefined;
  const path = headsOfText(key);
  const forMs = Math.max(
    0,
    ...[...lanes, ...heads].map((each) => (path.includes(each.key) ? each.asideMs : 0)),
  );
  return forMs > 0 ? { waitsFor: "key", forMs } : undefined;
}
