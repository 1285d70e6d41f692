/**
 * What readers of OpenTelemetry's SDK take from a producer of metrics, written out here: the types of this package need
 * none of `@opentelemetry/sdk-metrics`, which is no peer. A test gives a producer to such a reader.
 */

type Labels = Readonly<Record<string, string>>;

/** Hands metrics that were counted elsewhere to a reader of OpenTelemetry's SDK: one of its `metricProducers`. */
export interface MetricProducer {
  /** What was counted since the producer was made, as it is now. */
  collect(): Promise<CollectedMetrics>;
}

/** A `CollectionResult` of `@opentelemetry/sdk-metrics`. */
interface CollectedMetrics {
  readonly resourceMetrics: {
    /** Empty: a reader puts its own in its place. */
    readonly resource: EmptyResource;
    readonly scopeMetrics: ScopeMetrics[];
  };
  readonly errors: unknown[];
}

export interface EmptyResource {
  readonly attributes: Labels;
  merge<Other>(other: Other | null): Other | EmptyResource;
  getRawAttributes(): [];
}

interface ScopeMetrics {
  readonly scope: { readonly name: string };
  readonly metrics: (HistogramData | SumData)[];
}

interface MetricData {
  readonly descriptor: {
    readonly name: string;
    readonly description: string;
    readonly unit: string;
    /** A double. */
    readonly valueType: 1;
  };
  /** Cumulative. */
  readonly aggregationTemporality: 1;
}

export interface HistogramData extends MetricData {
  /** A histogram. */
  readonly dataPointType: 0;
  readonly dataPoints: DataPoint<HistogramValue>[];
}

export interface SumData extends MetricData {
  /** A sum. */
  readonly dataPointType: 3;
  readonly isMonotonic: true;
  readonly dataPoints: DataPoint<number>[];
}

export interface DataPoint<Value> {
  /** Seconds since 1970, and nanoseconds. */
  readonly startTime: [number, number];
  readonly endTime: [number, number];
  readonly attributes: Labels;
  readonly value: Value;
}

export interface HistogramValue {
  /** The last of `counts` has what is above all boundaries. */
  readonly buckets: { boundaries: number[]; counts: number[] };
  readonly sum: number;
  readonly count: number;
}
