import type { Moment, Struck } from "./records.ts";

/** How far ahead slots are handed out. */
export const HORIZON_MS = 100;

/** A rate that may have been in force from one time to another, both included. */
export interface RatePhase {
  readonly perSecond: number;
  readonly fromMs: number;
  readonly toMs: number;
}

type Clock = keyof Moment;

/**
 * The rates that may have been in force, on one of the two clocks. Where one gives way to another both may be, from
 * when that was asked for until it was confirmed, and for the old one a horizon longer: so far ahead slots are booked.
 */
export function ratePhases(base: number, struck: readonly Struck[], clock: Clock): RatePhase[] {
  const phases: RatePhase[] = [];
  let fromMs = -Infinity;
  for (const { rate } of struck) {
    if (rate === undefined) continue;
    const { perSecond, askedAt, heldFrom, heldTo, goneAt } = rate;
    phases.push({ perSecond: base, fromMs, toMs: heldFrom[clock] + HORIZON_MS });
    phases.push({ perSecond, fromMs: askedAt[clock], toMs: goneAt[clock] + HORIZON_MS });
    fromMs = heldTo[clock];
  }
  return [...phases, { perSecond: base, fromMs, toMs: Infinity }];
}

/** The highest rate that may have been in force at any time from one to another. */
export function highestRate(phases: readonly RatePhase[], fromMs: number, toMs: number): number {
  const within = phases.filter((phase) => phase.fromMs <= toMs && phase.toMs >= fromMs);
  return Math.max(0, ...within.map(({ perSecond }) => perSecond));
}
