import { headsOfText } from "../../../core/key-path.ts";
import type { HeldJob, WorkerOrders } from "../../../stores/redis/scripts/queue/lanes.ts";
import type { LaneStore } from "../../../stores/redis/queue/store.ts";
import { pauseFor } from "../../../throttle/waiting/wait.ts";
import type { OwnedJobContext, Running, WorkerContext } from "../context.ts";

/**
 * Tracks pauses and cancellations that affect the jobs of a worker. Each reply to a fetch contains them. A worker that
 * holds jobs but fetches none requests them several times a second. A lost reply does no harm, because a job starts
 * only if the latest reply is less than a second old.
 */
interface JobOrders {
  /**
   * Applies the pauses and cancellations in a reply. `askedAtMs` is when the request was sent, on `performance.now()`.
   */
  apply(seen: WorkerOrders, askedAtMs: number): void;
  /** Called for each job that was fetched. */
  add(context: OwnedJobContext): void;
  /** True if the latest reply is recent enough for a job to begin. */
  readonly areFresh: boolean;
  /** True if the queue was paused according to the latest reply. */
  readonly isPaused: boolean;
  /** Resolves once the latest reply is recent enough, or when the job's wait was ended. */
  untilFresh(context: OwnedJobContext): Promise<void>;
  close(): void;
}

/**
 * The longest time between two requests for pauses and cancellations, and the greatest age of a reply at which a job
 * may still start.
 */
const LOOK_MS = 350;
const FRESH_MS = 1_000;
const RECHECK_MS = 25;

