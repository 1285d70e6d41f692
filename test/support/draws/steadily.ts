import { setTimeout as pause } from "node:timers/promises";
import { ClosedError, type Bucket } from "sluice";

/** Callers that go on until they are stopped, whatever they meet. */
export interface Steady {
  /** What callers were told instead. */
  readonly errors: readonly unknown[];
  stop(): Promise<void>;
}

const AFTER_ERROR_MS = 50;

/** So many callers per bucket, of which each calls again when it is through; `callOf` makes a caller's function. */
export function callAgainAndAgain(
  buckets: readonly Bucket[],
  callers: number,
  callOf: (bucket: Bucket) => () => Promise<void>,
): Steady {
  const errors: unknown[] = [];
  let isStopped = false;

  async function callOn(bucket: Bucket): Promise<void> {
    const call = callOf(bucket);
    while (!isStopped) {
      try {
        await call();
      } catch (error) {
        if (error instanceof ClosedError) return;
        errors.push(error);
        // A breaker that is open refuses at once.
        await pause(AFTER_ERROR_MS);
      }
    }
  }

  const running = buckets.flatMap((bucket) =>
    Array.from({ length: callers }, () => callOn(bucket)),
  );
  return {
    errors,
    async stop() {
      isStopped = true;
      await Promise.all(running);
    },
  };
}

/** The longest time without a call, in ms. */
export function longestGapMs(atMs: readonly number[]): number {
  const sorted = atMs.toSorted((a, b) => a - b);
  return Math.max(0, ...sorted.slice(1).map((at, index) => at - sorted[index]!));
}
