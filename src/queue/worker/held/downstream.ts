/**
 * Reports failed jobs to the breaker. Each process has its own breaker, which counts failures in this process
 * (`throttle/outage/breaker.ts`). If one breaker is open, the first failure in any other worker of the bucket opens the
 * breaker there too. Requests are sent to Redis only after a failure.
 */
import { setTimeout as pause } from "node:timers/promises";
import type { LaneStore } from "../../../stores/redis/queue/store.ts";
import type { LanesSeen } from "../../../stores/redis/scripts/queue/lanes.ts";
import { isUnreachable } from "../../../throttle/outage/unreachable.ts";
import type { OwnedBucket } from "../../../throttle/bucket.ts";
import type { Blocked, BreakerCall, Pass, Verdict } from "../../../throttle/outage/breaker.ts";
import type { QueueConnection } from "../../bullmq/connection.ts";
import { MOST_BESIDE } from "../../bullmq/stored-worker.ts";
import { keyTextOf, type Job } from "../../job.ts";

export interface Downstream {
  /** Reports that a job failed. Resolves with a reason if the attempt does not count. */
  failed(job: JobOfKey, pass: Pass, thrown: unknown): Promise<WhyBlocked | undefined>;
  /**
   * Waits until it is clear whether the breaker opens. Called after a failure that would be the job's last. If the
   * breaker opens, resolves with the reason, and the job will start again. Resolves with undefined if other jobs
   * succeed, or if no job is left whose failure could open the breaker.
   */
  verdict(
    job: JobOfKey,
    context: { readonly jobId: string; readonly signal: AbortSignal },
  ): Promise<WhyBlocked | undefined>;
  succeeded(job: JobOfKey, pass: Pass): void;
  /** The number of jobs that currently wait in `verdict`. */
  readonly undecided: number;
  /** Ends the waits in `verdict`. The waiting jobs will start again in other workers. */
  close(): void;
}

type JobOfKey = Pick<Job<unknown>, "id" | "key">;
export type WhyBlocked = Omit<Blocked, "passes">;

interface DownstreamParts {
  readonly queue: string;
  readonly bucket: Pick<OwnedBucket, "breaker" | "readOutages" | "stepsOf">;
  readonly lanes: Pick<LaneStore, "look">;
  readonly running: {
    all(): Iterable<{ readonly jobId: string; readonly key: string | undefined }>;
  };
  readonly connection: Pick<QueueConnection, "inTime">;
}

/**
 * How long a failed job waits for the reply of Redis that says whether other workers found the downstream unreachable.
 */
const ASK_MS = 1_000;
/** How often jobs in `verdict` check the breaker of this process, and how often they ask Redis. */
const LOOK_MS = 50;
const LOOK_REDIS_MS = 1_000;
/** All jobs in `verdict` share a read of the lanes for this time. */
const SHARED_MS = 200;
/**
 * The longest wait of one job in `verdict`. With slow limits, a job may wait longer: for the time in which
 * `LONGEST_STEPS` jobs can start.
 */
const LONGEST_MS = 60_000;
const LONGEST_STEPS = 20;

