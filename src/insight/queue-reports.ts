import type { QueueFacts, WorkerActivity } from "../core/stores/insight/store.ts";

/** The unreported changes of a process's queues and workers. */
export interface QueueReports {
  /** Takes what has not been reported yet. The last report lists no workers. */
  take(nowMs: number, isLast?: boolean): QueueReport;
  /** Marks everything as unreported, because a report was lost. */
  reportAgain(): void;
  /** Whether anything here can change without an event. */
  readonly hasWorkers: boolean;
}

interface QueueReport {
  readonly queues: readonly QueueFacts[];
  /** Undefined if nothing changed since the last report. */
  readonly workers: readonly WorkerActivity[] | undefined;
}

export interface QueueReportsParts {
  readonly queues: () => readonly QueueFacts[];
  readonly workers: () => readonly WorkerActivity[];
}

/** Open queues are reported again, because the index forgets queues that no process reports. */
const REPEAT_MS = 3_600_000;

export function createQueueReports(parts: QueueReportsParts): QueueReports {
  const reportedAtMs = new Map<string, number>();
  /**
   * The workers as last reported. Without workers, nothing is reported until the first one starts.
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
      // Differs from any list, so that even an empty list is reported again.
      if (haveWorked) workersText = "";
    },
    get hasWorkers() {
      return parts.workers().length > 0;
    },
  };
}
