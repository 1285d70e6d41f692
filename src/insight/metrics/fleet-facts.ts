/** Reads the metrics of the whole fleet from Redis, for Prometheus and OpenTelemetry. */
import { reasonOf } from "../../core/describe.ts";
import type { FleetMetric } from "../../core/events/metrics.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import { sampled, type Logger } from "../../core/logger.ts";
import type { ListedOutbox, Overview } from "../overview.ts";
import type { QueueStatus } from "../../queue/forecast/status.ts";
import { JOB_STATES } from "../../queue/job.ts";
import type {
  AdaptiveState,
  LimitState,
  MemberState,
  ShadowState,
} from "../../throttle/bucket/bucket-state.ts";
import type { BudgetState } from "../../throttle/bucket/budgets.ts";
import type { BucketBrief, BucketStatus } from "../../throttle/bucket/facts/status.ts";
import { MOST_NAMES, OTHER, type Labels, type Sample } from "./counts.ts";
import { createReadings, type Readings } from "./readings.ts";

const EVERY_MS = 5_000;
/** The number of queues or buckets that are read at once. */
const AT_ONCE = 20;

interface Page {
  readonly after?: string | undefined;
  readonly afterQueue?: string | undefined;
  readonly limit: number;
  readonly brief: true;
}

export interface FleetParts {
  readonly overview: (page: Page) => Promise<Overview<BucketBrief>>;
  /** Returns the state of a bucket with its budgets and members. Undefined if the bucket is no longer known. */
  readonly bucketStatus: (name: string) => Promise<BucketStatus | undefined>;
  /** Returns the state of a queue. Undefined if the queue is no longer known. */
  readonly queueStatus: (name: string) => Promise<QueueStatus | undefined>;
  readonly logger: Logger;
  /** The sluice whose fleet is read. It detects a second export to the same place. */
  readonly sluice: object;
}

interface Facts {
  readonly buckets: readonly BucketBrief[];
  /** All buckets except the thousand with the most waiting callers. */
  readonly others: readonly BucketBrief[];
  /** Those of `buckets` that have shared budgets, members, or limits that adapt to latency. */
  readonly detailed: readonly BucketStatus[];
  readonly queues: readonly QueueStatus[];
  readonly outboxes: readonly ListedOutbox[];
}

type Read = (facts: Facts) => Sample[];

const READ: Readonly<Record<FleetMetric, Read>> = {
  sluice_bucket_limit_per_second: ofBuckets(({ name, capPerSecond, policy, source }) =>
    capPerSecond === undefined
      ? []
      : [{ labels: { bucket: name, limit: policy, source }, value: capPerSecond }],
  ),
  sluice_bucket_used_ratio: ofBuckets(({ name, capPerSecond, actualPerSecond }) =>
    capPerSecond === undefined
      ? []
      : [{ labels: { bucket: name }, value: actualPerSecond / capPerSecond }],
  ),
  sluice_bucket_binding: ofBuckets(({ name, limitedBy }) =>
    limitedBy === undefined ? [] : [{ labels: { bucket: name, limit: limitedBy }, value: 1 }],
  ),
  sluice_bucket_waiting: ({ buckets, others }) => [
    ...buckets.flatMap((status) => waitingOf(status.name, [status])),
    ...(others.length === 0 ? [] : waitingOf(OTHER, others)),
  ],
  sluice_bucket_cooldown_seconds: ofBuckets(({ name, coolingForMs }) => [
    { labels: { bucket: name }, value: coolingForMs / 1_000 },
  ]),
  sluice_bucket_refusals_total: ofBuckets(({ name, refusals }) => [
    { labels: { bucket: name }, value: refusals },
  ]),
  sluice_bucket_override_seconds: ofBuckets(({ name, source, setBy }) =>
    source !== "override" || setBy === undefined
      ? []
      : [{ labels: { bucket: name }, value: Math.max(0, (Date.now() - setBy.atMs) / 1_000) }],
  ),
  sluice_bucket_shadow_calls_total: ofBuckets(({ name, shadows }) =>
    shadows.flatMap(shadowOf(name)),
  ),
  sluice_adaptive_limit: ofAdaptive(({ atOnce }) => atOnce),
  sluice_adaptive_computed_limit: ofAdaptive(({ value }) => value),
  sluice_adaptive_baseline_seconds: ofAdaptive(({ baselineMs }) => measured(baselineMs)),
  sluice_adaptive_latency_seconds: ofAdaptive(({ recentMs }) => measured(recentMs)),
  sluice_budget_amount: ofBudgets(({ amount }) => amount),
  sluice_budget_spent: ofBudgets(({ spent }) => spent),
  sluice_budget_reserved: ofBudgets(({ reserved }) => reserved),
  sluice_budget_granted: ofBudgets(({ granted }) => granted),
  sluice_budget_reset_seconds: ofBudgets(({ resetsAt }) =>
    Math.max(0, (resetsAt.getTime() - Date.now()) / 1_000),
  ),
  sluice_pool_member_state: ofMembers((member) => ({
    labels: { state: memberStateOf(member) },
    value: 1,
  })),
  sluice_pool_member_room_ratio: ofMembers((member) => ({ labels: {}, value: roomOf(member) })),
  sluice_config_info: ofBuckets(({ name, generation, source }) => [
    { labels: { bucket: name, generation: String(generation), source }, value: 1 },
  ]),
  sluice_queue_jobs: ({ queues }) =>
    queues.flatMap(({ name, jobs }) =>
      JOB_STATES.map((state) => ({ labels: { queue: name, state }, value: jobs[state] })),
    ),
  sluice_queue_oldest_due_seconds: ofQueues(({ oldest }) => (oldest?.waitingMs ?? 0) / 1_000),
  sluice_queue_unexplained_delay_seconds: ofQueues(({ unexplainedMs }) => unexplainedMs / 1_000),
  sluice_dead_letters_oldest_seconds: ofQueues(
    ({ oldestDeadLetterMs = 0 }) => oldestDeadLetterMs / 1_000,
  ),
  sluice_queue_drain_seconds: ofQueues(({ emptyInMs }) => emptyInMs && emptyInMs / 1_000),
  sluice_queue_workers_wanted: ofQueues(({ workersWanted }) => workersWanted),
  sluice_outbox_pending: ofOutboxes(({ pending }) => pending),
  sluice_outbox_failed: ofOutboxes(({ failed }) => failed),
  sluice_outbox_oldest_seconds: ofOutboxes(({ oldestMs }) => oldestMs / 1_000),
  sluice_outbox_report_age_seconds: ofOutboxes(({ reportedAgoMs }) => reportedAgoMs / 1_000),
  sluice_outbox_relayed_total: ofOutboxes(({ moved }) => moved),
};