export function createDownstream(parts: DownstreamParts): Downstream {
  const { queue, bucket, lanes, running, connection } = parts;
  const { breaker } = bucket;
  /** The jobs that wait for their verdicts. */
  const undecided = new Set<string>();
  let latest: { readonly atMs: number; readonly seen: Promise<LanesSeen> } | undefined;
  let isClosed = false;

  /** Opens the breaker of this process if it is open in another process. */
  async function askOthers(
    scopes: readonly (string | undefined)[],
    options?: { readonly triesAtOnce: boolean },
  ): Promise<void> {
    const found = await connection.inTime(ASK_MS, bucket.readOutages(scopes)).catch(() => []);
    for (const [at, away] of found.entries()) {
      if (away !== undefined) breaker.adoptOpen(scopes[at], away.coolMs, options);
    }
  }

  /** Reads the lanes. Callers at about the same time share one read, because it may return hundreds of lanes. */
  function lookAtLanes(): Promise<LanesSeen> {
    const nowMs = performance.now();
    if (latest === undefined || nowMs >= latest.atMs + SHARED_MS) {
      latest = { atMs: nowMs, seen: lanes.look({ queue }) };
    }
    return latest.seen;
  }

  /** True if another job may still fail, and its failure would count in one of the given scopes. */
  async function mayOthersFail(job: BreakerCall, scopes: Verdict["countsFor"]): Promise<boolean> {
    const isOther = (key: string | undefined): boolean =>
      (scopes.includes("key") && key === job.key) ||
      (scopes.includes("bucket") && (key === undefined || key !== job.key));
    for (const { jobId, key } of running.all()) {
      if (jobId !== job.id && !undecided.has(jobId) && isOther(key)) return true;
    }
    const { lanes: seen, others, laneless } = await lookAtLanes();
    if (laneless > 0 && isOther(undefined)) return true;
    return others.jobs > 0 || seen.some(({ key, jobs }) => jobs > 0 && isOther(key));
  }

  function longestMs({ key }: BreakerCall): number {
    try {
      const { sharedMs, keyMs } = bucket.stepsOf({ key });
      return Math.max(LONGEST_MS, LONGEST_STEPS * (sharedMs + keyMs));
    } catch {
      // The current limits reject calls like this job's.
      return LONGEST_MS;
    }
  }

  async function verdict(job: BreakerCall, signal: AbortSignal): Promise<WhyBlocked | undefined> {
    const sinceMs = performance.now();
    const untilMs = sinceMs + longestMs(job);
    let lookAtMs = -Infinity;
    while (!signal.aborted) {
      const { opened, countsFor } = breaker.verdict(job, sinceMs);
      if (opened !== undefined) return opened;
      const nowMs = performance.now();
      if (countsFor.length === 0 || nowMs >= untilMs) return undefined;
      // A closing worker must not lose a job that has begun, so the job starts again. Its attempt does not count, just
      // as if the worker had lost its connection.
      if (isClosed) return { scope: "bucket", inMs: 1 };
      if (nowMs >= lookAtMs + LOOK_REDIS_MS) {
        lookAtMs = nowMs;
        await askOthers(scopesOf(job));
        const mayFail = connection.inTime(ASK_MS, mayOthersFail(job, countsFor));
        if (!(await mayFail.catch(() => true))) return breaker.verdict(job, sinceMs).opened;
      } else await pause(LOOK_MS, undefined, { ref: false });
    }
    return undefined;
  }

  // A worker that starts while the downstream is unreachable tests the downstream with a single job.
  if (breaker.isOn) void askOthers([undefined], { triesAtOnce: true });

  return {
    async failed(given, pass, thrown) {
      const job = callOf(given);
      const isDown = isUnreachable(thrown);
      if (isDown && breaker.isOn && !breaker.isOpenFor(job)) await askOthers(scopesOf(job));
      return breaker.failed(job, pass, isDown ? { thrown } : undefined);
    },
    async verdict(job, { jobId, signal }) {
      if (undecided.size >= MOST_BESIDE) return undefined;
      undecided.add(jobId);
      return verdict(callOf(job), signal).finally(() => undecided.delete(jobId));
    },
    get undecided() {
      return undecided.size;
    },
    close() {
      isClosed = true;
    },
    succeeded: (job, pass) => breaker.succeeded(callOf(job), pass),
  };
}

function callOf(job: JobOfKey): BreakerCall {
  return { id: job.id, key: keyTextOf(job) };
}

/** Returns the scopes of a job's failure: the whole bucket (undefined), and the job's key if it has one. */
function scopesOf({ key }: BreakerCall): (string | undefined)[] {
  return key === undefined ? [undefined] : [undefined, key];
}
