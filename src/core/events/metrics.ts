/**
 * The declarations of all metrics. Prometheus and OpenTelemetry export these metrics, and `scripts/metrics-docs.ts`
 * writes `docs/reference/metrics.md` from them.
 */

export interface MetricFacts {
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly labels: readonly string[];
}

interface CounterFacts extends MetricFacts {
  readonly type: "counter";
}

/** The declaration of a duration. The code counts durations in ms, and exports them in seconds. */
interface HistogramFacts extends MetricFacts {
  readonly type: "histogram";
  readonly buckets: keyof typeof BUCKETS_MS;
}

export interface InOpenTelemetry {
  readonly opentelemetry: {
    /** The name of the metric in OpenTelemetry. Defaults to the metric's own name. */
    readonly name?: string;
    readonly unit: string;
    /** Attributes that every series of the metric has. */
    readonly attributes?: Readonly<Record<string, string>>;
  };
}

/** A metric of the fleet. Those without a declaration for OpenTelemetry exist for Prometheus only. */
export type FleetFacts = MetricFacts & Partial<InOpenTelemetry>;

/** A metric that the process itself counts. In OpenTelemetry, a label without a dot gets the prefix `sluice.`. */
export type CountedFacts = (CounterFacts | HistogramFacts) & InOpenTelemetry;

/** The upper bounds of histogram buckets, in ms. */
export const BUCKETS_MS = {
  waits: [10, 50, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 3_600_000],
  /**
   * The bounds from OpenTelemetry's conventions, plus smaller bounds from 1 ms, because Redis replies in under 5 ms.
   */
  requests: [1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000],
  /** The bounds from OpenTelemetry's messaging conventions. */
  messaging: [5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000],
} as const;

/** The metrics that each process counts and exports separately. */
export const PROCESS_METRICS = {
  sluice_bucket_wait_seconds: {
    type: "histogram",
    help: "How long calls and jobs waited for their slots.",
    labels: ["bucket", "priority"],
    buckets: "waits",
    opentelemetry: { name: "sluice.bucket.wait", unit: "s" },
  },
  sluice_bucket_slots_total: {
    type: "counter",
    help: "What became of slots: granted to calls, late and drawn again, returned to other processes; and calls refused.",
    labels: ["bucket", "outcome"],
    opentelemetry: { name: "sluice.bucket.slots", unit: "{slot}" },
  },
  sluice_budget_warnings_total: {
    type: "counter",
    help: "Parts of budgets that were reached for the first time in a period, by the part.",
    labels: ["bucket", "limit", "part"],
    opentelemetry: { name: "sluice.budget.warnings", unit: "{warning}" },
  },
  sluice_pool_calls_total: {
    type: "counter",
    help: "Calls that started at a member of a pool.",
    labels: ["bucket", "member"],
    opentelemetry: { name: "sluice.pool.calls", unit: "{call}" },
  },
  sluice_pool_stops_total: {
    type: "counter",
    help: "How often this process stopped or slowed calls to a member of a pool, by the cause: refusal, unreachable or account.",
    labels: ["bucket", "member", "cause"],
    opentelemetry: { name: "sluice.pool.stops", unit: "{stop}" },
  },
  sluice_store_duration_seconds: {
    type: "histogram",
    help: "How long requests to the store of buckets took, until it answered or failed.",
    labels: ["command"],
    buckets: "requests",
    opentelemetry: { name: "sluice.store.duration", unit: "s" },
  },
  sluice_webhook_attempt_seconds: {
    type: "histogram",
    help: "How long attempts at endpoints of webhooks took, by what they came to.",
    labels: ["outcome"],
    buckets: "requests",
    opentelemetry: { name: "sluice.webhook.attempt", unit: "s" },
  },
} as const;

/**
 * The metrics that only OpenTelemetry exports. Their names follow its semantic conventions for messaging (in
 * development). A test compares the names with `@opentelemetry/semantic-conventions`.
 */
const MESSAGING_METRICS = {
  "messaging.client.sent.messages": {
    type: "counter",
    help: "Jobs that were to be stored.",
    labels: ["messaging.destination.name", "error.type"],
    opentelemetry: {
      unit: "{message}",
      attributes: { "messaging.system": "sluice", "messaging.operation.name": "enqueue" },
    },
  },
  "messaging.client.operation.duration": {
    type: "histogram",
    help: "How long it took to store jobs.",
    labels: ["messaging.destination.name", "error.type"],
    buckets: "messaging",
    opentelemetry: {
      unit: "s",
      attributes: {
        "messaging.system": "sluice",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
      },
    },
  },
  "messaging.client.consumed.messages": {
    type: "counter",
    help: "Jobs whose handlers began.",
    labels: ["messaging.destination.name"],
    opentelemetry: {
      unit: "{message}",
      attributes: { "messaging.system": "sluice", "messaging.operation.name": "process" },
    },
  },
  "messaging.process.duration": {
    type: "histogram",
    help: "How long handlers took.",
    labels: ["messaging.destination.name", "error.type"],
    buckets: "messaging",
    opentelemetry: {
      unit: "s",
      attributes: { "messaging.system": "sluice", "messaging.operation.name": "process" },
    },
  },
} as const;

