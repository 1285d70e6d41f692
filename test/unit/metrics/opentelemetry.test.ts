import {
  createNoopMeter,
  type Attributes,
  type Meter,
  type TracerProvider,
} from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type Histogram,
  type MetricDescriptor,
} from "@opentelemetry/sdk-metrics";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { COUNTED_METRICS, type CountedMetric } from "../../../src/core/events/metrics.ts";
import { createObserving } from "../../../src/core/events/observer.ts";
import { createTraces } from "../../../src/insight/metrics/opentelemetry/follow.ts";
import { createMeasuring, measure } from "../../../src/insight/metrics/opentelemetry/measure.ts";
import {
  addingTo,
  createMetricProducer,
} from "../../../src/insight/metrics/opentelemetry/produce.ts";
import { forAll } from "../../fuzz/support/outcomes.ts";

/** A meter that keeps with which attributes its counters count, and the bounds of its histograms. */
function listeningMeter() {
  const counted: (Attributes | undefined)[] = [];
  const bounds = new Map<string, readonly number[] | undefined>();
  // All callers are given the same one.
  const silent = createNoopMeter();
  const meter = Object.create(silent) as Meter;
  meter.createCounter = () => ({ add: (_value, attributes) => void counted.push(attributes) });
  meter.createHistogram = (name, options) => {
    bounds.set(name, options?.advice?.explicitBucketBoundaries);
    return silent.createHistogram(name, options);
  };
  return { meter, counted, bounds };
}

describe("the metrics for OpenTelemetry", () => {
  it("names a thousand buckets, and counts all others together", async () => {
    const { meter, counted } = listeningMeter();
    const measuring = createMeasuring(meter);
    const count = async (bucket: string) => {
      measuring.series("sluice_bucket_slots_total", bucket, "granted").add(1);
      await Promise.resolve();
    };
    for (let at = 0; at < 1_002; at += 1) await count(`b${at}`);
    await count("b0");
    const names = counted.map((attributes) => attributes?.["sluice.bucket"]);
    expect(names.slice(998)).toEqual(["b998", "b999", "other", "other", "b0"]);
  });

  it("distinguish a Redis that replies within a millisecond from a slow one", () => {
    const { meter, bounds } = listeningMeter();
    createMeasuring(meter);
    expect(bounds.get("sluice.store.duration")?.[0]).toBe(0.001);
    expect(bounds.get("messaging.process.duration")?.[0]).toBe(0.005);
  });

  it("create no span for a wait of less than a millisecond", () => {
    const spans: number[] = [];
    const tracer = {
      startSpan(_name: string, { startTime }: { readonly startTime: number }) {
        spans.push(startTime);
        return { end: () => {} };
      },
    };
    const provider = { getTracer: () => tracer } as unknown as TracerProvider;
    const wait = { bucket: "api", priority: "normal", limitedBy: undefined } as const;
    const producer = `00-${"1".repeat(32)}-${"2".repeat(16)}-01`;
    const trace = createTraces(provider).begin(producer)!;
    trace.ended({ ...wait, waitedMs: 0.99 });
    expect(spans).toEqual([]);
    trace.ended({ ...wait, waitedMs: 1 });
    expect(spans).toHaveLength(1);
  });

  it("are the same through the instruments of the API and a producer of metrics", async () => {
    const value = fc.oneof(fc.double({ min: 0, max: 20_000, noNaN: true }), fc.constantFrom(5, 75));
    const label = fc.constantFrom("a", "b", "");
    const event = fc.record({
      metric: fc.constantFrom(...(Object.keys(COUNTED_METRICS) as CountedMetric[])),
      labels: fc.tuple(label, label),
      value,
    });
    await forAll(100, fc.array(event, { maxLength: 30 }), async (events) => {
      const producer = createMetricProducer();
      const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
      const reader = new PeriodicExportingMetricReader({ exporter, metricProducers: [producer] });
      const meters = new MeterProvider({ readers: [reader] });
      const both = [createObserving(), createObserving()] as const;
      measure(both[0], meters.getMeter("sluice"));
      addingTo(producer)!(both[1]);
      for (const { observer } of both) {
        for (const { metric, labels, value: added } of events) {
          const { type, labels: names } = COUNTED_METRICS[metric];
          const series = observer!.series(metric, ...(labels.slice(0, names.length) as never));
          series.add(type === "counter" ? Math.floor(added) : added);
        }
      }

      const { resourceMetrics } = await reader.collect();
      await meters.shutdown();

      const told = resourceMetrics.scopeMetrics.map(({ scope, metrics }) => {
        expect(scope.name).toBe("sluice");
        return metrics.map(({ descriptor, dataPoints, ...facts }) => ({
          ...facts,
          descriptor: pick(descriptor),
          dataPoints: (dataPoints as readonly { attributes: Attributes; value: unknown }[])
            .map(({ attributes, value }) => ({ attributes, value: comparable(value) }))
            .filter(({ value }) => value !== 0),
        }));
      });
      expect(byName(told[1] ?? [])).toEqual(byName(told[0] ?? []));
    });
  });
});

/** Sums of the SDK are of seconds, and it has the least and the most beside; a rounding differs. */
function comparable(value: unknown): unknown {
  if (typeof value === "number") return value;
  const { buckets, count, sum } = value as Histogram;
  return { buckets, count, sum: Number(sum!.toFixed(6)) };
}

/** The SDK keeps more of it for itself. */
function pick({ name, description, unit, valueType }: MetricDescriptor): MetricDescriptor {
  return { name, description, unit, valueType };
}

interface Named {
  readonly descriptor: { readonly name: string };
  readonly dataPoints: readonly { readonly attributes: Attributes }[];
}

function byName<Metric extends Named>(metrics: readonly Metric[]): unknown[] {
  return metrics
    .filter(({ dataPoints }) => dataPoints.length > 0)
    .map(({ dataPoints, ...facts }) => ({
      ...facts,
      dataPoints: dataPoints.toSorted((a, b) => (text(a.attributes) < text(b.attributes) ? -1 : 1)),
    }))
    .toSorted((a, b) => (a.descriptor.name < b.descriptor.name ? -1 : 1));
}

function text(attributes: Attributes): string {
  return JSON.stringify(attributes);
}
