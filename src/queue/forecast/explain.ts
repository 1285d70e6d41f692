import { sayEndless } from "../../core/describe.ts";
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
 * What a job waits for: its time (`"delay"`), or that of its next attempt (`"retry"`); a worker; the end of a pause, of a
 * cooldown, or of an outage of the downstream; room under a limit of the bucket (`"limit"`) or of its key (`"key"`), or for
 * one call more at once (`"lease"`); or, with room, its turn and a free place in a worker (`"lane"`).
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
  /** The limit that has no room: `"100/s"`; of keys with several levels with that: `"2/s (level 1)"`. Undefined without one. */
  readonly limit: string | undefined;
  /**
   * Since when it waits, in ms since 1970 on Redis' clock: since it was stored if it is delayed; since its last attempt
   * began if its retry is delayed; else since it was due, or due again after a retry, a replay or the death of its worker.
   */
  readonly sinceMs: number;
  /**
   * Until when that holds at least: the job may then wait for something else; `eta()` says when it starts. Undefined if it
   * is not known; Infinity for a pause without an end, which JSON says as `"forever"`.
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
  /** Ms for which the queue is paused, and the key or a head of it. */
  readonly queueMs: number;
  readonly keyMs: number;
  /** The bucket as it is for all, and for the job's key. */
  readonly shared: BucketState;
  readonly own: BucketState;
}

/** Among how many jobs that workers have fetched it is looked for. */
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
    return sayEndless({ waitsFor, limit, sinceMs, untilMs });
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

/** The first that holds of what a job may wait for; undefined if it runs, has ended, or is gone. */
function reasonFor(job: Job<unknown>, facts: Facts, nowMs: number): Reason | undefined {
  const { seen, isWorked, queueMs, keyMs, shared, own } = facts;
  const { place } = seen;
  if (place === undefined || place.in === "worker") return undefined;
  const dueInMs = place.in === "delay" ? place.dueInMs : 0;
  if (dueInMs > 0 && job.attemptsMade > 0) return { waitsFor: "retry", forMs: dueInMs };
  // One that is due now is on its way to its lane: it is delayed in case it gets lost there.
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

/** The limit without room for a job that lets it go last; one on calls at once before all others. */
function ofLimits(limits: readonly LimitState[], cost: Cost | undefined): Reason | undefined {
  const full = limits.filter((limit) => limit.remaining < costOf(limit, cost));
  const [last] = full.toSorted((a, b) => (b.nextFreeMs ?? Infinity) - (a.nextFreeMs ?? Infinity));
  if (last === undefined) return undefined;
  const { name: limit, scope, nextFreeMs } = last;
  if (nextFreeMs === undefined) return { waitsFor: "lease", limit };
  // It is known for a cost of 1 alone.
  const forMs = costOf(last, cost) > 1 ? undefined : nextFreeMs;
  return { waitsFor: scope === "bucket" ? "limit" : "key", limit, forMs };
}

function costOf({ unit }: LimitState, cost: Cost = 1): number {
  if (typeof cost === "number") return unit === "calls" ? cost : 0;
  return cost[unit] ?? (unit === "calls" ? 1 : 0);
}

/** Its lane, or a head of its path, stands aside until its limits have room again. */
function asideFor(key: string | undefined, { lanes, heads }: LanesSeen): Reason | undefined {
  if (key === undefined) return undefined;
  const path = headsOfText(key);
  const forMs = Math.max(
    0,
    ...[...lanes, ...heads].map((each) => (path.includes(each.key) ? each.asideMs : 0)),
  );
  return forMs > 0 ? { waitsFor: "key", forMs } : undefined;
}