/**
 * The metrics that `insight/metrics/fleet-metrics.ts` reads from Redis. Only one process exports these metrics, because
 * a sum over several processes would count each value more than once.
 */
export const FLEET_METRICS = {
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
  sluice_adaptive_limit: {
    type: "gauge",
    help: "How many calls a concurrency limit that adapts to latency lets run at once, by its limit and, in a pool, its member.",
    labels: ["bucket", "limit", "member"],
    opentelemetry: { name: "sluice.adaptive.limit", unit: "{call}" },
  },
  sluice_adaptive_computed_limit: {
    type: "gauge",
    help: "The value that such a limit has computed. It differs in shadow and during a probe.",
    labels: ["bucket", "limit", "member"],
    opentelemetry: { name: "sluice.adaptive.computed_limit", unit: "{call}" },
  },
  sluice_adaptive_baseline_seconds: {
    type: "gauge",
    help: "The latency without a queue, which such a limit aims at; absent until it is measured.",
    labels: ["bucket", "limit", "member"],
    opentelemetry: { name: "sluice.adaptive.baseline", unit: "s" },
  },
  sluice_adaptive_latency_seconds: {
    type: "gauge",
    help: "The mean latency of the calls in the last window of such a limit; absent until it is measured.",
    labels: ["bucket", "limit", "member"],
    opentelemetry: { name: "sluice.adaptive.latency", unit: "s" },
  },
  sluice_budget_amount: {
    type: "gauge",
    help: "The amount of a budget that all keys share, with what was carried over and granted, in the unit of the limit.",
    labels: ["bucket", "limit"],
    opentelemetry: { name: "sluice.budget.amount", unit: "{unit}" },
  },
  sluice_budget_spent: {
    type: "gauge",
    help: "What calls have spent of that amount, with what they have reserved.",
    labels: ["bucket", "limit"],
    opentelemetry: { name: "sluice.budget.spent", unit: "{unit}" },
  },
  sluice_budget_reserved: {
    type: "gauge",
    help: "What calls have reserved of that amount and have not settled yet.",
    labels: ["bucket", "limit"],
    opentelemetry: { name: "sluice.budget.reserved", unit: "{unit}" },
  },
  sluice_budget_granted: {
    type: "gauge",
    help: "What operators have granted in addition until the period ends.",
    labels: ["bucket", "limit"],
    opentelemetry: { name: "sluice.budget.granted", unit: "{unit}" },
  },
  sluice_budget_reset_seconds: {
    type: "gauge",
    help: "The time until the period of a budget ends. For rolling days, until today ends.",
    labels: ["bucket", "limit"],
    opentelemetry: { name: "sluice.budget.reset", unit: "s" },
  },
  sluice_pool_member_state: {
    type: "gauge",
    help: "1 for the state of each member of a pool: open, drained, cooling or unreachable. A removed member is absent.",
    labels: ["bucket", "member", "state"],
    opentelemetry: { name: "sluice.pool.member.state", unit: "{member}" },
  },
  sluice_pool_member_room_ratio: {
    type: "gauge",
    help: "The free part of a member's limits, of the limit with the least room. 0 while the member takes no calls.",
    labels: ["bucket", "member"],
    opentelemetry: { name: "sluice.pool.member.room", unit: "1" },
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
  sluice_outbox_pending: {
    type: "gauge",
    help: "Rows of an outbox that no relay has moved yet, without failed rows.",
    labels: ["outbox"],
  },
  sluice_outbox_failed: {
    type: "gauge",
    help: "Rows of an outbox that relays no longer try.",
    labels: ["outbox"],
  },
  sluice_outbox_oldest_seconds: {
    type: "gauge",
    help: "The age of the oldest pending row of an outbox.",
    labels: ["outbox"],
  },
  sluice_outbox_report_age_seconds: {
    type: "gauge",
    help: "How long ago a relay last reported about an outbox.",
    labels: ["outbox"],
  },
  sluice_outbox_relayed_total: {
    type: "counter",
    help: "Rows of an outbox that relays have moved.",
    labels: ["outbox"],
  },
} as const;

export type ProcessMetric = keyof typeof PROCESS_METRICS;
export type FleetMetric = keyof typeof FLEET_METRICS;
export type CountedMetric = ProcessMetric | keyof typeof MESSAGING_METRICS;

type CountedRows = typeof PROCESS_METRICS & typeof MESSAGING_METRICS;

type StringFor<Labels extends readonly string[]> = { readonly [Label in keyof Labels]: string };

/** One value for each label of a metric, in the order of the metric's labels. `""` omits the label from the series. */
export type LabelValues<Of extends CountedMetric> = StringFor<CountedRows[Of]["labels"]>;

export const COUNTED_METRICS: Readonly<Record<CountedMetric, CountedFacts>> = {
  ...PROCESS_METRICS,
  ...MESSAGING_METRICS,
};
