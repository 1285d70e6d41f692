/** The metrics that a process counts, as OpenTelemetry instruments. */
import {
  BUCKETS_MS,
  COUNTED_METRICS,
  type CountedFacts,
  type CountedMetric,
} from "../../../core/events/metrics.ts";
import type { Labels } from "../counts.ts";

/** The name of the instrumentation scope. */
export const SCOPE = "sluice";

export interface Instrument {
  readonly metric: CountedMetric;
  readonly name: string;
  readonly description: string;
  readonly unit: string;
  /** The bucket boundaries of a histogram, in seconds. Undefined for a counter. */
  readonly bounds: readonly number[] | undefined;
  readonly attributesOf: (labels: Labels) => Labels;
}

export const INSTRUMENTS: readonly Instrument[] = Object.entries(COUNTED_METRICS).map(
  ([metric, facts]) => instrumentOf(metric as CountedMetric, facts),
);

function instrumentOf(metric: CountedMetric, facts: CountedFacts): Instrument {
  const { name = metric, unit, attributes } = facts.opentelemetry;
  return {
    metric,
    name,
    description: facts.help,
    unit,
    bounds:
      facts.type === "histogram" ? BUCKETS_MS[facts.buckets].map((ms) => ms / 1_000) : undefined,
    attributesOf(labels) {
      const own = Object.entries(labels).map(([label, value]) => [attributeOf(label), value]);
      return { ...attributes, ...Object.fromEntries(own) };
    },
  };
}

export function attributeOf(label: string): string {
  return label.includes(".") ? label : `${SCOPE}.${label}`;
}
