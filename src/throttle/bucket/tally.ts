import type { ToldHere } from "../bucket.ts";
import { nameBinding } from "../try/decision.ts";
import type { Waits } from "../waiting/dispatch.ts";

/** Counts what a bucket does in this process, for whoever reports it. */
export interface Tally {
  /** Calls have started. */
  readonly add: (calls: number) => void;
  /** A caller waits. */
  readonly touch: () => void;
  /** The calls that started since it was last taken; what happens next is activity again. */
  take(): number;
}

/** `onActivity` is called with the first call or caller after each `take`. */
export function createTally(onActivity: () => void = () => {}): Tally {
  let started = 0;
  let isTold = false;

  function touch(): void {
    if (isTold) return;
    isTold = true;
    onActivity();
  }

  return {
    add(calls) {
      started += calls;
      if (!isTold) touch();
    },
    touch,
    take() {
      const taken = started;
      started = 0;
      isTold = false;
      return taken;
    },
  };
}

/** What this process tells of a bucket. */
export function toldOf(started: number, { byRank, sinceMs, most }: Waits): ToldHere {
  const oldestMs = sinceMs === Infinity ? 0 : Math.max(0, Math.round(performance.now() - sinceMs));
  const limitedBy = most && nameBinding(most.bindsAt, most.callTerms);
  return { started, waiting: byRank, oldestMs, limitedBy };
}
