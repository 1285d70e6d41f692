import type { QueueSettings } from "../../input/queue-settings.ts";
import type { PolicySource } from "../../store.ts";
import type { RuledPolicy, RulesStore } from "./rules.ts";
import type { RequestNotes } from "./requests.ts";
import type { SlotSecrets } from "./slots.ts";
import type { ChangeStore, KeptBucketChange } from "./changes.ts";

/**
 * Stores the data that operators see about all processes that share a Redis: their reports, the change log, and the
 * rules. The `Store` in `core/store.ts` stores the limits.
 */
export interface InsightStore extends RulesStore, RequestNotes, SlotSecrets, ChangeStore {
  /** Stores the report of a replica. */
  report(report: ReplicaReport): Promise<ReportReply>;
  /** Returns the names of buckets from reports and rules, sorted and starting after `page.after`. */
  bucketNames(page: NamesPage): Promise<BucketNames>;
  /** Returns the reports of live replicas about a bucket, with its rules, overrides and pause. */
  bucket(name: string): Promise<BucketFacts>;
  /** Reads several buckets in one request. Undefined if the store has no faster way than reading each bucket. */
  readonly looks?: (names: readonly string[]) => Promise<ReadonlyMap<string, BucketLook>>;
  /**
   * Returns the policy text that the code declares for a bucket. Returns undefined if no replica has reported the
   * bucket.
   */
  declared(bucket: string): Promise<string | undefined>;
  replicas(): Promise<readonly ReplicaFacts[]>;
  /** Returns queues from reports, sorted by name and starting after `page.after`. */
  queues(page: NamesPage): Promise<QueuesFound>;
  queue(name: string): Promise<QueueFacts | undefined>;
  /** Returns the workers of live replicas. */
  workers(): Promise<readonly WorkerFacts[]>;
  /** Returns the ids of the live workers of these queues, as `queue.status()` counts them. */
  liveWorkers(queues: readonly string[]): Promise<readonly string[]>;
  /** Stores the report of a relay about its outbox. */
  reportOutbox(report: OutboxReport): Promise<void>;
  /** Returns the latest report about each outbox. */
  outboxes(): Promise<readonly OutboxFacts[]>;
  history(bucket: string, span: { fromMs: number; untilMs: number }): Promise<readonly Point[]>;
  endOverride(override: Pick<Override, "bucket" | "id">): Promise<void>;
}

/** How long a replica counts as alive after its last report, in ms. */
export const REPLICA_ALIVE_MS = 90_000;
/** How long a bucket or queue stays in the index after its last report, in ms. */
export const INDEX_KEPT_MS = 2_592_000_000;
/** The length of one step in the history of calls, in ms. */
export const HISTORY_STEP_MS = 10_000;
/** How long the store keeps the history of calls, in ms. */
export const HISTORY_KEPT_MS = 86_400_000;
/** The most changes in each change log. */
export const CHANGES_KEPT = 10_000;
/** How long the store keeps a change log after its last change, in ms. */
export const CHANGES_KEPT_MS = 31_622_400_000;

interface NamesPage {
  readonly after: string;
  readonly limit: number;
}

interface BucketNames {
  readonly names: readonly string[];
  /** The errors of the servers that did not reply. */
  readonly errors: readonly unknown[];
}

interface QueuesFound {
  readonly queues: readonly QueueFacts[];
  /** The errors of the servers that did not reply. */
  readonly errors: readonly unknown[];
}

interface ReportReply {
  /** Expired overrides, which this replica must end. */
  readonly over: readonly Override[];
  /** True if no earlier report of the replica is stored, because it is new or its reports were lost. */
  readonly isNew: boolean;
}

