/** Each metric: its name, what it says, and its labels. `docs/metrics.md` has the same table; a test compares them. */

export interface MetricFacts {
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly labels: readonly string[];
}

export type ProcessMetric =
  | "sluice_bucket_wait_seconds"
  | "sluice_bucket_slots_total"
  | "sluice_store_duration_seconds"
  | "sluice_webhook_attempt_seconds";

export type FleetMetric =
  | "sluice_bucket_limit_per_second"
  | "sluice_bucket_used_ratio"
  | "sluice_bucket_binding"
  | "sluice_bucket_waiting"
  | "sluice_bucket_cooldown_seconds"
  | "sluice_bucket_refusals_total"
  | "sluice_bucket_override_seconds"
  | "sluice_bucket_shadow_calls_total"
  | "sluice_config_info"
  | "sluice_queue_jobs"
  | "sluice_queue_oldest_due_seconds"
  | "sluice_queue_unexplained_delay_seconds"
  | "sluice_dead_letters_oldest_seconds"
  | "sluice_queue_drain_seconds"
  | "sluice_queue_workers_wanted";

/** What each process exports of itself: a sum over all processes is of the fleet. */
export const PROCESS_METRICS: Readonly<Record<ProcessMetric, MetricFacts>> = {
  sluice_bucket_wait_seconds: {
    type: "histogram",
    help: "How long calls and jobs waited for their slots.",
    labels: ["bucket", "priority"],
  },
  sluice_bucket_slots_total: {
    type: "counter",
    help: "What became of slots: granted to calls, late and drawn again, returned to other processes; and calls refused.",
    labels: ["bucket", "outcome"],
  },
  sluice_store_duration_seconds: {
    type: "histogram",
    help: "How long requests to the store of buckets took, until it answered or failed.",
    labels: ["command"],
  },
  sluice_webhook_attempt_seconds: {
    type: "histogram",
    help: "How long attempts at endpoints of webhooks took, by what they came to.",
    labels: ["outcome"],
  },
};

/** What is of all processes together: one exporter has them, or a sum would count them several times. */
export const FLEET_METRICS: Readonly<Record<FleetMetric, MetricFacts>> = {
  sluice_bucket_limit_per_second: {
    type: "gauge",
    help: "What the rates that all calls share allow together, and where they come from.",
    labels: ["bucket", "limit", "source"],
  },
  sluice_bucket_used_ratio: {
    type: "gauge",
    help: "The part of that which was used in the last ten seconds.",
    labels: ["bucket"],
  },
  sluice_bucket_binding: {
    type: "gauge",
    help: "1 for what holds most of the callers back that wait.",
    labels: ["bucket", "limit"],
  },
  sluice_bucket_waiting: {
    type: "gauge",
    help: "Callers that wait.",
    labels: ["bucket", "priority"],
  },
  sluice_bucket_cooldown_seconds: {
    type: "gauge",
    help: "For how long nothing starts yet, because the downstream refused.",
    labels: ["bucket"],
  },
  sluice_bucket_refusals_total: {
    type: "counter",
    help: "Answers of the downstream that cooled the bucket down or cut its rate.",
    labels: ["bucket"],
  },
  sluice_bucket_override_seconds: {
    type: "gauge",
    help: "For how long the override has been in force; absent without one.",
    labels: ["bucket"],
  },
  sluice_bucket_shadow_calls_total: {
    type: "counter",
    help: "What limits that hold nothing back would have done to calls: passed, waited or refused.",
    labels: ["bucket", "limit", "outcome"],
  },
  sluice_config_info: {
    type: "gauge",
    help: "1 for the generation of a bucket's policy, and where that comes from.",
    labels: ["bucket", "generation", "source"],
  },
  sluice_queue_jobs: {
    type: "gauge",
    help: "Jobs by their state.",
    labels: ["queue", "state"],
  },
  sluice_queue_oldest_due_seconds: {
    type: "gauge",
    help: "How long the oldest job that is due has waited.",
    labels: ["queue"],
  },
  sluice_queue_unexplained_delay_seconds: {
    type: "gauge",
    help: "How much of that no limit, cooldown, pause or turn explains.",
    labels: ["queue"],
  },
  sluice_dead_letters_oldest_seconds: {
    type: "gauge",
    help: "How long ago the oldest dead letter failed for the last time.",
    labels: ["queue"],
  },
  sluice_queue_drain_seconds: {
    type: "gauge",
    help: "When the backlog is gone; absent while nothing is promised.",
    labels: ["queue"],
  },
  sluice_queue_workers_wanted: {
    type: "gauge",
    help: "How many workers are enough for the backlog at the rate of the bucket.",
    labels: ["queue"],
  },
};

/** How many buckets have labels of their own, and how many queues: of the fleet those in which most wait. */
export const MOST_NAMES = 1_000;
/** The label of all others. */
export const OTHER = "other";
