import type { WorkerProcess } from "../workers.ts";

/** What is to be seen at one moment of the run. */
export interface Snapshot {
  readonly elapsedMs: number;
  /** The last one: nothing moves any more. */
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

/** Shows snapshots as they come. */
export interface View {
  show(snapshot: Snapshot): void;
  /** Leaves the terminal as it was found. */
  close(): void;
}
