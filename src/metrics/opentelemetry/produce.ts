/** Makes metrics of OpenTelemetry of what is counted in plain numbers, when a reader asks: a draw knows nothing of it. */
import { SLOT_OUTCOMES, type JobsObserver, type Observing } from "../../core/events/observer.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import { named, SluicesCounts, Spread, type Counts } from "../counts.ts";
import { MESSAGING_BOUNDS_MS } from "./conventions.ts";
import {
  attributes,
  COUNTERS,
  errorTypeOf,
  HISTOGRAMS,
  SCOPE,
  type CounterFacts,
  type HistogramFacts,
} from "./instruments.ts";
import type {
  DataPoint,
  EmptyResource,
  HistogramData,
  HistogramValue,
  Labels,
  MetricProducer,
  SumData,
} from "./metric-data.ts";

/** What was counted, and with which attributes. */
type Counted<Of> = readonly [Labels, Of];

/** Has a producer count one more sluice. */
type Add = (observing: Observing) => void;

const adding = new WeakMap<MetricProducer, Add>();

/** Undefined if it is no producer of these. */
export function addingTo(producer: MetricProducer): Add | undefined {
  return adding.get(producer);
}

/**
 * Makes a producer of metrics, for the `metricProducers` of a reader of OpenTelemetry's SDK. It has the sums over all
 * sluices that are given it by {@link instrument}, since the first of them was counted; closing one takes nothing away.
 */
export function createMetricProducer(): MetricProducer {
  const sluices = new SluicesCounts();
  const jobs = new JobCounts();
  const producer: MetricProducer = {
    async collect() {
      const startTime = hrTimeOf(sluices.startedAtMs);
      const endTime = hrTimeOf(Date.now());
      const counts = sluices.sum();
      const at = <Value>([labels, value]: Counted<Value>): DataPoint<Value> => ({
        startTime,
        endTime,
        attributes: labels,
        value,
      });
      const metrics = [
        histogram(HISTOGRAMS.waits, waitsOf(counts), at),
        sum(COUNTERS.slots, slotsOf(counts), at),
        histogram(HISTOGRAMS.asks, each(counts.asks, attributes.ask), at),
        histogram(HISTOGRAMS.attempts, each(counts.attempts, attributes.attempt), at),
        ...jobs.metrics(at),
      ].filter(({ dataPoints }) => dataPoints.length > 0);
      const scopeMetrics = metrics.length === 0 ? [] : [{ scope: { name: SCOPE }, metrics }];
      return { resourceMetrics: { resource: NO_RESOURCE, scopeMetrics }, errors: [] };
    },
  };
  adding.set(producer, (observing) => {
    sluices.add(observing);
    observing.jobs ??= jobs;
  });
  return producer;
}

const NO_RESOURCE: EmptyResource = {
  attributes: {},
  merge: (other) => other ?? NO_RESOURCE,
  getRawAttributes: () => [],
};

type At = <Value>(counted: Counted<Value>) => DataPoint<Value>;

interface Sent {
  jobs: number;
  readonly took: Spread;
}

/** Of one queue; by what the errors were, "" for none. */
class QueueCounts {
  readonly sent: Map<string, Sent> = new Map();
  readonly processed: Map<string, Spread> = new Map();
  consumed = 0;
}

class JobCounts implements JobsObserver {
  readonly #queues: Map<string, QueueCounts> = new Map();

  sent(
    queue: string,
    jobs: number,
    { ms, error }: { readonly ms: number; readonly error?: unknown },
  ): void {
    const create = (): Sent => ({ jobs: 0, took: new Spread(MESSAGING_BOUNDS_MS) });
    const sent = named(this.#queue(queue).sent, errorTypeOf(error) ?? "", create);
    sent.jobs += jobs;
    sent.took.add(ms);
  }

  consumed(queue: string): void {
    this.#queue(queue).consumed += 1;
  }

  processed(queue: string, ms: number, error?: Error): void {
    const create = (): Spread => new Spread(MESSAGING_BOUNDS_MS);
    named(this.#queue(queue).processed, errorTypeOf(error) ?? "", create).add(ms);
  }

  metrics(at: At): (HistogramData | SumData)[] {
    const queues = [...this.#queues];
    const sent = queues.flatMap(([queue, counts]) =>
      [...counts.sent].map(([error, each]) => ({ queue, error: error || undefined, ...each })),
    );
    const took = sent.map(({ queue, error, took: spread }): Counted<Spread> => [
      attributes.operation(queue, error),
      spread,
    ]);
    return [
      sum(
        COUNTERS.sent,
        sent.map(({ queue, error, jobs }) => [attributes.sent(queue, error), jobs]),
        at,
      ),
      histogram(HISTOGRAMS.operations, took, at),
      sum(
        COUNTERS.consumed,
        queues.map(([queue, { consumed }]) => [attributes.process(queue), consumed]),
        at,
      ),
      histogram(
        HISTOGRAMS.processing,
        queues.flatMap(([queue, { processed }]) =>
          each(processed, (error) => attributes.process(queue, error || undefined)),
        ),
        at,
      ),
    ];
  }

  #queue(name: string): QueueCounts {
    return named(this.#queues, name, () => new QueueCounts());
  }
}

function waitsOf({ buckets }: Counts): Counted<Spread>[] {
  return [...buckets].flatMap(([bucket, { waits }]) =>
    waits.flatMap((spread, rank): Counted<Spread>[] =>
      spread === undefined ? [] : [[attributes.wait(bucket, PRIORITIES[rank]!), spread]],
    ),
  );
}

function slotsOf({ buckets }: Counts): Counted<number>[] {
  return [...buckets].flatMap(([bucket, counts]) =>
    SLOT_OUTCOMES.map((outcome): Counted<number> => [
      attributes.slots(bucket, outcome),
      counts.total(outcome),
    ]),
  );
}

function each(
  all: ReadonlyMap<string, Spread>,
  label: (name: string) => Labels,
): Counted<Spread>[] {
  return [...all].map(([name, spread]) => [label(name), spread]);
}

/** An outcome that has not been is left out, as by a counter. */
function sum(facts: CounterFacts, counted: readonly Counted<number>[], at: At): SumData {
  return {
    descriptor: { ...facts, valueType: 1 },
    aggregationTemporality: 1,
    dataPointType: 3,
    isMonotonic: true,
    dataPoints: counted.filter(([, count]) => count > 0).map((one) => at(one)),
  };
}

function histogram(
  { boundsMs, ...facts }: HistogramFacts,
  counted: readonly Counted<Spread>[],
  at: At,
): HistogramData {
  const boundaries = boundsMs.map((ms) => ms / 1_000);
  return {
    descriptor: { ...facts, valueType: 1 },
    aggregationTemporality: 1,
    dataPointType: 0,
    dataPoints: counted.map(([labels, { counts, sumMs, total }]) => {
      const buckets = { boundaries, counts: [...counts] };
      return at<HistogramValue>([labels, { buckets, sum: sumMs / 1_000, count: total }]);
    }),
  };
}

function hrTimeOf(ms: number): [number, number] {
  return [Math.floor(ms / 1_000), (ms % 1_000) * 1_000_000];
}
