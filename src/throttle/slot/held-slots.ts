import { slotOfRun, type Granted } from "../../core/store.ts";

/** A slot that this process has drawn and not used. */
export interface HeldSlot {
  /** Its time in µs on the bucket's clock. */
  readonly slotUs: number;
  /** Its time in ms on `performance.now()`. */
  readonly atMs: number;
  /** The number of its lease; 0 if it has none. */
  readonly lease: number;
  /** The rank of the calls that it was drawn for. */
  readonly rank: number;
}

/** The slots that this process has drawn and not yet used, earliest first. */
export interface HeldSlots {
  readonly size: number;
  /** The number of slots that were drawn for calls of a rank. */
  sizeOf(rank: number): number;
  /** The time of the earliest slot, on `performance.now()`; Infinity if there is none. */
  readonly nextAtMs: number;
  /** The time of the latest slot; -Infinity if there is none. */
  readonly lastAtMs: number;
  /**
   * Adds the slots that were granted to calls of a rank; `offsetMs` is how far this process's clock is ahead of the
   * bucket's.
   */
  add(granted: Granted, firstLease: number, offsetMs: number, rank: number): void;
  take(): HeldSlot;
  /** Removes the `count` latest slots and returns them, latest first. */
  takeLatest(count: number): HeldSlot[];
}

/** The number of slots in a reply. */
export function slotCountOf({ slotsUs, run }: Pick<Granted, "slotsUs" | "run">): number {
  return slotsUs.length + (run?.count ?? 0);
}

/** All slots of a reply, latest first. */
export function slotsOf(granted: Granted, firstLease: number, offsetMs: number): HeldSlot[] {
  const held = createHeldSlots();
  held.add(granted, firstLease, offsetMs, 0);
  return held.takeLatest(Infinity);
}

interface Run {
  index: number;
  end: number;
  readonly slotUs: (index: number) => number;
  readonly offsetMs: number;
  /** The lease of the first slot; 0 if there are no leases. */
  readonly firstLease: number;
  readonly rank: number;
}

/** Stores runs of slots instead of single slots: at 100,000/s one reply brings a thousand slots. */
export function createHeldSlots(): HeldSlots {
  const runs: Run[] = [];
  const sizes: number[] = [];
  let size = 0;
  let nextAtMs = Infinity;

  function addRun(run: Run): void {
    if (run.end === 0) return;
    runs.push(run);
    // A slot that another process gave back may be earlier than those already held.
    runs.sort((a, b) => a.slotUs(a.index) - b.slotUs(b.index));
    count(run, run.end);
    updateNext();
  }

  function count({ rank }: Run, change: number): void {
    size += change;
    sizes[rank] = (sizes[rank] ?? 0) + change;
  }

  function updateNext(): void {
    const run = runs[0];
    nextAtMs = run === undefined ? Infinity : run.slotUs(run.index) / 1_000 + run.offsetMs;
  }

  return {
    get size() {
      return size;
    },
    sizeOf: (rank) => sizes[rank] ?? 0,
    get nextAtMs() {
      return nextAtMs;
    },
    get lastAtMs() {
      const run = runs.at(-1);
      return run === undefined ? -Infinity : run.slotUs(run.end - 1) / 1_000 + run.offsetMs;
    },
    add({ slotsUs, run }, firstLease, offsetMs, rank) {
      const listed = (index: number): number => slotsUs[index]!;
      addRun({ index: 0, end: slotsUs.length, slotUs: listed, offsetMs, firstLease, rank });
      if (run === undefined) return;
      const slotUs = (index: number): number => slotOfRun(run, index);
      addRun({ index: 0, end: run.count, slotUs, offsetMs, firstLease: 0, rank });
    },
    take() {
      const run = runs[0]!;
      const slot = slotOf(run, run.index);
      run.index += 1;
      count(run, -1);
      if (run.index === run.end) runs.shift();
      updateNext();
      return slot;
    },
    takeLatest(most) {
      const latest: HeldSlot[] = [];
      while (latest.length < most && runs.length > 0) {
        const run = runs.at(-1)!;
        run.end -= 1;
        latest.push(slotOf(run, run.end));
        count(run, -1);
        if (run.index === run.end) runs.pop();
      }
      updateNext();
      return latest;
    },
  };
}

function slotOf({ slotUs, offsetMs, firstLease, rank }: Run, index: number): HeldSlot {
  const us = slotUs(index);
  const lease = firstLease === 0 ? 0 : firstLease + index;
  return { slotUs: us, atMs: us / 1_000 + offsetMs, lease, rank };
}
