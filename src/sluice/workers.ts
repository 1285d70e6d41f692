import { randomUUID } from "node:crypto";
import type { WorkerActivity } from "../core/stores/insight/store.ts";
import type { Worker } from "../queue/worker/worker.ts";

/** The open workers of one sluice. */
export interface Workers {
  /** Creates a worker for a queue, and tracks it until it is closed. */
  add<Made extends Running>(queue: string, make: (own: OwnParts) => Made): Made;
  /** Returns the state of each worker, for this process's report. */
  reports(): WorkerActivity[];
  close(): Promise<void>;
}

type Running = Pick<Worker, "status" | "close">;

interface OwnParts {
  readonly workerId: string;
  readonly onClosed: () => void;
}

export function createWorkers(): Workers {
  const workers = new Map<string, { readonly queue: string; readonly worker: Running }>();

  return {
    add(queue, make) {
      const workerId = randomUUID();
      const worker = make({ workerId, onClosed: () => void workers.delete(workerId) });
      workers.set(workerId, { queue, worker });
      return worker;
    },
    reports: () =>
      [...workers].flatMap(([id, { queue, worker }]) => {
        const { state, sinceMs, running, waiting, concurrency, paused } = worker.status();
        if (state === "closed") return [];
        return [{ worker: id, queue, state, sinceMs, running, waiting, concurrency, paused }];
      }),
    async close() {
      await Promise.all([...workers.values()].map(({ worker }) => worker.close()));
    },
  };
}
