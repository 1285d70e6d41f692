/** The metrics of a process as OpenTelemetry has them: those of Prometheus, and of jobs those that messaging systems have. */
import type { SlotOutcome } from "../../core/events/observer.ts";
import type { Priority } from "../../core/input/options.ts";
import { DURATION_BOUNDS_MS, WAIT_BOUNDS_MS } from "../counts.ts";
import { PROCESS_METRICS } from "../names.ts";
import { MESSAGING, MESSAGING_BOUNDS_MS } from "./conventions.ts";
import type { Labels } from "./metric-data.ts";

/** The name under which OpenTelemetry shows who measures. */
export const SCOPE = "sluice";

export interface CounterFacts {
  readonly name: string;
  readonly description: string;
  readonly unit: string;
}

export interface HistogramFacts extends CounterFacts {
  readonly boundsMs: readonly number[];
}

export const COUNTERS: Readonly<Record<"slots" | "sent" | "consumed", CounterFacts>> = {
  slots: {
    name: "sluice.bucket.slots",
    description: PROCESS_METRICS.sluice_bucket_slots_total.help,
    unit: "{slot}",
  },
  sent: {
    name: MESSAGING.sentMessages,
    description: "Jobs that were to be stored.",
    unit: "{message}",
  },
  consumed: {
    name: MESSAGING.consumedMessages,
    description: "Jobs whose handlers began.",
    unit: "{message}",
  },
};

type Timed = "waits" | "asks" | "attempts" | "operations" | "processing";

/** In seconds. Those that Prometheus has too have the same bounds there. */
export const HISTOGRAMS: Readonly<Record<Timed, HistogramFacts>> = {
  waits: {
    name: "sluice.bucket.wait",
    description: PROCESS_METRICS.sluice_bucket_wait_seconds.help,
    unit: "s",
    boundsMs: WAIT_BOUNDS_MS,
  },
  asks: {
    name: "sluice.store.duration",
    description: PROCESS_METRICS.sluice_store_duration_seconds.help,
    unit: "s",
    boundsMs: DURATION_BOUNDS_MS,
  },
  attempts: {
    name: "sluice.webhook.attempt",
    description: PROCESS_METRICS.sluice_webhook_attempt_seconds.help,
    unit: "s",
    boundsMs: DURATION_BOUNDS_MS,
  },
  operations: {
    name: MESSAGING.operationDuration,
    description: "How long it took to store jobs.",
    unit: "s",
    boundsMs: MESSAGING_BOUNDS_MS,
  },
  processing: {
    name: MESSAGING.processDuration,
    description: "How long handlers took.",
    unit: "s",
    boundsMs: MESSAGING_BOUNDS_MS,
  },
};

export const attributes = {
  wait: (bucket: string, priority: Priority): Labels => ({
    "sluice.bucket": bucket,
    "sluice.priority": priority,
  }),
  slots: (bucket: string, outcome: SlotOutcome): Labels => ({
    "sluice.bucket": bucket,
    "sluice.outcome": outcome,
  }),
  ask: (command: string): Labels => ({ "sluice.command": command }),
  attempt: (outcome: string): Labels => ({ "sluice.outcome": outcome }),
  sent: (queue: string, error?: string): Labels => ofQueue(queue, "enqueue", error),
  operation: (queue: string, error?: string): Labels => ({
    ...ofQueue(queue, "enqueue", error),
    [MESSAGING.operationType]: MESSAGING.send,
  }),
  process: (queue: string, error?: string): Labels => ofQueue(queue, "process", error),
} as const;

function ofQueue(queue: string, operation: string, error?: string): Labels {
  return {
    [MESSAGING.system]: SCOPE,
    [MESSAGING.destination]: queue,
    [MESSAGING.operationName]: operation,
    ...(error !== undefined && { [MESSAGING.errorType]: error }),
  };
}

/** A code where there is one, else the name of the class: messages would be without bound. */
export function errorTypeOf(error: unknown): string | undefined {
  if (error === undefined) return undefined;
  const { code, name } = error as { readonly code?: unknown; readonly name?: unknown };
  const type = [code, name].find((each) => typeof each === "string" && each !== "");
  return typeof type === "string" ? type : "_OTHER";
}
