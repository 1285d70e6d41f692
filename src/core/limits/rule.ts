import type { Align } from "./calendar-days.ts";

/** One limit of a policy, in whole numbers. */
export interface Limit {
  readonly kind: string;
  /** What it counts: `"calls"` unless named, e.g. `"tokens"`. */
  readonly unit: string;
  /** Units per period; of a concurrency limit, calls that may run at once. */
  readonly count: number;
  /** In µs; of a concurrency limit, how long a lease lasts. */
  readonly periodUs: number;
  /** The most that can ever pass at once: a call that costs more never can. */
  readonly capacity: number;
  /** Where a fixed window begins, if not at the epoch. */
  readonly align?: Align | undefined;
  /** The beginnings of aligned windows about now, in µs, set for each draw: time zones are not known in Redis. */
  readonly resets?: readonly number[] | undefined;
}

/** Who draws, as far as a limit needs to know it. */
export interface Drawer {
  readonly asker: string;
  readonly nowUs: number;
  /** Since when the asker has waited for a lease; 0: it has not. */
  readonly sinceUs: number;
  /** The number of the next lease that the asker may be given; it grows with each. */
  lease: number;
}

/** Who draws nothing: who only looks, or takes back what was booked. */
export function nobodyAt(nowUs: number): Drawer {
  return { asker: "", nowUs, sinceUs: 0, lease: 0 };
}

/**
 * The arithmetic of one kind of limit. Times never run back: `atUs` is at or
 * after all that was committed before. Twin of `lua/lib/limits/<kind>.lua`.
 */
export interface Rule<State> {
  readonly kind: string;
  /** What stands for the kind in Redis. It never changes, and is never used again. */
  readonly code: number;
  /** Names of what it keeps in Redis beside its numbers. */
  readonly parts?: readonly string[];
  /** Whether what it keeps there outlives a policy without the limit, as calls do that still run. */
  readonly isKept?: boolean;
  /** Whether a later `atUs` may find less room than an earlier one, as the next window does. */
  readonly doesShift?: boolean;
  /** Whether what is used comes back evenly, rather than with another window. */
  readonly doesDrain?: boolean;
  /** Whether all of it comes back at once, with the next window. */
  readonly doesRenew?: boolean;
  /** Whether calls leave an interval apart once its burst is used. */
  readonly doesSpace?: boolean;
  /** Whether the limit holds units per time, or calls at once. */
  readonly isRate: boolean;
  /** A limit as it is named to users, without its unit: `"100/s"`. */
  format(limit: Limit): string;
  fresh(): State;
  /** The earliest time, at or after `atUs`, at which this cost may pass; Infinity if nobody can tell. */
  earliest(limit: Limit, state: State, atUs: number, cost: number, drawer: Drawer): number;
  /** Books the cost at a time that `earliest` allowed; a negative cost takes a booking of that time back. */
  commit(limit: Limit, state: State, atUs: number, cost: number, drawer: Drawer): void;
  /** Keeps what was booked where it was when the limit's numbers change. Left out: the state stays as it is. */
  adapt?(from: Limit, to: Limit, state: State, nowUs: number): void;
  /** Keeps the asker's place among those who wait for what nobody can tell the time of. */
  keepPlace?(state: State, drawer: Drawer): void;
  leavePlace?(state: State, drawer: Drawer): void;
  /** What has to drain before a call may start at `atUs`, in cost × period: with it, a whole run is booked at once. */
  excess?(limit: Limit, state: State, atUs: number, cost: number): number;
}
