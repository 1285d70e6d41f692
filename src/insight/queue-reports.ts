import type { QueueFacts, WorkerActivity } from "../core/stores/insight/store.ts";

/** The unreported changes of a process's queues and workers. */
export interface QueueReports {
  /**
   * Returns the unreported changes and marks them as reported. With `isLast`, the report lists no
   * workers.
   */
  take(nowMs: number, isLast?: boolean): QueueReport;
  /** Marks all queues and workers as unreported, because a report was lost. */
  reportAgain(): void;
  /** True if the process has workers. Their state can change without an event. */
  readonly hasWorkers: boolean;
}

interface QueueReport {
  readonly queues: readonly QueueFacts[];
  /** The workers' state. Undefined if it has not changed since the last report. */
  readonly workers: readonly WorkerActivity[] | undefined;
}

export interface QueueReportsParts {
  readonly queues: () => readonly QueueFacts[];
  readonly workers: () => readonly WorkerActivity[];
}

/**
 * The interval at which open queues and workers are reported again. The index drops queues that no
 * process reports.
 */
const REPEAT_MS = 3_600_000;

export function createQueueReports(parts: QueueReportsParts): QueueReports {
  const reportedAtMs = new Map<string, number>();
  /**
   * The last reported workers, as JSON. Without workers, nothing is reported until the first worker
   * starts.
   */
  let workersText = "[]";
  let workersAtMs = -Infinity;
  let haveWorked = false;

  function takeWorkers(nowMs: number, isLast: boolean): readonly WorkerActivity[] | undefined {
    const workers = isLast ? [] : parts.workers();
    const text = JSON.stringify(workers);
    const isOld = workers.length > 0 && nowMs - workersAtMs >= REPEAT_MS;
    if (text === workersText && !isOld) return undefined;
    haveWorked ||= workers.length > 0;
    workersText = text;
    workersAtMs = nowMs;
    return workers;
  }

  return {
    take(nowMs, isLast = false) {
      const queues = parts.queues().filter(({ name }) => {
        const isDue = nowMs - (reportedAtMs.get(name) ?? -Infinity) >= REPEAT_MS;
        if (isDue) reportedAtMs.set(name, nowMs);
        return isDue;
      });
      return { queues, workers: takeWorkers(nowMs, isLast) };
    },
    reportAgain() {
      reportedAtMs.clear();
      // The empty text differs from every list, so even an empty list is reported again.
      if (haveWorked) workersText = "";
    },
    get hasWorkers() {
      return parts.workers().length > 0;
    },
  };
}
