import type { Align } from "./calendar-days.ts";

/** One limit of a policy, in whole numbers. */
export interface Limit {
  readonly kind: string;
  /** The unit that it counts: `"calls"` by default, or a name such as `"tokens"`. */
  readonly unit: string;
  /** Units per period. For a concurrency limit, the calls that may run at once. */
  readonly count: number;
  /** In µs. For a concurrency limit, how long a lease lasts. */
  readonly periodUs: number;
  /** The most that can ever pass at once. A more expensive call can never pass. */
  readonly capacity: number;
  /** True for a limit that delays nothing, and only counts the calls that it would have delayed. */
  readonly shadow?: true | undefined;
  /** The text that users read in place of its numbers: `"contract of 100 per 1s"`. */
  readonly label?: string | undefined;
  /** The start of a fixed window, if it is not the epoch. */
  readonly align?: Align | undefined;
  /**
   * The starts of calendar windows around the current time, in µs. Each draw brings them, because Redis knows no time
   * zones.
   */
  readonly resets?: readonly number[] | undefined;
}

/** The current state of a limit. */
export interface LimitStatus {
  /** The units that could pass at once now. */
  readonly remaining: number;
  /** The time at which all of its capacity is free again. Infinity if that is unknown. */
  readonly resetUs: number;
  /** The time at which the given cost may pass. Infinity if that is unknown. */
  readonly nextUs: number;
}

/** The facts about one kind of limit that TypeScript code needs. Its arithmetic is in `lua/lib/limits/<kind>.lua`. */
export interface Rule {
  readonly kind: string;
  /** The number of the kind in Redis. It never changes and is never reused. */
  readonly code: number;
  /** The names of the Redis structures beside the numbers of the state. */
  readonly parts?: readonly string[];
  /** The option that sets the most that may pass at once. */
  readonly capacityName: "burst" | "capacity" | "max";
  /** True if the limit counts units per time, false if it counts running calls. */
  readonly isRate: boolean;
  /** True if its Redis structures outlive a policy without the limit, as running calls do. */
  readonly isKept?: boolean;
  /** True if used units come back evenly. */
  readonly doesDrain?: boolean;
  /** True if all used units come back at once, with the next window. */
  readonly doesRenew?: boolean;
  /** True if calls are one interval apart once the burst is used. */
  readonly doesSpace?: boolean;
  /** The name of a limit without its unit: `"100/s"`. */
  format(limit: Limit): string;
  /**
   * Computes the status from the one number that `lua/lib/fast/plain-try-take.lua` returns: the usage of the window, or
   * the level in cost × period. Omitted by kinds that this script does not support.
   */
  plainStatus?(limit: Limit, used: number, cost: number, nowUs: number): LimitStatus;
}
