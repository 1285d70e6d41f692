/** The metrics that a process counts, and those of the fleet, as OpenTelemetry instruments. */
import {
  BUCKETS_MS,
  COUNTED_METRICS,
  FLEET_METRICS,
  type CountedMetric,
  type FleetFacts,
  type FleetMetric,
  type InOpenTelemetry,
  type MetricFacts,
} from "../../../core/events/metrics.ts";
import type { Labels } from "../counts.ts";

/** The name of the instrumentation scope. */
export const SCOPE = "sluice";

export interface Instrument<Metric = CountedMetric> {
  readonly metric: Metric;
  readonly name: string;
  readonly description: string;
  readonly unit: string;
  /** The bucket boundaries of a histogram, in seconds. Undefined for a counter or gauge. */
  readonly bounds: readonly number[] | undefined;
  readonly attributesOf: (labels: Labels) => Labels;
}

export const INSTRUMENTS: readonly Instrument[] = Object.entries(COUNTED_METRICS).map(
  ([metric, facts]) => {
    const boundsMs = facts.type === "histogram" ? BUCKETS_MS[facts.buckets] : undefined;
    const bounds = boundsMs?.map((ms) => ms / 1_000);
    return { ...instrumentOf(metric as CountedMetric, facts, facts.opentelemetry), bounds };
  },
);

/** The gauges of the fleet that OpenTelemetry exports. */
export const FLEET_INSTRUMENTS: readonly Instrument<FleetMetric>[] = Object.entries<FleetFacts>(
  FLEET_METRICS,
).flatMap(([metric, facts]) =>
  facts.opentelemetry === undefined
    ? []
    : [instrumentOf(metric as FleetMetric, facts, facts.opentelemetry)],
);

function instrumentOf<Metric extends string>(
  metric: Metric,
  { help }: MetricFacts,
  { name = metric, unit, attributes }: InOpenTelemetry["opentelemetry"],
): Instrument<Metric> {
  return {
    metric,
    name,
    description: help,
    unit,
    bounds: undefined,
    attributesOf(labels) {
      const own = Object.entries(labels).map(([label, value]) => [attributeOf(label), value]);
      return { ...attributes, ...Object.fromEntries(own) };
    },
  };
}

export function attributeOf(label: string): string {
  return label.includes(".") ? label : `${SCOPE}.${label}`;
}
