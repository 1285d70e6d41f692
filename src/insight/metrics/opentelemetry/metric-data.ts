/**
 * The types that a metric reader of OpenTelemetry's SDK expects from a metric producer. They are
 * copied here so that the package's types do not need `@opentelemetry/sdk-metrics`, which is not a
 * peer dependency. A test passes a producer to an SDK reader to check the copies.
 */

type Labels = Readonly<Record<string, string>>;

/**
 * Produces metrics for a metric reader of OpenTelemetry's SDK. Pass the producer in the reader's
 * `metricProducers`.
 */
export interface MetricProducer {
  /** Returns the totals since the producer was created, and the current gauges of a fleet. */
  collect(): Promise<CollectedMetrics>;
}

/** A `CollectionResult` of `@opentelemetry/sdk-metrics`. */
interface CollectedMetrics {
  readonly resourceMetrics: {
    /** Empty, because OpenTelemetry's metric reader replaces it with its own resource. */
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
  readonly metrics: (HistogramData | SumData | GaugeData)[];
}

interface MetricData {
  readonly descriptor: {
    readonly name: string;
    readonly description: string;
    readonly unit: string;
    /** OpenTelemetry's number for the value type double. */
    readonly valueType: 1;
  };
  /** OpenTelemetry's number for cumulative temporality. */
  readonly aggregationTemporality: 1;
}

export interface HistogramData extends MetricData {
  /** OpenTelemetry's number for the data point type histogram. */
  readonly dataPointType: 0;
  readonly dataPoints: DataPoint<HistogramValue>[];
}

export interface SumData extends MetricData {
  /** OpenTelemetry's number for the data point type sum. */
  readonly dataPointType: 3;
  readonly isMonotonic: true;
  readonly dataPoints: DataPoint<number>[];
}

export interface GaugeData extends MetricData {
  /** OpenTelemetry's number for the data point type gauge. */
  readonly dataPointType: 2;
  readonly dataPoints: DataPoint<number>[];
}

export interface DataPoint<Value> {
  /** Whole seconds since 1970, and the remaining nanoseconds. */
  readonly startTime: [number, number];
  readonly endTime: [number, number];
  readonly attributes: Labels;
  readonly value: Value;
}

export interface HistogramValue {
  /** The last element of `counts` counts the values above all boundaries. */
  readonly buckets: { boundaries: number[]; counts: number[] };
  readonly sum: number;
  readonly count: number;
}
