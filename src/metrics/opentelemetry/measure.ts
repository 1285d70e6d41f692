/** The metrics of a process as OpenTelemetry has them: those of Prometheus, and of jobs those that messaging systems have. */
import type { Attributes, Meter } from "@opentelemetry/api";
import type { BucketObserver, JobsObserver, Observer } from "../../core/events/observer.ts";
import { DURATION_BOUNDS, MESSAGING } from "./conventions.ts";

const SYSTEM = "sluice";
/** Waits are longer than requests. */
const WAIT_BOUNDS: readonly number[] = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 3_600];
/** How many buckets have attributes of their own. */
const MOST_BUCKETS = 1_000;
const OTHER = "other";

export function createMeasuring(meter: Meter): Observer & { readonly jobs: JobsObserver } {
  const histogram = (name: string, description: string, bounds = DURATION_BOUNDS) =>
    meter.createHistogram(name, {
      description,
      unit: "s",
      advice: { explicitBucketBoundaries: [...bounds] },
    });
  const waits = histogram(
    "sluice.bucket.wait",
    "How long calls and jobs waited for their slots.",
    WAIT_BOUNDS,
  );
  const slots = meter.createCounter("sluice.bucket.slots", {
    description: "What became of slots, and calls that were refused.",
    unit: "{slot}",
  });
  const asks = histogram("sluice.store.duration", "How long requests to the store took.");
  const attempts = histogram(
    "sluice.webhook.attempt",
    "How long attempts at endpoints of webhooks took.",
  );
  const operations = histogram(MESSAGING.operationDuration, "How long it took to store jobs.");
  const processing = histogram(MESSAGING.processDuration, "How long handlers took.");
  const sent = meter.createCounter(MESSAGING.sentMessages, {
    description: "Jobs that were to be stored.",
    unit: "{message}",
  });
  const consumed = meter.createCounter(MESSAGING.consumedMessages, {
    description: "Jobs whose handlers began.",
    unit: "{message}",
  });
  const buckets = new Map<string, BucketObserver>();

  function createBucket(name: string): BucketObserver {
    const granted = { "sluice.bucket": name, "sluice.outcome": "granted" };
    return {
      waited(waitedMs, priority) {
        waits.record(waitedMs / 1_000, { "sluice.bucket": name, "sluice.priority": priority });
        slots.add(1, granted);
      },
      count(outcome, count) {
        slots.add(count, { "sluice.bucket": name, "sluice.outcome": outcome });
      },
    };
  }

  return {
    bucket(name) {
      const own = buckets.has(name) || buckets.size < MOST_BUCKETS ? name : OTHER;
      const known = buckets.get(own) ?? createBucket(own);
      buckets.set(own, known);
      return known;
    },
    asked: (command, ms) => asks.record(ms / 1_000, { "sluice.command": command }),
    attempted: (outcome, ms) => attempts.record(ms / 1_000, { "sluice.outcome": outcome }),
    jobs: {
      sent(queue, jobs, { ms, error }) {
        const named = { ...attributesOf(queue, "enqueue"), ...errorType(error) };
        sent.add(jobs, named);
        operations.record(ms / 1_000, { ...named, [MESSAGING.operationType]: MESSAGING.send });
      },
      consumed: (queue) => consumed.add(1, attributesOf(queue, "process")),
      processed(queue, ms, error) {
        processing.record(ms / 1_000, { ...attributesOf(queue, "process"), ...errorType(error) });
      },
    },
  };
}

function attributesOf(queue: string, operation: string): Attributes {
  return {
    [MESSAGING.system]: SYSTEM,
    [MESSAGING.destination]: queue,
    [MESSAGING.operationName]: operation,
  };
}

/** A code where there is one, else the name of the class: messages would be without bound. */
function errorType(error: unknown): Attributes {
  if (error === undefined) return {};
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  const type = [code, name].find((each) => typeof each === "string" && each !== "");
  return { [MESSAGING.errorType]: typeof type === "string" ? type : "_OTHER" };
}
