import type { Bucket } from "sluice";
import { worstWindow } from "sluice/testing";
import { callAgainAndAgain, longestGapMs, type Steady } from "./steadily.ts";
import { wastedSlots } from "./steady-draws.ts";

/** Callers that call again and again. */
export interface SteadyCalls extends Steady {
  /** When each call came to the downstream, in ms. */
  readonly arrivalsMs: readonly number[];
}

/** So many callers per bucket. */
export function callSteadily(
  buckets: readonly Bucket[],
  { callers }: { callers: number },
): SteadyCalls {
  const arrivalsMs: number[] = [];
  const arrive = async (): Promise<void> => void arrivalsMs.push(performance.now());
  const steady = callAgainAndAgain(buckets, callers, (bucket) => bucket.throttled(arrive));
  return { ...steady, arrivalsMs };
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

/** What a fault did to calls whose callers always wait. */
export function callFigures(arrivalsMs: readonly number[], perSecond: number) {
  return {
    recoveryMs: longestGapMs(arrivalsMs),
    extra: extraCalls(arrivalsMs, perSecond),
    wasted: wastedSlots(arrivalsMs, perSecond),
  };
}
