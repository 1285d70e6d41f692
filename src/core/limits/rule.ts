import type { Align, Calendar } from "./calendar-days.ts";

/** The period of a budget. With `{ days: 30 }`, today and the 29 days before count. */
export type BudgetPeriod = Calendar["per"] | { readonly days: number };

/** The options of a budget, with all defaults filled in. */
export interface BudgetTerms {
  readonly per: BudgetPeriod;
  readonly timeZone: string;
  readonly weekStart: "monday" | "sunday";
  /** The most units that are carried over into the next period. Undefined means no bound; 0 carries nothing over. */
  readonly mostCarried?: number | undefined;
  /** The parts of the amount at which a warning is emitted, in ascending order: `[0.5, 0.8]`. */
  readonly warnAt: readonly number[];
  readonly onSpent: "refuse" | "wait";
  /** How long a call may take until its reservation is given back, in ms. */
  readonly reserveMs: number;
  /** The HTTP status with which servers refuse calls. */
  readonly httpStatus: 402 | 429;
}

/** The options of a concurrency limit that adapts to latency, with all defaults filled in. Its `count` is the maximum. */
export interface AdaptiveTerms {
  /** The measure that the limit adapts to. */
  readonly target: "latency";
  /** The least calls that may run at once. */
  readonly min: number;
  /** The calls that may run at once until the baseline is measured. */
  readonly initial: number;
  /** How many times the baseline the latency may be: `1.1`. */
  readonly tolerance: number;
  /** True if only the maximum binds, and the limit is only computed and reported. */
  readonly shadow?: true | undefined;
}

/** One limit of a policy. All numbers are whole numbers. */
export interface Limit {
  readonly kind: string;
  /** The unit that the limit counts: `"calls"` by default, or a name such as `"tokens"`. */
  readonly unit: string;
  /** The units per period. For a concurrency limit, the calls that may run at once. */
  readonly count: number;
  /** The period in µs. For a concurrency limit, how long a lease lasts. */
  readonly periodUs: number;
  /** The most units that can ever pass at once. A more expensive call can never pass. */
  readonly capacity: number;
  /** True for a shadow: a limit that only counts the calls that it would have delayed, and delays no call. */
  readonly shadow?: true | undefined;
  /** The text that users see instead of the numbers of the limit: `"contract of 100 per 1s"`. */
  readonly label?: string | undefined;
  /**
   * The local time at which a daily fixed window begins. Undefined if windows begin at multiples of the period since
   * 1970.
   */
  readonly align?: Align | undefined;
  /**
   * The start times of the calendar windows around the current time, in µs. Each draw sends these times, because Redis
   * knows no time zones.
   */
  readonly resets?: readonly number[] | undefined;
  /** The period and the options of a budget. `count` and `capacity` of a budget are in millionths of the unit. */
  readonly budget?: BudgetTerms | undefined;
  /** The options of a concurrency limit that adapts to latency. */
  readonly adaptive?: AdaptiveTerms | undefined;
  /** The starts of the days that a budget of rolling days needs, in µs. They are computed and sent like `resets`. */
  readonly days?: readonly number[] | undefined;
}

/** Why an adaptive limit has its value, in the order of their numbers in `lua/lib/limits/adaptive/window.lua`. */
export const ADAPTIVE_REASONS = [
  "calibrating",
  "raised",
  "held",
  "unused",
  "latency",
  "drops",
  "baseline",
  "probe",
] as const;

export type AdaptiveReason = (typeof ADAPTIVE_REASONS)[number];

/** The state of a limit that adapts to latency, after a window was closed. */
export interface AdaptiveWindow {
  /** The calls that may run at once. */
  readonly bound: number;
  /** The computed limit: `41.5`. It differs from `bound` during a probe and in shadow. */
  readonly value: number;
  /** The latency without a queue, in µs. 0 before it is measured. */
  readonly baselineUs: number;
  /** The mean latency of the last window, in µs. */
  readonly recentUs: number;
  readonly reason: AdaptiveReason;
  /** The number of windows that were closed. */
  readonly windows: number;
}

/** The current state of a limit. */
export interface LimitStatus {
  /** The units that can pass at once now. */
  readonly remaining: number;
  /** The time at which the full capacity is available again, in µs. Infinity if that is unknown. */
  readonly resetUs: number;
  /** The time at which a call with the given cost may pass, in µs. Infinity if that is unknown. */
  readonly nextUs: number;
  /** For a budget that was peeked at: its amount, with what is carried over and granted. */
  readonly total?: number | undefined;
  /** The state of a limit that adapts to latency, after its first window. */
  readonly adaptive?: AdaptiveWindow | undefined;
}

/**
 * The properties of one kind of limit, such as leaky buckets, that TypeScript code needs. The arithmetic of the kind is
 * in `lua/lib/limits/<kind>.lua`.
 */
export interface Rule {
  readonly kind: string;
  /** The number that identifies the kind in Redis. The number never changes and is never reused. */
  readonly code: number;
  /** The names of the Redis structures that the kind needs in addition to the numbers of its state. */
  readonly parts?: readonly string[];
  /** The name of the option that sets the most units that may pass at once. */
  readonly capacityName: "burst" | "capacity" | "max" | "amount";
  /** True if the limit counts units per time, false if it counts running calls. */
  readonly isRate: boolean;
  /**
   * True if the Redis structures of the kind stay when a new policy no longer contains the limit, as running calls do.
   */
  readonly isKept?: boolean;
  /** True if used units become available again evenly over time. */
  readonly doesDrain?: boolean;
  /** True if all used units become available again at once, when the next window begins. */
  readonly doesRenew?: boolean;
  /** True if the limit is an amount for a calendar period. It has no pace, and its numbers are millionths. */
  readonly isBudget?: boolean;
  /** True if calls are spaced by one interval once the burst is used. */
  readonly doesSpace?: boolean;
  /** Formats a limit without its unit: `"100/s"`. */
  format(limit: Limit): string;
  /**
   * Computes the status from the single number that `lua/lib/fast/plain-try-take.lua` returns: the usage of the window,
   * or the level in cost × period. Undefined for kinds that this script does not support.
   */
  plainStatus?(limit: Limit, used: number, cost: number, nowUs: number): LimitStatus;
}
