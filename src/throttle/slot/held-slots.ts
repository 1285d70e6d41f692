import { slotOfRun, type Granted } from "../../core/store.ts";

/** A slot that this process has drawn but not used yet. */
export interface HeldSlot {
  /** The time of the slot, in µs on the bucket's clock. */
  readonly slotUs: number;
  /** The time of the slot, in ms on `performance.now()`. */
  readonly atMs: number;
  /** The lease number of the slot. 0 without a lease. */
  readonly lease: number;
  /** The priority rank of the calls that the slot was drawn for. */
  readonly rank: number;
  /** In a pool, the number of the slot's member, from 1. 0 in other buckets. */
  readonly member: number;
}

/** The slots that this process has drawn and not yet used, earliest first. */
export interface HeldSlots {
  readonly size: number;
  /** Returns the number of unused slots that were drawn for calls of a priority rank. */
  sizeOf(rank: number): number;
  /** The time of the earliest slot, on `performance.now()`. Infinity without slots. */
  readonly nextAtMs: number;
  /** The time of the latest slot, on `performance.now()`. -Infinity without slots. */
  readonly lastAtMs: number;
  /**
   * Adds the slots that were granted to calls of a priority rank. `offsetMs` says how far this process's clock is ahead
   * of the bucket's clock. In a pool, only slots of members for which `hasLease` returns true have a lease.
   */
  add(
    granted: Granted,
    firstLease: number,
    offsetMs: number,
    rank: number,
    hasLease?: (member: number) => boolean,
  ): void;
  take(): HeldSlot;
  /** Removes the `count` latest slots and returns them, latest first. */
  takeLatest(count: number): HeldSlot[];
  /** Removes the slots of one member of a pool and returns them, latest first. */
  takeOfMember(member: number): HeldSlot[];
}

/** Returns the number of slots in a reply. */
export function slotCountOf({ slotsUs, run }: Pick<Granted, "slotsUs" | "run">): number {
  return slotsUs.length + (run?.count ?? 0);
}

/** Returns all slots of a reply, latest first. */
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
  /** The lease number of the first slot. 0 if the slots have no leases. */
  readonly firstLease: number;
  readonly rank: number;
  readonly member: number;
}

/**
 * Stores runs of slots instead of single slots, because one reply contains a thousand slots at 100,000 calls per
 * second.
 */
export function createHeldSlots(): HeldSlots {
  const runs: Run[] = [];
  const sizes: number[] = [];
  let size = 0;
  let nextAtMs = Infinity;

  function addRun(run: Run): void {
    if (run.end === 0) return;
    runs.push(run);
    count(run, run.end);
    sortRuns();
  }

  function sortRuns(): void {
    // A slot that another process has returned may be earlier than the slots already stored here.
    if (runs.length > 1) runs.sort((a, b) => a.slotUs(a.index) - b.slotUs(b.index));
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
    add({ slotsUs, members, run }, firstLease, offsetMs, rank, hasLease = () => true) {
      const common = { index: 0, offsetMs, rank };
      if (members !== undefined) {
        // Each slot of a pool is a run, so that the slots of one member can be removed.
        for (const [index, us] of slotsUs.entries()) {
          const member = members[index]!;
          const lease = firstLease > 0 && hasLease(member) ? firstLease + index : 0;
          const own = { end: 1, slotUs: () => us, firstLease: lease, member };
          runs.push({ ...common, ...own });
          count(runs.at(-1)!, 1);
        }
        return sortRuns();
      }
      const listed = (index: number): number => slotsUs[index]!;
      addRun({ ...common, end: slotsUs.length, slotUs: listed, firstLease, member: 0 });
      if (run === undefined) return;
      const slotUs = (index: number): number => slotOfRun(run, index);
      addRun({ ...common, end: run.count, slotUs, firstLease: 0, member: 0 });
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
    takeOfMember(member) {
      const kept = runs.filter((run) => run.member !== member);
      const taken = runs.filter((run) => run.member === member);
      runs.splice(0, runs.length, ...kept);
      for (const run of taken) count(run, -1);
      updateNext();
      return taken.map((run) => slotOf(run, run.index)).toReversed();
    },
  };
}

function slotOf({ slotUs, offsetMs, firstLease, rank, member }: Run, index: number): HeldSlot {
  const us = slotUs(index);
  const lease = firstLease === 0 ? 0 : firstLease + index;
  return { slotUs: us, atMs: us / 1_000 + offsetMs, lease, rank, member };
}
