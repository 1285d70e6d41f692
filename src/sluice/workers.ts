import { randomUUID } from "node:crypto";
import type { WorkerActivity } from "../core/stores/insight/store.ts";
import { drain, type Drained } from "../queue/worker/drain.ts";
import type { OwnedWorker } from "../queue/worker/worker.ts";

/** The open workers of one sluice. */
export interface Workers {
  /** Creates a worker for a queue, and tracks it until it is closed. */
  add<Made extends Running>(
    queue: string,
    make: (own: OwnParts) => Made,
    clients?: () => readonly ClientActivity[],
  ): Made;
  /** Adds a worker that is about to start. */
  expect(starting: Promise<void>): void;
  /** Resolves once all expected workers have started. */
  started(): Promise<void>;
  /** Returns the state of each worker, for this process's report. */
  reports(): WorkerActivity[];
  /** Drains all open workers together, as `worker.drain()` does. */
  drain(idleMs: number): Promise<Drained>;
  close(): Promise<void>;
}

type Running = Pick<OwnedWorker, "status" | "close" | "drainable">;

interface Added {
  readonly queue: string;
  readonly worker: Running;
  readonly clients: (() => readonly ClientActivity[]) | undefined;
}

/** A program outside of this process that runs jobs of a worker. */
export type ClientActivity = Pick<WorkerActivity, "sinceMs" | "running" | "concurrency"> & {
  readonly client: string;
};

export interface OwnParts {
  readonly workerId: string;
  readonly onClosed: () => void;
}

export function createWorkers(): Workers {
  const workers = new Map<string, Added>();

  const starts = new Set<Promise<void>>();

  return {
    expect(starting) {
      const start = starting.finally(() => starts.delete(start));
      starts.add(start);
    },
    async started() {
      await Promise.all(starts);
    },
    add(queue, make, clients) {
      const workerId = randomUUID();
      const worker = make({ workerId, onClosed: () => void workers.delete(workerId) });
      workers.set(workerId, { queue, worker, clients });
      return worker;
    },
    reports: () =>
      [...workers].flatMap(([id, { queue, worker, clients }]): WorkerActivity[] => {
        const { state, sinceMs, running, waiting, concurrency, paused } = worker.status();
        if (state === "closed") return [];
        const own = { worker: id, queue, state, sinceMs, running, waiting, concurrency, paused };
        if (clients === undefined) return [own];
        // The jobs that wait for slots are counted once, with the first client.
        return clients().map((client, at) => ({
          ...own,
          ...client,
          worker: `${id}/${client.client}`,
          waiting: at === 0 ? waiting : 0,
        }));
      }),
    drain(idleMs) {
      return drain(
        [...workers.values()].map(({ worker }) => worker.drainable),
        idleMs,
      );
    },
    async close() {
      await Promise.all([...workers.values()].map(({ worker }) => worker.close()));
    },
  };
}
