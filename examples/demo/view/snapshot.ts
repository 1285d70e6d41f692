import type { WorkerProcess } from "../workers.ts";

/** The state of the run at one moment. */
export interface Snapshot {
  readonly elapsedMs: number;
  /** True if this is the last snapshot of the run. */
  readonly isLast: boolean;
  readonly jobs: number;
  readonly delivered: number;
  readonly backlog: number;
  readonly callsInLastSecond: number;
  readonly worstSecond: number;
  readonly refused: number;
  readonly workers: readonly WorkerProcess[];
  readonly deliveredBy: (worker: string) => number;
}

/** Shows each snapshot. */
export interface View {
  show(snapshot: Snapshot): void;
  /** Restores the terminal. */
  close(): void;
}
