/** Tells instruments of OpenTelemetry's API of each thing as it happens: each time costs as much as a draw, or more. */
import type { Attributes, Counter, Histogram, Meter } from "@opentelemetry/api";
import {
  hearToo,
  type BucketObserver,
  type JobsObserver,
  type Observer,
  type Observing,
} from "../../core/events/observer.ts";
import type { Priority } from "../../core/input/options.ts";
import { named } from "../counts.ts";
import {
  attributes,
  COUNTERS,
  errorTypeOf,
  HISTOGRAMS,
  type CounterFacts,
  type HistogramFacts,
} from "./instruments.ts";

export function measure(observing: Observing, meter: Meter): void {
  const { jobs, ...observer } = createMeasuring(meter);
  hearToo(observing, observer);
  observing.jobs ??= jobs;
}

export function createMeasuring(meter: Meter): Observer & { readonly jobs: JobsObserver } {
  const counter = ({ name, ...facts }: CounterFacts): Counter => meter.createCounter(name, facts);
  const histogram = ({ name, boundsMs, ...facts }: HistogramFacts): Histogram => {
    const explicitBucketBoundaries = boundsMs.map((ms) => ms / 1_000);
    return meter.createHistogram(name, { ...facts, advice: { explicitBucketBoundaries } });
  };
  const slots = counter(COUNTERS.slots);
  const sent = counter(COUNTERS.sent);
  const consumed = counter(COUNTERS.consumed);
  const waits = histogram(HISTOGRAMS.waits);
  const asks = histogram(HISTOGRAMS.asks);
  const attempts = histogram(HISTOGRAMS.attempts);
  const operations = histogram(HISTOGRAMS.operations);
  const processing = histogram(HISTOGRAMS.processing);
  const buckets = new Map<string, BucketObserver>();

  function createBucket(name: string): BucketObserver {
    const granted = attributes.slots(name, "granted");
    const byPriority = new Map<Priority, Attributes>();
    let started = 0;
    const addStarted = (): void => {
      slots.add(started, granted);
      started = 0;
    };
    return {
      waited(waitedMs, priority) {
        const labels = named(byPriority, priority, () => attributes.wait(name, priority));
        waits.record(waitedMs / 1_000, labels);
        // The calls of one turn are added together: each addition costs as much as a draw.
        if (started === 0) queueMicrotask(addStarted);
        started += 1;
      },
      count(outcome, count) {
        slots.add(count, attributes.slots(name, outcome));
      },
    };
  }

  return {
    bucket: (name) => named(buckets, name, createBucket),
    asked: (command, ms) => asks.record(ms / 1_000, attributes.ask(command)),
    attempted: (outcome, ms) => attempts.record(ms / 1_000, attributes.attempt(outcome)),
    jobs: {
      sent(queue, jobs, { ms, error }) {
        const type = errorTypeOf(error);
        sent.add(jobs, attributes.sent(queue, type));
        operations.record(ms / 1_000, attributes.operation(queue, type));
      },
      consumed: (queue) => consumed.add(1, attributes.process(queue)),
      processed(queue, ms, error) {
        processing.record(ms / 1_000, attributes.process(queue, errorTypeOf(error)));
      },
    },
  };
}
