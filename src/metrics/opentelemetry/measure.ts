/** The metrics of a process as OpenTelemetry has them: those of Prometheus, and of jobs those that messaging systems have. */
import type { Attributes, Meter } from "@opentelemetry/api";
import type { BucketObserver, JobsObserver, Observer } from "../../core/events/observer.ts";
import type { Priority } from "../../core/input/options.ts";
import { DURATION_BOUNDS_MS, named, WAIT_BOUNDS_MS } from "../counts.ts";
import { PROCESS_METRICS, type ProcessMetric } from "../names.ts";
import { DURATION_BOUNDS, MESSAGING } from "./conventions.ts";

const SYSTEM = "sluice";

export function createMeasuring(meter: Meter): Observer & { readonly jobs: JobsObserver } {
  const histogram = (name: string, description: string, bounds = DURATION_BOUNDS) =>
    meter.createHistogram(name, {
      description,
      unit: "s",
      advice: { explicitBucketBoundaries: [...bounds] },
    });
  /** As Prometheus has it: values fall into the same parts. */
  const asInPrometheus = (name: string, metric: ProcessMetric, boundsMs = DURATION_BOUNDS_MS) => {
    const bounds = boundsMs.map((ms) => ms / 1_000);
    return histogram(name, PROCESS_METRICS[metric].help, bounds);
  };
  const waits = asInPrometheus("sluice.bucket.wait", "sluice_bucket_wait_seconds", WAIT_BOUNDS_MS);
  const slots = meter.createCounter("sluice.bucket.slots", {
    description: PROCESS_METRICS.sluice_bucket_slots_total.help,
    unit: "{slot}",
  });
  const asks = asInPrometheus("sluice.store.duration", "sluice_store_duration_seconds");
  const attempts = asInPrometheus("sluice.webhook.attempt", "sluice_webhook_attempt_seconds");
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
    const bucket = { "sluice.bucket": name };
    const granted = { ...bucket, "sluice.outcome": "granted" };
    const byPriority = new Map<Priority, Attributes>();
    let started = 0;
    const addStarted = (): void => {
      slots.add(started, granted);
      started = 0;
    };
    return {
      waited(waitedMs, priority) {
        const attributes = named(byPriority, priority, () => ({
          ...bucket,
          "sluice.priority": priority,
        }));
        waits.record(waitedMs / 1_000, attributes);
        // The calls of one turn are added together: each addition costs as much as a draw.
        if (started === 0) queueMicrotask(addStarted);
        started += 1;
      },
      count(outcome, count) {
        slots.add(count, { ...bucket, "sluice.outcome": outcome });
      },
    };
  }

  return {
    bucket: (name) => named(buckets, name, createBucket),
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
