import type { QueueFacts, WorkerTold } from "../core/stores/insight/store.ts";

/** What a process has to tell of its queues and workers. */
export interface QueueNews {
  /** What has not been told yet; of the last report, the workers are gone. */
  take(nowMs: number, isLast?: boolean): QueuesTold;
  /** What was told is lost. */
  tellAgain(): void;
  /** Whether anything here can change by itself. */
  readonly hasWorkers: boolean;
}

interface QueuesTold {
  readonly queues: readonly QueueFacts[];
  /** Undefined if they are as they were told. */
  readonly workers: readonly WorkerTold[] | undefined;
}

export interface QueueNewsParts {
  readonly queues: () => readonly QueueFacts[];
  readonly workers: () => readonly WorkerTold[];
}

/** A queue that stays open is told again, since the index forgets what nothing is heard of. */
const AGAIN_MS = 3_600_000;

export function createQueueNews(parts: QueueNewsParts): QueueNews {
  const toldAtMs = new Map<string, number>();
  /** The workers as they were told last; of none, nothing is told before any was. */
  let workersText = "[]";
  let workersAtMs = -Infinity;
  let haveWorked = false;

  function takeWorkers(nowMs: number, isLast: boolean): readonly WorkerTold[] | undefined {
    const workers = isLast ? [] : parts.workers();
    const text = JSON.stringify(workers);
    const isOld = workers.length > 0 && nowMs - workersAtMs >= AGAIN_MS;
    if (text === workersText && !isOld) return undefined;
    haveWorked ||= workers.length > 0;
    workersText = text;
    workersAtMs = nowMs;
    return workers;
  }

  return {
    take(nowMs, isLast = false) {
      const queues = parts.queues().filter(({ name }) => {
        const isDue = nowMs - (toldAtMs.get(name) ?? -Infinity) >= AGAIN_MS;
        if (isDue) toldAtMs.set(name, nowMs);
        return isDue;
      });
      return { queues, workers: takeWorkers(nowMs, isLast) };
    },
    tellAgain() {
      toldAtMs.clear();
      // No list has this text: it is told again, also that there are none any more.
      if (haveWorked) workersText = "";
    },
    get hasWorkers() {
      return parts.workers().length > 0;
    },
  };
}
