import type { Bucket, DrawOptions, Slot } from "sluice";
import { worstWindow } from "sluice/testing";
import { callAgainAndAgain, longestGapMs, type Steady } from "./steadily.ts";

/** Callers that draw again and again, and note their slots. */
export interface SteadyDraws extends Steady {
  readonly slots: readonly Slot[];
}

/** So many callers per bucket. */
export function drawSteadily(
  buckets: readonly Bucket[],
  { callers, ...options }: { callers: number } & DrawOptions,
): SteadyDraws {
  const slots: Slot[] = [];
  const steady = callAgainAndAgain(
    buckets,
    callers,
    (bucket) => async () => void slots.push(await bucket.draw(options)),
  );
  return { ...steady, slots };
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

/** How many slots nobody left on, from the first to the last that were used, of a bucket that began full. */
function wastedSlots(atMs: readonly number[], perSecond: number, burst = 1): number {
  const spanMs = Math.max(...atMs) - Math.min(...atMs);
  return Math.max(0, burst + Math.round((perSecond * spanMs) / 1_000) - atMs.length);
}

/** What a fault did to a bucket whose callers always wait. */
export function figuresOf(atMs: readonly number[], perSecond: number, burst = 1) {
  return {
    recoveryMs: longestGapMs(atMs),
    extra: extraSlots(atMs, { perSecond, burst }),
    wasted: wastedSlots(atMs, perSecond, burst),
  };
}

/** The part of a rate that slots made use of, from the first to the last of them. */
export function usedShare(atMs: readonly number[], perSecond: number): number {
  const spanMs = Math.max(...atMs) - Math.min(...atMs);
  return (atMs.length - 1) / ((perSecond * spanMs) / 1_000);
}