function ofBuckets(read: (status: BucketBrief) => Sample[]): Read {
  return ({ buckets }) => buckets.flatMap(read);
}

function shadowOf(bucket: string): (shadow: ShadowState) => Sample[] {
  return ({ name: limit, calls, wouldHaveWaited, wouldHaveBeenRefused }) => {
    const counts = { waited: wouldHaveWaited, refused: wouldHaveBeenRefused };
    const passed = calls - wouldHaveWaited - wouldHaveBeenRefused;
    return Object.entries({ passed, ...counts }).map(([outcome, value]) => ({
      labels: { bucket, limit, outcome },
      value,
    }));
  };
}

function ofAdaptive(read: (state: AdaptiveState) => number | undefined): Read {
  return ({ detailed }) =>
    detailed.flatMap(({ name: bucket, limits, members = [] }) => [
      ...adaptiveOf({ bucket }, limits, read),
      ...members.flatMap(({ name: member, limits: own }) =>
        adaptiveOf({ bucket, member }, own, read),
      ),
    ]);
}

function adaptiveOf(
  labels: Labels,
  limits: readonly LimitState[],
  read: (state: AdaptiveState) => number | undefined,
): Sample[] {
  return limits.flatMap(({ name: limit, adaptive }) => {
    const value = adaptive && read(adaptive);
    return value === undefined ? [] : [{ labels: { ...labels, limit }, value }];
  });
}

/** A latency is 0 until it is measured, and is then not exported. */
function measured(ms: number): number | undefined {
  return ms === 0 ? undefined : ms / 1_000;
}

function ofBudgets(read: (budget: BudgetState) => number): Read {
  return ({ detailed }) =>
    detailed.flatMap(({ name: bucket, budgets = [] }) =>
      budgets.map((each) => ({ labels: { bucket, limit: each.name }, value: read(each) })),
    );
}

function ofMembers(read: (member: MemberState) => Sample): Read {
  return ({ detailed }) =>
    detailed.flatMap(({ name: bucket, members = [] }) =>
      members.map((member) => {
        const { labels, value } = read(member);
        return { labels: { bucket, member: member.name, ...labels }, value };
      }),
    );
}

function memberStateOf({ drained, unreachableForMs, coolingForMs }: MemberState): string {
  if (drained) return "drained";
  if (unreachableForMs > 0) return "unreachable";
  return coolingForMs > 0 ? "cooling" : "open";
}

function roomOf(member: MemberState): number {
  if (memberStateOf(member) !== "open") return 0;
  return Math.min(1, ...member.limits.map(({ remaining, capacity }) => remaining / capacity));
}

function ofQueues(read: (status: QueueStatus) => number | undefined): Read {
  return ({ queues }) =>
    queues.flatMap((status) => {
      const value = read(status);
      return value === undefined ? [] : [{ labels: { queue: status.name }, value }];
    });
}

/** Tables with the same name in several databases are labelled with their ids, too. */
function ofOutboxes(read: (outbox: ListedOutbox) => number): Read {
  return ({ outboxes }) =>
    outboxes.map((each) => {
      const isUnique = outboxes.filter(({ name }) => name === each.name).length === 1;
      const label = isUnique ? each.name : `${each.name} ${each.outbox}`;
      return { labels: { outbox: label }, value: read(each) };
    });
}

