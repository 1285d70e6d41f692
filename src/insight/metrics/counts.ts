/**
 * Counts events of this process in plain numbers, because each draw updates them. A register reads
 * the numbers when it is scraped.
 */
import {
  BUCKETS_MS,
  COUNTED_METRICS,
  type CountedMetric,
  type LabelValues,
} from "../../core/events/metrics.ts";
import {
  addObserver,
  type Observer,
  type Observing,
  type Series,
} from "../../core/events/observer.ts";

/**
 * The maximum number of values of a label that have their own series. Fleet metrics keep the
 * buckets with the most waiting callers.
 */
export const MOST_NAMES = 1_000;
/** The label value that replaces all values after the first thousand. */
export const OTHER = "other";

export type Labels = Readonly<Record<string, string>>;

/** One value of a counter or gauge. */
export interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

class Count implements Series, Sample {
  readonly labels: Labels;
  value = 0;

  constructor(labels: Labels) {
    this.labels = labels;
  }

  add(count: number): void {
    this.value += count;
  }

  merge({ value }: Count): void {
    this.value += value;
  }

  reset(): void {
    this.value = 0;
  }
}

/** A histogram of durations, with the sum of all durations. */
export class Spread implements Series {
  readonly labels: Labels;
  readonly boundsMs: readonly number[];
  /**
   * The number of durations per histogram bucket. The last number counts durations above all
   * bounds.
   */
  readonly counts: Float64Array;
  sumMs = 0;

  constructor(labels: Labels, boundsMs: readonly number[]) {
    this.labels = labels;
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

  merge({ counts, sumMs }: Spread): void {
    counts.forEach((count, part) => (this.counts[part]! += count));
    this.sumMs += sumMs;
  }

  reset(): void {
    this.counts.fill(0);
    this.sumMs = 0;
  }
}

export type Counted = Count | Spread;

/**
 * The series of all metrics, by labels. After a thousand values of a label, all further values
 * share one series.
 */
export class SeriesByLabels<Made> {
  readonly #make: (metric: CountedMetric, labels: Labels) => Made;
  readonly #made: Map<CountedMetric, Map<string, Made>> = new Map();
  readonly #names: Map<string, Set<string>> = new Map();

  constructor(make: (metric: CountedMetric, labels: Labels) => Made) {
    this.#make = make;
  }

  of(metric: CountedMetric): IterableIterator<Made> {
    return this.#seriesOf(metric).values();
  }

  get(metric: CountedMetric, values: readonly string[]): Made {
    const all = this.#seriesOf(metric);
    const known = all.get(keyOf(values));
    if (known !== undefined) return known;
    const { labels } = COUNTED_METRICS[metric];
    const bounded = values.map((value, at) => this.bound(labels[at]!, value));
    const key = keyOf(bounded);
    const shared = all.get(key);
    if (shared !== undefined) return shared;
    const made = this.#make(
      metric,
      Object.fromEntries(
        bounded.map((value, at) => [labels[at], value]).filter(([, value]) => value !== ""),
      ),
    );
    all.set(key, made);
    return made;
  }

  /**
   * Returns the value itself if it is one of the label's first thousand values. Otherwise returns
   * {@link OTHER}.
   */
  bound(label: string, value: string): string {
    let names = this.#names.get(label);
    if (names === undefined) this.#names.set(label, (names = new Set()));
    if (names.size >= MOST_NAMES && !names.has(value)) return OTHER;
    names.add(value);
    return value;
  }

  /** Adopts the label values of another instance until a thousand values are reached. */
  boundAs(other: SeriesByLabels<Made>): void {
    for (const [label, names] of other.#names) for (const name of names) this.bound(label, name);
  }

  #seriesOf(metric: CountedMetric): Map<string, Made> {
    let all = this.#made.get(metric);
    if (all === undefined) this.#made.set(metric, (all = new Map()));
    return all;
  }
}

function keyOf(values: readonly string[]): string {
  return values.length === 1 ? values[0]! : values.join("\0");
}

/** The counts of one sluice, or the sums over several sluices. */
class Counts implements Observer {
  readonly startedAtMs: number = Date.now();
  readonly #all: SeriesByLabels<Counted> = new SeriesByLabels(createCounted);

  series<Of extends CountedMetric>(metric: Of, ...labels: LabelValues<Of>): Counted {
    return this.#all.get(metric, labels);
  }

  of(metric: CountedMetric): Counted[] {
    return [...this.#all.of(metric)];
  }

  addAll(metric: CountedMetric, from: Counts): void {
    this.#all.boundAs(from.#all);
    const { labels } = COUNTED_METRICS[metric];
    for (const each of from.#all.of(metric)) {
      const values = labels.map((label) => each.labels[label] ?? "");
      this.#all.get(metric, values).merge(each as never);
    }
  }
}

function createCounted(metric: CountedMetric, labels: Labels): Counted {
  const facts = COUNTED_METRICS[metric];
  return facts.type === "counter"
    ? new Count(labels)
    : new Spread(labels, BUCKETS_MS[facts.buckets]);
}

const ofSluices = new WeakMap<Observing, Counts>();

/** The counts of several sluices. A sluice is counted from the time when it is first added. */
export class SluicesCounts {
  /** When counting began for the first sluice, in ms since 1970. */
  startedAtMs: number = Date.now();
  readonly #open: Set<Counts> = new Set();
  /** The counts of closed sluices. They are kept, because a counter must never decrease. */
  #ended: Counts | undefined;

  add(observing: Observing): void {
    const known = ofSluices.get(observing);
    const counts = known ?? new Counts();
    if (known === undefined) {
      ofSluices.set(observing, counts);
      addObserver(observing, counts);
    }
    if (this.#open.has(counts)) return;
    this.#open.add(counts);
    this.startedAtMs = Math.min(this.startedAtMs, counts.startedAtMs);
    observing.whenClosed.push(() => {
      this.#open.delete(counts);
      this.#ended ??= new Counts();
      for (const metric of Object.keys(COUNTED_METRICS)) {
        this.#ended.addAll(metric as CountedMetric, counts);
      }
    });
  }

  /**
   * Returns the series of a metric, summed over all sluices. With only one sluice, it makes no
   * copies.
   */
  read(metric: CountedMetric): Counted[] {
    const [first, ...others] = this.#each();
    let found = first;
    if (others.length > 0) {
      found = new Counts();
      for (const counts of this.#each()) found.addAll(metric, counts);
    }
    const all = found?.of(metric) ?? [];
    return all.filter((each) => !(each instanceof Spread) || each.total > 0);
  }

  /** Resets a metric to 0. */
  reset(metric: CountedMetric): void {
    for (const counts of this.#each()) for (const each of counts.of(metric)) each.reset();
  }

  #each(): Counts[] {
    return [...(this.#ended === undefined ? [] : [this.#ended]), ...this.#open];
  }
}
