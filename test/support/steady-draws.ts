import { setTimeout as pause } from "node:timers/promises";
import { ClosedError, type Bucket, type DrawOptions, type Slot } from "sluice";
import { worstWindow } from "sluice/testing";

/** Callers that draw again and again until they are stopped, and note their slots. */
export interface SteadyDraws {
  readonly slots: readonly Slot[];
  /** What callers were told instead. */
  readonly errors: readonly unknown[];
  stop(): Promise<void>;
}

const AFTER_ERROR_MS = 50;

/** So many callers per bucket. */
export function drawSteadily(
  buckets: readonly Bucket[],
  { callers, ...options }: { callers: number } & DrawOptions,
): SteadyDraws {
  const slots: Slot[] = [];
  const errors: unknown[] = [];
  let isStopped = false;

  async function callOn(bucket: Bucket): Promise<void> {
    while (!isStopped) {
      try {
        slots.push(await bucket.draw(options));
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
    slots,
    errors,
    async stop() {
      isStopped = true;
      await Promise.all(running);
    },
  };
}

export function timesOf(slots: readonly Slot[]): number[] {
  return slots.map(({ atMs }) => atMs);
}

/** A double holds a time of today to within this. */
const ROUNDING_MS = 0.001;
const WINDOWS_MS = [20, 50, 100, 200, 500, 1_000, 3_000];

/** The most slots beyond what a leaky bucket promises that any window holds, by their own times: 0 if it was kept. */
export function extraSlots(
  atMs: readonly number[],
  { perSecond, burst = 1 }: { perSecond: number; burst?: number },
): number {
  const extra = WINDOWS_MS.map((windowMs) => {
    const allowed = burst - 1 + Math.ceil((perSecond * windowMs) / 1_000);
    return worstWindow(atMs, windowMs - ROUNDING_MS) - allowed;
  });
  return Math.max(0, ...extra);
}

/** The part of a rate that slots made use of, from the first to the last of them. */
export function usedShare(atMs: readonly number[], perSecond: number): number {
  const spanMs = Math.max(...atMs) - Math.min(...atMs);
  return (atMs.length - 1) / ((perSecond * spanMs) / 1_000);
}

/** The longest time without a slot, in ms. */
export function longestWaitMs(atMs: readonly number[]): number {
  const sorted = atMs.toSorted((a, b) => a - b);
  return Math.max(0, ...sorted.slice(1).map((at, index) => at - sorted[index]!));
}
