import { createMachineClock } from "./machine-clock.ts";

/** The arrivals of one replica in one run; adding one costs a clock reading and a store at most. */
export interface ArrivalLog {
  readonly add: () => void;
  /** On the machine's clock, in order. */
  readonly atMs: () => Float64Array;
}

export function createArrivalLog(every: number): ArrivalLog {
  const nowMs = createMachineClock();
  let times = new Float64Array(1 << 16);
  let size = 0;
  let left = every;

  return {
    add() {
      left -= 1;
      if (left > 0) return;
      left = every;
      if (size === times.length) {
        const larger = new Float64Array(times.length * 2);
        larger.set(times);
        times = larger;
      }
      times[size] = nowMs();
      size += 1;
    },
    atMs: () => times.slice(0, size),
  };
}
