import { PRIORITIES } from "../../core/input/options.ts";
import { slotOfRun, type Granted, type Run } from "../../core/store.ts";

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

/** Slots of one reply: evenly spaced ones, or a list of times. */
interface HeldRun {
  index: number;
  end: number;
  readonly slots: Run | readonly number[];
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
  return new RunsOfSlots();
}

/** A class, because V8 gives each object literal with a getter a hidden class of its own. */
class RunsOfSlots implements HeldSlots {
  size = 0;
  nextAtMs: number = Infinity;
  #runs: HeldRun[] = [];
  readonly #sizes = PRIORITIES.map(() => 0);

  get lastAtMs(): number {
    const run = this.#runs.at(-1);
    return run === undefined ? -Infinity : slotUsOf(run, run.end - 1) / 1_000 + run.offsetMs;
  }

  sizeOf(rank: number): number {
    return this.#sizes[rank]!;
  }

  add(
    { slotsUs, members, run }: Granted,
    firstLease: number,
    offsetMs: number,
    rank: number,
    hasLease: (member: number) => boolean = () => true,
  ): void {
    if (members === undefined) {
      const end = slotsUs.length;
      this.#add({ index: 0, end, slots: slotsUs, offsetMs, firstLease, rank, member: 0 });
    } else {
      // Each slot of a pool is a run, so that the slots of one member can be removed.
      for (const [index, us] of slotsUs.entries()) {
        const member = members[index]!;
        const lease = firstLease > 0 && hasLease(member) ? firstLease + index : 0;
        const slots = [us];
        this.#add({ index: 0, end: 1, slots, offsetMs, firstLease: lease, rank, member });
      }
    }
    if (run !== undefined && members === undefined)
      this.#add({ index: 0, end: run.count, slots: run, offsetMs, firstLease: 0, rank, member: 0 });
    // A slot that another process has returned may be earlier than the slots already stored here.
    if (this.#runs.length > 1)
      this.#runs.sort((a, b) => slotUsOf(a, a.index) - slotUsOf(b, b.index));
    this.#updateNext();
  }

  take(): HeldSlot {
    const run = this.#runs[0]!;
    const slot = slotOf(run, run.index);
    run.index += 1;
    this.#count(run, -1);
    if (run.index === run.end) this.#runs.shift();
    this.#updateNext();
    return slot;
  }

  takeLatest(most: number): HeldSlot[] {
    const latest: HeldSlot[] = [];
    while (latest.length < most && this.#runs.length > 0) {
      const run = this.#runs.at(-1)!;
      run.end -= 1;
      latest.push(slotOf(run, run.end));
      this.#count(run, -1);
      if (run.index === run.end) this.#runs.pop();
    }
    this.#updateNext();
    return latest;
  }

  takeOfMember(member: number): HeldSlot[] {
    const taken = this.#runs.filter((run) => run.member === member);
    this.#runs = this.#runs.filter((run) => run.member !== member);
    for (const run of taken) this.#count(run, -1);
    this.#updateNext();
    return taken.map((run) => slotOf(run, run.index)).toReversed();
  }

  #add(run: HeldRun): void {
    if (run.end === 0) return;
    this.#runs.push(run);
    this.#count(run, run.end);
  }

  #count({ rank }: HeldRun, change: number): void {
    this.size += change;
    this.#sizes[rank]! += change;
  }

  #updateNext(): void {
    const run = this.#runs[0];
    this.nextAtMs = run === undefined ? Infinity : slotUsOf(run, run.index) / 1_000 + run.offsetMs;
  }
}

function slotUsOf({ slots }: HeldRun, index: number): number {
  return "count" in slots ? slotOfRun(slots, index) : slots[index]!;
}

function slotOf(run: HeldRun, index: number): HeldSlot {
  const { offsetMs, firstLease, rank, member } = run;
  const us = slotUsOf(run, index);
  const lease = firstLease === 0 ? 0 : firstLease + index;
  return { slotUs: us, atMs: us / 1_000 + offsetMs, lease, rank, member };
}