export function createJobOrders({
  queue,
  workerId,
  lanes,
  running,
  onMissed,
}: {
  readonly queue: string;
  /** The worker's id. The lock tokens of this worker begin with the id. */
  readonly workerId: string;
  readonly lanes: Pick<LaneStore, "orders">;
  readonly running: Pick<Running, "all" | "count">;
  /**
   * Called for a job that was cancelled while this worker held it, but whose attempt ended before the worker learned of
   * the cancellation.
   */
  readonly onMissed: (id: string) => void;
}): JobOrders {
  let isPaused = false;
  /** The locks of those jobs in this worker that are known to be cancelled. */
  let known = new Set<string>();
  /** When the pause of each paused key ends, on `performance.now()`. */
  let pausedKeys: ReadonlyMap<string, number> = new Map();
  let version = "";
  let repliedAtMs = -Infinity;
  let asking: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function mustNotBegin({ key }: OwnedJobContext): boolean {
    if (isPaused) return true;
    if (key === undefined || pausedKeys.size === 0) return false;
    return headsOfText(key).some((head) => (pausedKeys.get(head) ?? 0) > performance.now());
  }

  function apply(seen: WorkerOrders, askedAtMs: number): void {
    repliedAtMs = Math.max(repliedAtMs, askedAtMs);
    isPaused = seen.isPaused;
    if (isPaused) for (const context of running.all()) context.recall();
    if (seen.version !== version) void ask();
  }

  /** Requests the pauses and cancellations. Never rejects. Without a reply, no job begins in this worker. */
  function ask(): Promise<void> {
    asking ??= askNow()
      .catch(() => undefined)
      .finally(() => {
        asking = undefined;
      });
    return asking;
  }

  async function askNow(): Promise<void> {
    const askedAtMs = performance.now();
    const orders = await lanes.orders({ queue, tokens: `${workerId}:` });
    version = orders.version;
    const nowMs = performance.now();
    pausedKeys = new Map(orders.pausedKeys.map(({ key, forMs }) => [key!, nowMs + forMs]));
    apply(orders, askedAtMs);
    if (pausedKeys.size > 0)
      for (const context of running.all()) if (mustNotBegin(context)) context.recall();
    if (orders.cancelled.length > 0) cancel(orders.cancelled);
  }

  function cancel(locks: readonly HeldJob[]): void {
    const held = new Map<string, OwnedJobContext>();
    for (const context of running.all()) held.set(lockOf(context.token, context.jobId), context);
    for (const { id, token } of locks) {
      const lock = lockOf(token, id);
      const context = held.get(lock);
      if (context !== undefined) context.cancel();
      else if (!known.has(lock)) onMissed(id);
    }
    known = new Set(locks.map(({ id, token }) => lockOf(token, id)));
  }

  function lookIn(ms: number): void {
    if (timer === undefined && !isClosed) timer = setTimeout(look, ms).unref();
  }

  function look(): void {
    timer = undefined;
    if (running.count === 0) return;
    const leftMs = repliedAtMs + LOOK_MS - performance.now();
    if (leftMs > 0) return lookIn(leftMs);
    void ask().then(() => lookIn(LOOK_MS));
  }

  function areFresh(): boolean {
    return performance.now() < repliedAtMs + FRESH_MS;
  }

  return {
    apply,
    add(context) {
      if (mustNotBegin(context)) context.recall();
      lookIn(LOOK_MS);
    },
    get isPaused() {
      return isPaused;
    },
    get areFresh() {
      return areFresh();
    },
    async untilFresh(context) {
      while (!isClosed && !context.isLeaving && !areFresh()) {
        void ask();
        await pauseFor(RECHECK_MS, context);
      }
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

function lockOf(token: string, id: string): string {
  return `${token} ${id}`;
}

interface FetchedJobs {
  /** Called for each job that was fetched. */
  add(): void;
  /** Called for each job that starts, or goes back to the queue. */
  remove(id: string): void;
  close(): Promise<void>;
}

/** Once the first job has waited this long, all waiting jobs are reported. */
const LONG_MS = 50;
/**
 * The least time between different reports, how long a report is valid, and how often an unchanged report is repeated.
 */
const REPORT_MS = 100;
const HOLDS_FOR_MS = 3_000;
const REPEAT_MS = 1_000;
/**
 * A report contains at most this many jobs: those that were fetched first. Redis assumes that all other jobs wait
 * behind them (`lua/lib/lanes/look/fetched-jobs.lua`).
 */
const MOST_REPORTED = 1_000;

/**
 * Reports the jobs that a worker has fetched but not started, so that `eta()` and `forecast()` count them
 * (`lua/lib/lanes/look/fetched-jobs.lua`). Sends nothing while jobs start at once.
 */
export function createFetchedJobs({
  lanes,
  queue,
  workerId,
  running,
}: Pick<WorkerContext, "queue" | "workerId"> & {
  readonly lanes: Pick<WorkerContext["lanes"], "reportFetched">;
  readonly running: Pick<WorkerContext["running"], "unbegun" | "waiting">;
}): FetchedJobs {
  let lastSent: readonly string[] = [];
  let lastSentAtMs = 0;
  /** The jobs of the latest report that still wait. */
  let left = new Set<string>();
  let sending: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function checkIn(ms: number): void {
    if (timer === undefined && !isClosed) timer = setTimeout(check, ms).unref();
  }

  function check(): void {
    timer = undefined;
    const ids = waitingForLong();
    if (!isKnown(ids)) report(ids);
    if (running.unbegun > 0) checkIn(lastSent.length > 0 ? REPORT_MS : LONG_MS);
  }

  function isKnown(ids: readonly string[]): boolean {
    const isSame = ids.length === lastSent.length && ids.every((id, at) => id === lastSent[at]);
    return isSame && performance.now() - lastSentAtMs < REPEAT_MS;
  }

  function report(ids = waitingForLong()): void {
    // Sends one report at a time, even while Redis is unreachable.
    if (sending !== undefined) return;
    if (ids.length === 0 && lastSent.length === 0) return;
    lastSent = ids;
    lastSentAtMs = performance.now();
    left = new Set(ids);
    sending = lanes
      .reportFetched({ queue, worker: workerId, ids, forMs: HOLDS_FOR_MS })
      // The next check repeats a failed report. Until then, the previous report may expire.
      .catch(() => void (lastSentAtMs = -Infinity))
      .then(() => {
        sending = undefined;
        if (left.size === 0) report();
      });
  }

  /**
   * Returns the ids of all waiting jobs if the first has waited for `LONG_MS`. Uses a set, because a job that lost its
   * lock and was fetched again waits twice.
   */
  function waitingForLong(): string[] {
    const ids = new Set<string>();
    if (isClosed) return [];
    for (const { jobId, sinceMs } of running.waiting()) {
      const isSoon = ids.size === 0 && performance.now() - sinceMs < LONG_MS;
      if (isSoon || ids.size === MOST_REPORTED) break;
      ids.add(jobId);
    }
    return [...ids];
  }

  return {
    add: () => checkIn(LONG_MS),
    remove(id) {
      // Once all reported jobs have started, the jobs that were fetched after them are reported at once.
      if (left.delete(id) && left.size === 0) report();
    },
    async close() {
      isClosed = true;
      clearTimeout(timer);
      await sending;
      report();
      await sending;
    },
  };
}

interface JobLocks {
  /** True if the worker holds the job's lock, because Redis confirmed the lock less than `lockMs` ago. */
  isHeld(job: OwnedJobContext): boolean;
  /** Asks Redis whether the worker still holds the lock, and if so, renews the lock. */
  confirm(job: OwnedJobContext): Promise<boolean>;
  /** Stops renewing locks. */
  close(): void;
}

interface JobLocksSettings {
  readonly running: Pick<Running, "all">;
  readonly lockMs: number;
  /** Renews locks. Resolves with the ids of the jobs whose locks could not be renewed. */
  readonly extend: (ids: string[], tokens: string[], lockMs: number) => Promise<readonly string[]>;
  readonly onError: (error: Error) => void;
}

/** How often locks are checked within `lockMs`. A lock is renewed before half of its time is over. */
const LOOKS = 4;
const LOST = "its lock was lost";

/**
 * Renews the locks of a worker's jobs. A lock is identified by its job and its token.
 *
 * BullMQ's own lock manager is not used, because it identifies a lock by its job alone. If a process hangs for longer
 * than a lock lasts, the same worker may fetch a job again while the job's first wait continues. When the first wait
 * ends, BullMQ stops renewing the new lock, so the job is lost until it becomes a dead letter. No upstream issue known;
 * checked with bullmq 6.7.0 (`untrackJob` in lock-manager.js).
 */
export function createJobLocks({ running, lockMs, extend, onError }: JobLocksSettings): JobLocks {
  const lookMs = lockMs / LOOKS;
  let isClosed = false;
  let timer = lookLater();

  function lookLater(): NodeJS.Timeout {
    return setTimeout(() => {
      void renew(dueJobs()).then(() => {
        if (!isClosed) timer = lookLater();
      });
    }, lookMs);
  }

  /** Returns the jobs whose locks are due for renewal. If a job was fetched twice, only its newer lock counts. */
  function dueJobs(): OwnedJobContext[] {
    const newest = new Map<string, OwnedJobContext>();
    for (const job of running.all()) {
      if (job.isLost || job.isGoingBack) continue;
      newest.get(job.jobId)?.lose(LOST);
      newest.set(job.jobId, job);
    }
    const byMs = performance.now() - lookMs / 2;
    return [...newest.values()].filter(({ lockedAtMs }) => lockedAtMs < byMs);
  }

  async function renew(jobs: readonly OwnedJobContext[]): Promise<void> {
    if (jobs.length === 0 || isClosed) return;
    const ids = jobs.map(({ jobId }) => jobId);
    const tokens = jobs.map(({ token }) => token);
    // A renewed lock begins at this time or later. The time of the reply is not used, because the reply may be read
    // much later.
    const askedAtMs = performance.now();
    try {
      const refused = new Set(await extend(ids, tokens, lockMs));
      for (const job of jobs) {
        if (refused.has(job.jobId)) job.lose(LOST);
        else job.lockedAtMs = askedAtMs;
      }
      if (refused.size === 0) return;
      onError(new Error(`Jobs lost their locks: ${refused.size}. They are fetched again`));
    } catch (error) {
      if (!isClosed) onError(error as Error);
    }
  }

  const isHeld = ({ isLost, lockedAtMs }: OwnedJobContext): boolean =>
    !isLost && performance.now() - lockedAtMs < lockMs;

  return {
    isHeld,
    async confirm(job) {
      if (!job.isLost) await renew([job]);
      return isHeld(job);
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}