/** What a process reports about itself, its buckets, queues and workers. */
export interface ReplicaReport {
  readonly replica: string;
  readonly about: AboutReplica;
  /**
   * True for the last report of the process, which removes its earlier reports. The calls that the process started
   * still count.
   */
  readonly isLast: boolean;
  readonly buckets: readonly BucketReport[];
  /** The open queues that the process has not reported recently. */
  readonly queues: readonly QueueFacts[];
  /** All workers of the process. Undefined if they are unchanged. */
  readonly workers: readonly WorkerActivity[] | undefined;
}

export interface QueueFacts {
  readonly name: string;
  /** The bucket that limits its jobs. */
  readonly bucket: string;
  readonly declared: QueueDeclared;
}

/** The options that the code declares for a queue, without functions and schemas. */
export interface QueueDeclared extends QueueSettings {
  /**
   * The order of jobs. `stuck` is `"hold"` if a dead letter blocks its key. `keys` is `"some"` if a function selects
   * the ordered keys.
   */
  readonly ordered?: { readonly stuck: "skip" | "hold"; readonly keys: "all" | "some" } | undefined;
  /** True if the bucket computes the cost of each job. */
  readonly hasCosts: boolean;
  /** The names of the codecs of its payloads. Undefined without codecs. */
  readonly codecs?: readonly string[] | undefined;
  /** True if the queue belongs to a webhook sender. */
  readonly isSender?: boolean | undefined;
  readonly maxJobBytes?: number | undefined;
}

/** The state of a worker in the last report of its process. */
export interface WorkerActivity {
  /** The unique id of the worker. */
  readonly worker: string;
  readonly queue: string;
  /** `"closing"` while its last handlers run. */
  readonly state: "running" | "closing";
  /** The time when the worker started, in ms since 1970 on the clock of its process. */
  readonly sinceMs: number;
  /** The number of running handlers. */
  readonly running: number;
  /** The number of fetched jobs that wait for their slots. */
  readonly waiting: number;
  /** The most jobs that the worker may have fetched at once. */
  readonly concurrency: number;
  /** True if the queue was paused when the worker last read its state. */
  readonly paused: boolean;
  /**
   * The name of the program that takes the jobs over HTTP: `"reports-1"`. Undefined for a worker in the reporting
   * process.
   */
  readonly client?: string | undefined;
}

/** What a relay reports about its outbox. */
export interface OutboxReport {
  /** The unique id of the outbox, from its database. */
  readonly outbox: string;
  readonly state: Pick<OutboxFacts, "name" | "pending" | "failed" | "oldestMs">;
  /** The rows that the relay has moved since its last report. */
  readonly moved: number;
}

/** The state of an outbox, from the last report of a relay. */
export interface OutboxFacts {
  readonly outbox: string;
  /** The schema and the name of the table: `"public.sluice_outbox"`. */
  readonly name: string;
  /** The rows that were not moved yet, without failed rows. */
  readonly pending: number;
  /** The rows that relays no longer try. */
  readonly failed: number;
  /** The age of the oldest pending row, in ms. 0 without pending rows. */
  readonly oldestMs: number;
  /** The rows that all relays have moved. */
  readonly moved: number;
  /** The age of the report, in ms. */
  readonly reportedAgoMs: number;
}

export interface WorkerFacts extends WorkerActivity {
  /** The process in which the worker runs. */
  readonly replica: string;
}

export interface AboutReplica {
  readonly host: string;
  readonly pid: number;
  /** The version of this package. */
  readonly version: string;
  /** The start time of the process, in ms since 1970 on its own clock. */
  readonly startedAtMs: number;
}

export interface ReplicaFacts extends AboutReplica {
  readonly replica: string;
  /** The time of the last report, in ms since 1970 on the clock of the store. */
  readonly seenAtMs: number;
}

/** What a process reports about one bucket. */
export interface BucketReport {
  readonly bucket: string;
  readonly state: BucketActivity;
  /** The number of calls that started since the previous report. */
  readonly started: number;
  /** The number of calls that the downstream rejected since the previous report. */
  readonly refused: number;
  /** The policy text that the code declares. Undefined if it is unchanged. */
  readonly declared: string | undefined;
  /** The waiting callers, reported once in each step of the history. Undefined if no caller waited. */
  readonly waited?: Waited | undefined;
}

