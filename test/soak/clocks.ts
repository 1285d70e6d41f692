import type { Moment } from "./records.ts";

const ATTEMPTS = 10;

/** Reads both clocks at one moment; tries again if the process was preempted between the two readings. */
export function readClocks(nowMs: () => number): Moment {
  let best = { ms: 0, wallMs: 0 };
  let bestGapMs = Infinity;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const ms = nowMs();
    // The wall clock has whole ms; adding half of one bounds the error to that.
    const wallMs = Date.now() + 0.5;
    const gapMs = nowMs() - ms;
    if (gapMs >= bestGapMs) continue;
    bestGapMs = gapMs;
    best = { ms: ms + gapMs / 2, wallMs };
  }
  return best;
}

/** Converts times of the wall clock, which may be slewed, to the machine's clock; `samples` are in order. */
export function toMachineTime(samples: readonly Moment[]): (wallMs: number) => number {
  return (wallMs) => {
    let from = 0;
    let to = samples.length;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (samples[middle]!.wallMs < wallMs) from = middle + 1;
      else to = middle;
    }
    const nearest = samples[Math.min(from, samples.length - 1)]!;
    return wallMs - nearest.wallMs + nearest.ms;
  };
}
