/** How a worker stands. */
export interface WorkerStatus {
  /** `"closing"` while it ends its handlers; then `"closed"`. */
  readonly state: "running" | "closing" | "closed";
  /** Since when, in ms since 1970. */
  readonly sinceMs: number;
  /** How many jobs have their handlers running. */
  readonly running: number;
  /** How many more it holds, which wait for their slots. */
  readonly waiting: number;
  /** Whether the queue is paused, as the worker heard last. */
  readonly paused: boolean;
  /**
   * While this process has found the downstream away: ms until the next job tries whether it is back, at least 1. Else 0,
   * also while those of single keys are away.
   */
  readonly awayForMs: number;
  /** How many it may hold in all. */
  readonly concurrency: number;
}