/** The average number of waiting callers by rank, over the last `forMs`. */
interface Waited {
  readonly callers: readonly number[];
  readonly forMs: number;
}

/** The state of a bucket in one process. */
export interface BucketActivity {
  /** The number of waiting callers by rank: critical, high, normal, low. */
  readonly waiting: readonly number[];
  /** How long the oldest waiting caller has waited, in ms. */
  readonly oldestMs: number;
  /** The number of calls that started in the last ten seconds. */
  readonly startedIn10s: number;
  /** The limit that delays most of the waiting callers: `"100/s"`. */
  readonly limitedBy: string | undefined;
}

export interface BucketFacts {
  /** The time on the clock of the store. */
  readonly nowMs: number;
  /** The number of responses that started a cooldown or reduced the rate, over all processes: `12`. */
  readonly refusals: number;
  readonly reports: readonly (BucketActivity & {
    readonly replica: string;
    readonly atMs: number;
  })[];
  readonly rules: RuledPolicy | undefined;
  /** The overrides that may be active, the oldest first. */
  readonly overrides: readonly Override[];
  /** The change that started the current pause. Undefined without a pause. */
  readonly pause: KeptBucketChange | undefined;
  /** False if only the rules name the bucket, and no replica has used it recently. */
  readonly hasCalls: boolean;
}

/** The reports about a bucket and its state without limits, or the error of the server that stores the bucket. */
export type BucketLook =
  | {
      readonly facts: BucketFacts;
      /** The policy text that the code declares. Undefined for an unknown bucket. */
      readonly declared: string | undefined;
      /** The state of the bucket. Undefined if the bucket is stored on another node. */
      readonly glance: Glance | undefined;
    }
  | { readonly error: unknown };

/** The state of a bucket without its limits. `Peeked` is the state with its limits. */
export interface Glance {
  readonly nowUs: number;
  readonly generation: number;
  /** The text of the active policy. Undefined if the bucket has no state. */
  readonly text: string | undefined;
  readonly source: PolicySource;
  readonly alive: number;
  readonly coolUntilUs: number;
  readonly pausedUntilUs: number;
  readonly factor: number;
  readonly unreachableForMs: number;
}

/** A policy that an operator has set. */
export interface Override {
  readonly bucket: string;
  /** The id of the change that set the override. */
  readonly id: string;
  readonly text: string;
  readonly by: string;
  readonly reason: string | undefined;
  readonly atMs: number;
  /** The time when the override expires, on the clock of the store. Undefined if it does not expire. */
  readonly untilMs: number | undefined;
  /** The bucket's generation after the override was set. Undefined until the override is confirmed. */
  readonly generation: number | undefined;
}

/** How long a recorded change may stay unconfirmed, in ms. After that, it counts as made. */
export const UNCONFIRMED_MS = 60_000;

/** Returns the override that set the policy with this text. */
export function overrideOf({ overrides }: BucketFacts, text: string): Override | undefined {
  return overrides.findLast((each) => each.text === text);
}

/**
 * Returns the active override, as far as the replicas have confirmed it. The bucket itself may already have a newer
 * override.
 */
export function overrideInForce({ overrides }: BucketFacts): Override | undefined {
  return overrides
    .filter(({ generation }) => generation !== undefined)
    .toSorted((a, b) => b.generation! - a.generation!)[0];
}

/**
 * The numbers of started, rejected and waiting calls in one step of the history. A rejected call is one whose response
 * caused a cooldown or a lower rate.
 */
export interface Point {
  readonly atMs: number;
  readonly started: number;
  readonly refused: number;
  /** The average number of waiting callers by rank. Empty if no caller waited. */
  readonly waiting: readonly number[];
}
