/** Counts what happens in this process. Plain numbers, since every draw comes by here: a register reads them when it is scraped. */
import {
  hearToo,
  SLOT_OUTCOMES,
  type BucketObserver,
  type Observer,
  type Observing,
  type SlotOutcome,
} from "../core/events/observer.ts";
import { RANKS, type Priority } from "../core/input/options.ts";
import { MOST_NAMES, OTHER } from "./names.ts";

const { normal: NORMAL } = RANKS;
/** Up to how many ms the calls of each part waited; the last part has no bound. */
export const WAIT_BOUNDS_MS: readonly number[] = [
  10, 50, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 3_600_000,
];
/** The bounds that OpenTelemetry gives to durations of messaging; from one below, since Redis answers sooner. */
export const DURATION_BOUNDS_MS: readonly number[] = [
  1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000,
];

/** Values by their size, and their sum. */
export class Spread {
  /** The last one has those above all bounds. */
  readonly counts: Float64Array;
  sumMs = 0;
  readonly boundsMs: readonly number[];

  constructor(boundsMs: readonly number[]) {
    this.boundsMs = boundsMs;
    this.counts = new Float64Array(boundsMs.length + 1);
  }

  add(ms: number): void {
    const { boundsMs, counts } = this;
    let part = 0;
    while (part < boundsMs.length && ms > boundsMs[part]!) part += 1;
    counts[part]! += 1;
    this.sumMs += ms;
  }

  get total(): number {
    return this.counts.reduce((sum, count) => sum + count, 0);
  }

  addAll({ counts, sumMs }: Spread): void {
    counts.forEach((count, part) => (this.counts[part]! += count));
    this.sumMs += sumMs;
  }
}

export class BucketCounts implements BucketObserver {
  /** By rank, from the first call on. */
  readonly waits: (Spread | undefined)[] = [undefined, undefined, undefined, undefined];
  /** Those granted to calls that waited are in `waits`. */
  readonly slots: Record<SlotOutcome, number> = { granted: 0, late: 0, returned: 0, refused: 0 };

  waited(waitedMs: number, priority: Priority): void {
    const rank = priority === "normal" ? NORMAL : RANKS[priority];
    const spread = this.waits[rank] ?? (this.waits[rank] = new Spread(WAIT_BOUNDS_MS));
    spread.add(waitedMs);
  }

  count = (outcome: SlotOutcome, slots: number): void => {
    this.slots[outcome] += slots;
  };

  /** How many slots came to this. */
  total(outcome: SlotOutcome): number {
    const own = this.slots[outcome];
    return outcome === "granted"
      ? this.waits.reduce((sum, each) => sum + (each?.total ?? 0), own)
      : own;
  }

  addAll({ waits, slots }: BucketCounts): void {
    waits.forEach((spread, rank) => {
      if (spread !== undefined) (this.waits[rank] ??= new Spread(WAIT_BOUNDS_MS)).addAll(spread);
    });
    for (const outcome of SLOT_OUTCOMES) this.slots[outcome] += slots[outcome];
  }
}

/** All counts of a process, or of one of its sluices. Of more than a thousand names, the others are counted together. */
export class Counts implements Observer {
  readonly startedAtMs: number = Date.now();
  readonly buckets: Map<string, BucketCounts> = new Map();
  readonly asks: Map<string, Spread> = new Map();
  readonly attempts: Map<string, Spread> = new Map();

  get isEmpty(): boolean {
    return this.buckets.size + this.asks.size + this.attempts.size === 0;
  }

  /** Who counts has the counts of its bucket, and keeps them. */
  resetBuckets(): void {
    for (const { waits, slots } of this.buckets.values()) {
      waits.fill(undefined);
      for (const outcome of SLOT_OUTCOMES) slots[outcome] = 0;
    }
  }

  bucket(name: string): BucketCounts {
    return named(this.buckets, name, () => new BucketCounts());
  }

  asked(command: string, ms: number): void {
    spreadOf(this.asks, command).add(ms);
  }

  attempted(outcome: string, ms: number): void {
    spreadOf(this.attempts, outcome).add(ms);
  }

  addAll({ buckets, asks, attempts }: Counts): void {
    for (const [name, counts] of buckets) this.bucket(name).addAll(counts);
    for (const [name, spread] of asks) spreadOf(this.asks, name).addAll(spread);
    for (const [name, spread] of attempts) spreadOf(this.attempts, name).addAll(spread);
  }
}

const ofSluices = new WeakMap<Observing, Counts>();

/** The counts of some sluices together. Each sluice is counted from the first time on, once for all who ask. */
export class SluicesCounts {
  /** When the first of them began to be counted. */
  startedAtMs: number = Date.now();
  readonly #open: Set<Counts> = new Set();
  /** What sluices counted that are closed: a counter never goes back. */
  readonly #ended: Counts = new Counts();

  add(observing: Observing): void {
    const known = ofSluices.get(observing);
    const counts = known ?? new Counts();
    if (known === undefined) {
      ofSluices.set(observing, counts);
      hearToo(observing, counts);
    }
    if (this.#open.has(counts)) return;
    this.#open.add(counts);
    this.startedAtMs = Math.min(this.startedAtMs, counts.startedAtMs);
    observing.whenClosed.push(() => {
      this.#open.delete(counts);
      this.#ended.addAll(counts);
    });
  }

  /** All of them; those of the only sluice as they are. */
  sum(): Counts {
    const [first] = this.#open;
    if (this.#open.size === 1 && this.#ended.isEmpty) return first!;
    const sum = new Counts();
    for (const counts of this.each()) sum.addAll(counts);
    return sum;
  }

  each(): readonly Counts[] {
    return [this.#ended, ...this.#open];
  }
}

function spreadOf(all: Map<string, Spread>, name: string): Spread {
  return named(all, name, () => new Spread(DURATION_BOUNDS_MS));
}

/** What is kept of a name; of one that comes after a thousand, what is kept of all others. */
export function named<Kept>(
  all: Map<string, Kept>,
  name: string,
  create: (name: string) => Kept,
): Kept {
  const known = all.get(name);
  if (known !== undefined) return known;
  if (all.size >= MOST_NAMES && name !== OTHER) return named(all, OTHER, create);
  const made = create(name);
  all.set(name, made);
  return made;
}
