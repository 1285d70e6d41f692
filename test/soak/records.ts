import type { PlannedFault } from "./plan/plan.ts";

/** A time on the machine's monotonic clock, and on its wall clock, which Redis goes by. */
export interface Moment {
  readonly ms: number;
  readonly wallMs: number;
}

/** What the downstream did with a call. */
export type Answer = "ok" | "refused" | "hung" | "dripped" | "reset";

/** One call, as the downstream saw it; times are on the machine's clock. */
export interface Call {
  readonly arrivedMs: number;
  /** When it left its process. */
  readonly leftMs: number;
  /** The slot that it left on, in ms since 1970; undefined where `throttled` keeps it to itself. */
  readonly slotMs: number | undefined;
  readonly pid: number;
  /** The job that it was made for. */
  readonly job: number | undefined;
  readonly answer: Answer;
}

/** A fault that was done, and when. */
export interface Struck {
  readonly fault: PlannedFault;
  readonly began: Moment;
  readonly ended: Moment;
  /** The process that it struck. */
  readonly pid: number | undefined;
  /** The rate that it put in force, in calls a second; 0 is a pause. */
  readonly rate: RateInForce | undefined;
}

/** Another rate, from when it was asked for; it held for certain between its two other times. */
export interface RateInForce {
  readonly perSecond: number;
  readonly askedAt: Moment;
  readonly heldFrom: Moment;
  readonly heldTo: Moment;
  readonly goneAt: Moment;
}

/** A time in which a process did nothing, for long enough to lose its locks; on the machine's clock. */
export interface Standstill {
  readonly pid: number;
  readonly fromMs: number;
  readonly toMs: number;
}