function waitingOf(bucket: string, of: readonly BucketBrief[]): Sample[] {
  return PRIORITIES.map((priority) => ({
    labels: { bucket, priority },
    value: of.reduce((sum, { waiting }) => sum + waiting.byPriority[priority], 0),
  }));
}

/** The methods of a sluice that read its fleet. */
interface FleetSource extends Pick<FleetParts, "overview"> {
  find(name: string): Promise<{ status(): Promise<BucketStatus> } | undefined>;
  findQueue(name: string): Promise<{ status(): Promise<QueueStatus> } | undefined>;
}

export function fleetPartsOf(sluice: FleetSource, logger: Logger): FleetParts {
  return {
    overview: (page) => sluice.overview(page),
    bucketStatus: async (name) => (await sluice.find(name))?.status(),
    queueStatus: async (name) => (await sluice.findQueue(name))?.status(),
    logger,
    sluice,
  };
}

/** The latest state of a fleet. */
export interface FleetReadings {
  /** Returns the samples of a metric. Empty while Redis cannot be read. */
  samples(metric: FleetMetric): Promise<Sample[]>;
  close(): void;
}

export function createFleetReadings(parts: FleetParts, everyMs: number = EVERY_MS): FleetReadings {
  // The log is sampled, because a failed reading usually fails again five seconds later.
  const logger = sampled(parts.logger, () => performance.now());
  const readings: Readings<Facts> = createReadings({
    everyMs,
    read: () => readFacts({ ...parts, logger }),
    onError(error) {
      const reason = reasonOf(error);
      logger.warn({ reason }, `The metrics of the fleet could not be read: ${reason}`);
    },
  });
  return {
    async samples(metric) {
      const latest = await readings.latest();
      return latest === undefined ? [] : READ[metric](latest);
    },
    close: () => readings.close(),
  };
}

async function readFacts(parts: FleetParts): Promise<Facts> {
  const { buckets, queues, outboxes, unreachable } = await readAll(parts);
  if (buckets.length > MOST_NAMES) buckets.sort((a, b) => b.waiting.total - a.waiting.total);
  const most = buckets.slice(0, MOST_NAMES);
  const missed = (what: string) => (name: string, error: unknown) => {
    unreachable.push({ bucket: undefined, reason: `${what} "${name}": ${reasonOf(error)}` });
  };
  const queueNames = queues.map(({ name }) => name);
  const statuses = await readEach(queueNames, parts.queueStatus, missed("queue"));
  const detailedNames = most.flatMap((each) => (isDetailed(each) ? [each.name] : []));
  const detailed = await readEach(detailedNames, parts.bucketStatus, missed("bucket"));
  const [first] = unreachable;
  if (first !== undefined) {
    const { bucket, reason } = first;
    const such = bucket === undefined ? reason : `bucket "${bucket}": ${reason}`;
    parts.logger.warn(
      { unreachable: unreachable.length, reason },
      `The metrics of the fleet lack what could not be read, such as ${such}`,
    );
  }
  return {
    buckets: most,
    others: buckets.slice(MOST_NAMES),
    detailed,
    queues: statuses,
    outboxes: outboxes.slice(0, MOST_NAMES),
  };
}

/** True if the metrics of a bucket need more than its brief status. */
function isDetailed({ hasBudgets, isPool, isAdaptive }: BucketBrief): boolean {
  return hasBudgets || isPool || isAdaptive;
}

/** Reads the state of each name, a few at once. Returns those that could be read, by name. */
async function readEach<Status extends { readonly name: string }>(
  names: readonly string[],
  read: (name: string) => Promise<Status | undefined>,
  onError: (name: string, error: unknown) => void,
): Promise<Status[]> {
  const found: Status[] = [];
  for (let from = 0; from < names.length; from += AT_ONCE) {
    const some = names.slice(from, from + AT_ONCE).map(async (name) => {
      try {
        const status = await read(name);
        if (status !== undefined) found.push(status);
      } catch (error) {
        onError(name, error);
      }
    });
    await Promise.all(some);
  }
  return found.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/**
 * Reads all buckets, page by page, and the first page of queues. Further queues are not exported.
 */
async function readAll({ overview }: FleetParts) {
  const { queues, outboxes, ...first } = await overview({ limit: MOST_NAMES, brief: true });
  const buckets = [...first.buckets];
  const unreachable = [...first.unreachable];
  const afterQueue = queues.at(-1)?.name;
  let after = first.next;
  while (after !== undefined) {
    const page = await overview({ after, afterQueue, limit: MOST_NAMES, brief: true });
    buckets.push(...page.buckets);
    unreachable.push(...page.unreachable);
    after = page.next;
  }
  return { buckets, queues, outboxes, unreachable };
}
