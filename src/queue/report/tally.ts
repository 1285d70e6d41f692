/** Counts a worker's attempts that have ended, until it tells Redis of them with its presence. */
import type { Ended } from "../../core/stores/queue/steering.ts";

export interface Tally {
  started(job: object): void;
  /** Returns how long its handler ran, in ms; undefined if it never started. */
  ended(job: object, outcome: "done" | "failed"): number | undefined;
  /** Those since the last call. */
  take(): Ended;
  /** Counts them again: they could not be told. */
  giveBack(ended: Ended): void;
}

export function createTally(): Tally {
  const startedAtMs = new WeakMap<object, number>();
  let counted: Ended = { done: 0, failed: 0, busyMs: 0 };

  function add({ done, failed, busyMs }: Ended): void {
    counted = {
      done: counted.done + done,
      failed: counted.failed + failed,
      busyMs: counted.busyMs + busyMs,
    };
  }

  return {
    started: (job) => void startedAtMs.set(job, performance.now()),
    ended(job, outcome) {
      const nowMs = performance.now();
      // One that never started took no time.
      const startedMs = startedAtMs.get(job);
      const busyMs = Math.round(nowMs - (startedMs ?? nowMs));
      const isDone = outcome === "done";
      add({ done: Number(isDone), failed: Number(!isDone), busyMs });
      return startedMs === undefined ? undefined : nowMs - startedMs;
    },
    take() {
      const taken = counted;
      counted = { done: 0, failed: 0, busyMs: 0 };
      return taken;
    },
    giveBack: add,
  };
}
