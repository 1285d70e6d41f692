/**
 * The types that readers of OpenTelemetry's SDK expect from a metric producer. They are written out
 * here so that the package's types do not need `@opentelemetry/sdk-metrics`, which is not a peer
 * dependency. A test passes a producer to such a reader.
 */

type Labels = Readonly<Record<string, string>>;

/**
 * A producer of metrics for a reader of OpenTelemetry's SDK. Pass it as one of `metricProducers`.
 */
export interface MetricProducer {
  /** Returns the totals since the producer was created. */
  collect(): Promise<CollectedMetrics>;
}

/** A `CollectionResult` of `@opentelemetry/sdk-metrics`. */
interface CollectedMetrics {
  readonly resourceMetrics: {
    /** Empty. A reader replaces it with its own. */
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
    /** The value type double. */
    readonly valueType: 1;
  };
  /** The cumulative temporality. */
  readonly aggregationTemporality: 1;
}

export interface HistogramData extends MetricData {
  /** The data point type histogram. */
  readonly dataPointType: 0;
  readonly dataPoints: DataPoint<HistogramValue>[];
}

export interface SumData extends MetricData {
  /** The data point type sum. */
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
  /** The last of `counts` has the values above all boundaries. */
  readonly buckets: { boundaries: number[]; counts: number[] };
  readonly sum: number;
  readonly count: number;
}
