import { drainUs } from "../core/limits/leaky-bucket.ts";
import type { DrawReply } from "../core/store.ts";

/** A slot, and when it comes on this process's monotonic clock. */
export interface HeldSlot {
  /** µs on the bucket's clock. */
  readonly slotUs: number;
  /** ms on `performance.now()`. */
  readonly atMs: number;
}

/** The slots that this process has drawn and not yet used, earliest first. */
export interface HeldSlots {
  readonly size: number;
  /** When the earliest one comes, on `performance.now()`; Infinity if there is none. */
  readonly nextAtMs: number;
  /** When the latest one comes; -Infinity if there is none. */
  readonly lastAtMs: number;
  /** Adds what a reply granted; `offsetMs` is how far this process's clock runs ahead of the bucket's. */
  add(reply: DrawReply, cost: number, offsetMs: number): void;
  take(): HeldSlot;
  /** Takes out the `count` latest ones; their times in µs, latest first. */
  takeLatest(count: number): number[];
  clear(): void;
}

interface Run {
  index: number;
  end: number;
  readonly slotUs: (index: number) => number;
  readonly toLocalMs: (slotUs: number) => number;
}

/** Holds runs rather than slots: at 100,000/s one reply stands for a thousand of them. */
export function createHeldSlots(): HeldSlots {
  let runs: Run[] = [];
  let size = 0;
  let nextAtMs = Infinity;

  function addRun(run: Run): void {
    if (run.end === 0) return;
    runs.push(run);
    // Slots that others gave back may lie before those that are held.
    runs.sort((a, b) => a.slotUs(a.index) - b.slotUs(b.index));
    size += run.end;
    settleNext();
  }

  function settleNext(): void {
    const run = runs[0];
    nextAtMs = run === undefined ? Infinity : run.toLocalMs(run.slotUs(run.index));
  }

  return {
    get size() {
      return size;
    },
    get nextAtMs() {
      return nextAtMs;
    },
    get lastAtMs() {
      const run = runs.at(-1);
      return run === undefined ? -Infinity : run.toLocalMs(run.slotUs(run.end - 1));
    },
    add({ nowUs, policy, recycledUs, granted, excess }, cost, offsetMs) {
      const stepLevel = cost * policy.periodUs;
      const toLocalMs = (slotUs: number): number => slotUs / 1_000 + offsetMs;
      const recycled = (index: number): number => recycledUs[index]!;
      const booked = (index: number): number => nowUs + drainUs(policy, excess + index * stepLevel);
      addRun({ index: 0, end: recycledUs.length, slotUs: recycled, toLocalMs });
      addRun({ index: 0, end: granted, slotUs: booked, toLocalMs });
    },
    take() {
      const run = runs[0]!;
      const slot = { slotUs: run.slotUs(run.index), atMs: nextAtMs };
      run.index += 1;
      size -= 1;
      if (run.index === run.end) runs.shift();
      settleNext();
      return slot;
    },
    takeLatest(count) {
      const latest: number[] = [];
      while (latest.length < count && runs.length > 0) {
        const run = runs.at(-1)!;
        run.end -= 1;
        latest.push(run.slotUs(run.end));
        if (run.index === run.end) runs.pop();
      }
      size -= latest.length;
      settleNext();
      return latest;
    },
    clear() {
      runs = [];
      size = 0;
      nextAtMs = Infinity;
    },
  };
}
