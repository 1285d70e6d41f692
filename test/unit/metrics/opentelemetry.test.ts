import { createNoopMeter, type Attributes, type Meter, type Tracer } from "@opentelemetry/api";
import { describe, expect, it } from "vitest";
import { createTraces } from "../../../src/metrics/opentelemetry/follow.ts";
import { createMeasuring } from "../../../src/metrics/opentelemetry/measure.ts";

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

describe("what OpenTelemetry is told", () => {
  it("names a thousand buckets, and counts all others together", () => {
    const { meter, counted } = listeningMeter();
    const measuring = createMeasuring(meter);
    for (let at = 0; at < 1_002; at += 1) measuring.bucket(`b${at}`).count("granted", 1);
    measuring.bucket("b0").count("granted", 1);
    const names = counted.map((attributes) => attributes?.["sluice.bucket"]);
    expect(names.slice(998)).toEqual(["b998", "b999", "other", "other", "b0"]);
  });

  it("tells a Redis that answers within a millisecond from a slow one", () => {
    const { meter, bounds } = listeningMeter();
    createMeasuring(meter);
    expect(bounds.get("sluice.store.duration")?.[0]).toBe(0.001);
    expect(bounds.get("messaging.process.duration")?.[0]).toBe(0.005);
  });

  it("makes no span of a wait of less than a millisecond", () => {
    const spans: number[] = [];
    const tracer = {
      startSpan(_name: string, { startTime }: { readonly startTime: number }) {
        spans.push(startTime);
        return { end: () => {} };
      },
    } as unknown as Tracer;
    const wait = { bucket: "api", priority: "normal", limitedBy: undefined } as const;
    const trace = createTraces(tracer).begin(undefined);
    trace.ended({ ...wait, waitedMs: 0.99 });
    expect(spans).toEqual([]);
    trace.ended({ ...wait, waitedMs: 1 });
    expect(spans).toHaveLength(1);
  });
});
