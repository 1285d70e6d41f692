/**
 * Records each event immediately with the instruments of OpenTelemetry's API. Each record costs at
 * least as much as a draw. Gauges of the fleet are read when a reader collects them.
 */
import type { Counter, Meter } from "@opentelemetry/api";
import type { CountedMetric } from "../../../core/events/metrics.ts";
import {
  addObserver,
  type Observer,
  type Observing,
  type Series,
} from "../../../core/events/observer.ts";
import { SeriesByLabels, type Labels } from "../counts.ts";
import type { FleetReadings } from "../fleet-facts.ts";
import { FLEET_INSTRUMENTS, INSTRUMENTS, type Instrument } from "./instruments.ts";

export function measure(observing: Observing, meter: Meter): void {
  addObserver(observing, createMeasuring(meter));
}

/**
 * Observes the gauges of the fleet at each collection. The SDK repeats the last value of a series
 * that is no longer observed, so a series that has ended, such as a former state, is observed as 0.
 */
export function measureFleet(meter: Meter, fleet: FleetReadings): void {
  for (const { name, description, unit, metric, attributesOf } of FLEET_INSTRUMENTS) {
    let former = new Map<string, Labels>();
    meter.createObservableGauge(name, { description, unit }).addCallback(async (result) => {
      const samples = await fleet.samples(metric);
      const current = new Map(samples.map(({ labels }) => [JSON.stringify(labels), labels]));
      for (const [series, labels] of former)
        if (!current.has(series)) result.observe(0, attributesOf(labels));
      for (const { labels, value } of samples) result.observe(value, attributesOf(labels));
      former = new Map([...former, ...current]);
    });
  }
}

export function createMeasuring(meter: Meter): Observer {
  const instruments = new Map<CountedMetric, (labels: Labels) => Series>(
    INSTRUMENTS.map((each) => [each.metric, open(meter, each)]),
  );
  const all = new SeriesByLabels((metric, labels) => instruments.get(metric)!(labels));
  return { series: (metric, ...labels) => all.get(metric, labels) };
}

function open(meter: Meter, instrument: Instrument): (labels: Labels) => Series {
  const { name, description, unit, bounds, attributesOf } = instrument;
  if (bounds === undefined) {
    const counter = meter.createCounter(name, { description, unit });
    return (labels) => countTogether(counter, attributesOf(labels));
  }
  const advice = { explicitBucketBoundaries: [...bounds] };
  const histogram = meter.createHistogram(name, { description, unit, advice });
  return (labels) => {
    const attributes = attributesOf(labels);
    return { add: (ms) => histogram.record(ms / 1_000, attributes) };
  };
}

/**
 * Adds up the counts within one turn of the event loop and adds the sum once, because each addition
 * to a counter costs as much as a draw.
 */
function countTogether(counter: Counter, attributes: Labels): Series {
  let counted = 0;
  const addCounted = (): void => {
    counter.add(counted, attributes);
    counted = 0;
  };
  return {
    add(count) {
      if (counted === 0 && count > 0) queueMicrotask(addCounted);
      counted += count;
    },
  };
}
