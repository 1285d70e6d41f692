/**
 * Reports which jobs a worker has fetched and not started, so that `eta()` and `forecast()` count them
 * (`lua/lib/lanes/look/fetched-jobs.lua`). While no job waits for longer than `LONG_MS`, nothing is sent: where jobs start at once,
 * this costs Redis nothing.
 */
import type { WorkerContext } from "../context.ts";

export interface FetchedJobs {
  /** Called for each job that was fetched. */
  add(): void;
  /** Called for each job that starts, or goes back. */
  remove(id: string): void;
  close(): Promise<void>;
}

/** Once the first job has waited for this long, all waiting ones are reported. */
const LONG_MS = 50;
/** How often they are reported while they change; how long a report holds; how often the same one is sent again. */
const REPORT_MS = 100;
const HOLDS_FOR_MS = 3_000;
const REPEAT_MS = 1_000;
/** The most jobs of a report: the first ones. Redis takes later fetched jobs to wait behind them (`lua/lib/lanes/look/fetched-jobs.lua`). */
const MOST_REPORTED = 1_000;

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
  /** The jobs of the last report that still wait. */
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
    // One report is under way at a time, also while Redis is away.
    if (sending !== undefined) return;
    if (ids.length === 0 && lastSent.length === 0) return;
    lastSent = ids;
    lastSentAtMs = performance.now();
    left = new Set(ids);
    sending = lanes
      .reportFetched(queue, { worker: workerId, ids, forMs: HOLDS_FOR_MS })
      // A report that failed is repeated at the next check; the one before it expires.
      .catch(() => void (lastSentAtMs = -Infinity))
      .then(() => {
        sending = undefined;
        if (left.size === 0) report();
      });
  }

  /** All that wait, if the first has waited for long. A job that has lost its lock and was fetched again waits twice. */
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
      // Once all reported jobs have started, those fetched after them are reported at once.
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
