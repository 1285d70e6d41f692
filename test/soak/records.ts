import type { PlannedFault } from "./plan/plan.ts";

/** One moment on the machine's monotonic clock and on its wall clock, which Redis uses. */
export interface Moment {
  readonly ms: number;
  readonly wallMs: number;
}

/** How the downstream answered a call. */
export type Answer = "ok" | "refused" | "hung" | "dripped" | "reset";

/** One call that the downstream received; times are on the machine's clock. */
export interface Call {
  readonly arrivedMs: number;
  /** When the call left its process. */
  readonly leftMs: number;
  /** The call's slot, in ms since 1970; undefined if `throttled` does not expose it. */
  readonly slotMs: number | undefined;
  readonly pid: number;
  /** The job that made the call. */
  readonly job: number | undefined;
  readonly answer: Answer;
  /** Of a tenant's job: which attempt at it made the call, from 1 on; and whose job it is. */
  readonly attempt?: number | undefined;
  readonly tenant?: string | undefined;
}

/** A fault that took place, and when. */
export interface Struck {
  readonly fault: PlannedFault;
  readonly began: Moment;
  readonly ended: Moment;
  /** The process that the fault struck. */
  readonly pid: number | undefined;
  /** The rate that the fault put in force. */
  readonly rate: RateInForce | undefined;
}

/** Another rate, 0 for a pause, since it was requested; it was surely in force from `heldFrom` to `heldTo`. */
export interface RateInForce {
  readonly perSecond: number;
  readonly askedAt: Moment;
  readonly heldFrom: Moment;
  readonly heldTo: Moment;
  readonly goneAt: Moment;
}

/** Jobs that a tool has removed: these, or all that were there. */
export interface Removal {
  readonly beganMs: number;
  readonly endedMs: number;
  readonly ids: ReadonlySet<string> | "all";
}

/** A time in which a process did nothing, long enough to lose its locks; on the machine's clock. */
export interface Standstill {
  readonly pid: number;
  readonly fromMs: number;
  readonly toMs: number;
}
