import { setTimeout as pause } from "node:timers/promises";
import { ClosedError, type Bucket } from "sluice";
import { worstWindow } from "sluice/testing";

/** Callers that call again and again until they are stopped, whatever they meet. */
export interface SteadyCalls {
  /** When each call came to the downstream, in ms. */
  readonly arrivalsMs: readonly number[];
  /** What callers were told instead. */
  readonly errors: readonly unknown[];
  stop(): Promise<void>;
}

const AFTER_ERROR_MS = 50;

/** So many callers per bucket. */
export function callSteadily(
  buckets: readonly Bucket[],
  { callers }: { callers: number },
): SteadyCalls {
  const arrivalsMs: number[] = [];
  const errors: unknown[] = [];
  let isStopped = false;

  async function callOn(bucket: Bucket): Promise<void> {
    const call = bucket.throttled(async () => void arrivalsMs.push(performance.now()));
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
    arrivalsMs,
    errors,
    async stop() {
      isStopped = true;
      await Promise.all(running);
    },
  };
}

/** How late a call may come after its slot before the slot is drawn again, and the timer's own error, in ms. */
const LATE_MS = 10;

/** The most calls beyond what a rate allows that any window saw: 0 if the cap was kept. */
export function extraCalls(arrivalsMs: readonly number[], perSecond: number): number {
  const windows = [50, 100, 200, 500, 1_000, 3_000];
  const extra = windows.map((windowMs) => {
    const allowed = Math.ceil((perSecond * (windowMs + LATE_MS)) / 1_000) + 1;
    return worstWindow(arrivalsMs, windowMs) - allowed;
  });
  return Math.max(0, ...extra);
}

/** The longest time without a call, in ms. */
export function longestGapMs(arrivalsMs: readonly number[]): number {
  const sorted = arrivalsMs.toSorted((a, b) => a - b);
  return Math.max(0, ...sorted.slice(1).map((at, index) => at - sorted[index]!));
}
