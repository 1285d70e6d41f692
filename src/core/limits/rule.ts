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
  /** Whether it holds nothing back, and only counts which calls it would have. */
  readonly shadow?: true | undefined;
  /** What users read in place of its numbers: `"contract of 100 per 1s"`. */
  readonly label?: string | undefined;
  /** Where a fixed window begins, if not at the epoch. */
  readonly align?: Align | undefined;
  /** The beginnings of aligned windows about now, in µs. Each draw brings them, since Redis knows no time zones. */
  readonly resets?: readonly number[] | undefined;
}

/** How much of a limit is left now, and when there is more. */
export interface LimitStatus {
  /** How many units could pass at once now. */
  readonly remaining: number;
  /** When all of its capacity is free again; Infinity if that is unknown. */
  readonly resetUs: number;
  /** When the cost asked about may pass; Infinity if that is unknown. */
  readonly nextUs: number;
}

/** The replica that draws, as far as limits need to know it. */
export interface Drawer {
  readonly asker: string;
  readonly nowUs: number;
  /** The order of its calls among all that wait: by rank, and then by how long they have; 0: it comes last. */
  readonly order: number;
  /** The number of its next lease. */
  lease: number;
}

/** For a look, or for what is booked and given back without a lease. */
export function noDrawer(nowUs: number): Drawer {
  return { asker: "", nowUs, order: 0, lease: 0 };
}

/**
 * The arithmetic of one kind of limit, and what other code needs to know of the kind.
 * Times never go back: `atUs` is at or after all that was committed before.
 * Twin of `lua/lib/limits/<kind>.lua`.
 */
export interface Rule<State> {
  readonly kind: string;
  /** The kind's number in Redis. It never changes, and no other kind ever gets it. */
  readonly code: number;
  /** Names of what it keeps in Redis beside its numbers. */
  readonly parts?: readonly string[];
  /** What its maker calls the most that may pass at once. */
  readonly capacityName: "burst" | "capacity" | "max";
  /** Whether the limit holds units per time (true), or calls that run at once (false). */
  readonly isRate: boolean;
  /** Whether its parts outlive a policy without the limit, as running calls do. */
  readonly isKept?: boolean;
  /** Whether what is used comes back evenly, rather than with a window. */
  readonly doesDrain?: boolean;
  /** Whether all that is used comes back at once, with the next window. */
  readonly doesRenew?: boolean;
  /** Whether calls leave one interval apart once the burst is used. */
  readonly doesSpace?: boolean;
  /** A limit as users read it, without its unit: `"100/s"`. */
  format(limit: Limit): string;
  fresh(): State;
  /**
   * The earliest time, at or after `atUs`, at which this cost may pass; Infinity if that is unknown. Unless more is
   * booked, it may pass at every later time too.
   */
  earliest(limit: Limit, state: State, atUs: number, cost: number, drawer: Drawer): number;
  /** Books the cost at a time that `earliest` allowed; a negative cost takes back a booking of that time. */
  commit(limit: Limit, state: State, atUs: number, cost: number, drawer: Drawer): void;
  /** Keeps what was booked at its time when the limit's numbers change. Without it, the state stays as it is. */
  adapt?(from: Limit, to: Limit, state: State, nowUs: number): void;
  /** Keeps the asker's place among those that wait for an unknown time. */
  keepPlace?(state: State, drawer: Drawer): void;
  leavePlace?(state: State, drawer: Drawer): void;
  /** What has to drain before a call may start at `atUs`, in cost × period. With it, a whole run is booked at once. */
  excess?(limit: Limit, state: State, atUs: number, cost: number): number;
  /**
   * The status of a limit from the one number that `lua/lib/fast/plain-try-take.lua` replies: what is used of its
   * window, or of its level in cost × period. Left out by kinds that this script does not know.
   */
  plainStatus?(limit: Limit, used: number, cost: number, nowUs: number): LimitStatus;
}
