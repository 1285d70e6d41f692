import type { QueueSettings } from "../../input/queue-settings.ts";
import type { PolicySource } from "../../store.ts";
import type { RuledPolicy, RulesStore } from "./rules.ts";
import type { RequestNotes } from "./requests.ts";
import type { SlotSecrets } from "./slots.ts";
import type { ChangeStore, KeptBucketChange } from "./changes.ts";

/** Facts about a fleet beside its limits: its replicas and their reports, the change log, and the rules. */
export interface InsightStore extends RulesStore, RequestNotes, SlotSecrets, ChangeStore {
  /** Stores the report of a replica. */
  report(report: ReplicaReport): Promise<ReportReply>;
  /** Returns sorted names of buckets from reports and rules, starting after a name. */
  bucketNames(page: NamesPage): Promise<BucketNames>;
  /** Returns the facts about a bucket, with the reports of live replicas. */
  bucket(name: string): Promise<BucketFacts>;
  /** Reads several buckets at once. Missing if that is not faster. */
  readonly looks?: (names: readonly string[]) => Promise<ReadonlyMap<string, BucketLook>>;
  /** Returns the text of the policy in the code of a bucket; undefined if no replica has reported the bucket. */
  declared(bucket: string): Promise<string | undefined>;
  replicas(): Promise<readonly ReplicaFacts[]>;
  /** Returns queues from reports, sorted by name, starting after a name. */
  queues(page: NamesPage): Promise<QueuesFound>;
  queue(name: string): Promise<QueueFacts | undefined>;
  /** Returns the workers of live replicas. */
  workers(): Promise<readonly WorkerFacts[]>;
  /** Returns the ids of the live workers of these queues, as `queue.status()` counts them. */
  liveWorkers(queues: readonly string[]): Promise<readonly string[]>;
  history(bucket: string, span: { fromMs: number; untilMs: number }): Promise<readonly Point[]>;
  endOverride(override: Pick<Override, "bucket" | "id">): Promise<void>;
}

/** How long a replica counts as alive after its last report. */
export const REPLICA_ALIVE_MS = 90_000;
/** How long a bucket or queue stays in the index after its last report. */
export const INDEX_KEPT_MS = 2_592_000_000;
/** The length of a step in the history of calls. */
export const HISTORY_STEP_MS = 10_000;
/** How long the history of calls is kept. */
export const HISTORY_KEPT_MS = 86_400_000;
/** How many changes each change log keeps. */
export const CHANGES_KEPT = 10_000;
/** How long a change log is kept after its last change. */
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
  /** Overrides that have expired, and that this replica has to end. */
  readonly over: readonly Override[];
  /** True if no earlier report of the replica is stored, because it is new or its reports were lost. */
  readonly isNew: boolean;
}

/** What a process reports about itself, its buckets, queues and workers. */
export interface ReplicaReport {
  readonly replica: string;
  readonly about: AboutReplica;
  /** True for its last report, which removes its earlier ones. The calls that it started still count. */
  readonly isLast: boolean;
  readonly buckets: readonly BucketReport[];
  /** Open queues that it has not reported recently. */
  readonly queues: readonly QueueFacts[];
  /** All its workers; undefined if they are unchanged. */
  readonly workers: readonly WorkerActivity[] | undefined;
}

export interface QueueFacts {
  readonly name: string;
  /** The bucket that limits its jobs. */
  readonly bucket: string;
  readonly declared: QueueDeclared;
}

/** The options in the code of a queue, without functions and schemas. */
export interface QueueDeclared extends QueueSettings {
  /** Whether a dead letter blocks its ordered key, and whether all keys are ordered or a function decides. */
  readonly ordered?: { readonly stuck: "skip" | "hold"; readonly keys: "all" | "some" } | undefined;
  /** Whether the bucket computes the costs of jobs. */
  readonly hasCosts: boolean;
  /** Whether it is the queue of a sender of webhooks. */
  readonly isSender?: boolean | undefined;
  readonly maxJobBytes?: number | undefined;
}

/** The state of a worker in the last report of its process. */
export interface WorkerActivity {
  /** A unique name. */
  readonly worker: string;
  readonly queue: string;
  /** `"closing"` while its last handlers run. */
  readonly state: "running" | "closing";
  /** When it started, in ms since 1970 on the clock of its process. */
  readonly sinceMs: number;
  /** How many handlers run. */
  readonly running: number;
  /** How many fetched jobs wait for their slots. */
  readonly waiting: number;
  /** The most jobs that it may hold. */
  readonly concurrency: number;
  /** Whether the queue is paused, as the worker last read it. */
  readonly paused: boolean;
}

export interface WorkerFacts extends WorkerActivity {
  /** The process that it runs in. */
  readonly replica: string;
}

export interface AboutReplica {
  readonly host: string;
  readonly pid: number;
  /** The version of this package. */
  readonly version: string;
  /** In ms since 1970, on the clock of the process. */
  readonly startedAtMs: number;
}

export interface ReplicaFacts extends AboutReplica {
  readonly replica: string;
  /** The time of its last report, on the clock of the store. */
  readonly seenAtMs: number;
}

/** What a process reports about one bucket. */
export interface BucketReport {
  readonly bucket: string;
  readonly state: BucketActivity;
  /** Calls that started since the previous report. */
  readonly started: number;
  /** Calls that the downstream rejected since then. */
  readonly refused: number;
  /** The text of the policy in its code; undefined if that is unchanged. */
  readonly declared: string | undefined;
  /** The waiting callers, reported once in each step of the history; undefined without any. */
  readonly waited?: Waited | undefined;
}

/** The average number of waiting callers by rank, over a time until now. */
interface Waited {
  readonly callers: readonly number[];
  readonly forMs: number;
}

/** The state of a bucket in one process. */
export interface BucketActivity {
  /** Waiting callers by rank: critical, high, normal, low. */
  readonly waiting: readonly number[];
  /** How long the oldest of them has waited. */
  readonly oldestMs: number;
  /** Calls that started in the last ten seconds. */
  readonly startedIn10s: number;
  /** The limit that most of them wait for: `"100/s"`. */
  readonly limitedBy: string | undefined;
}

export interface BucketFacts {
  /** The time on the clock of the store. */
  readonly nowMs: number;
  /** How many responses have started a cooldown or reduced the rate, over all processes: `12`. */
  readonly refusals: number;
  readonly reports: readonly (BucketActivity & {
    readonly replica: string;
    readonly atMs: number;
  })[];
  readonly rules: RuledPolicy | undefined;
  /** Overrides that may be active, the oldest first. */
  readonly overrides: readonly Override[];
  /** The change that started the current pause. */
  readonly pause: KeptBucketChange | undefined;
  /** False if only the rules name the bucket, and no replica has used it recently. */
  readonly hasCalls: boolean;
}

/** The facts about a bucket, and its state except for its limits; or the error of its server. */
export type BucketLook =
  | {
      readonly facts: BucketFacts;
      /** The text of the policy in its code; undefined for an unknown bucket. */
      readonly declared: string | undefined;
      /** Undefined if the bucket is stored on another node. */
      readonly glance: Glance | undefined;
    }
  | { readonly error: unknown };

/** The state of a bucket without its limits. `Peeked` has them. */
export interface Glance {
  readonly nowUs: number;
  readonly generation: number;
  /** The text of the active policy; undefined if the bucket has no state. */
  readonly text: string | undefined;
  readonly source: PolicySource;
  readonly alive: number;
  readonly coolUntilUs: number;
  readonly pausedUntilUs: number;
  readonly factor: number;
  readonly awayForMs: number;
}

/** A policy that an operator has set. */
export interface Override {
  readonly bucket: string;
  /** The id of the change that set it. */
  readonly id: string;
  readonly text: string;
  readonly by: string;
  readonly reason: string | undefined;
  readonly atMs: number;
  /** When it expires, on the clock of the store; undefined without an end. */
  readonly untilMs: number | undefined;
  /** The generation that it gave the bucket; undefined until it is confirmed. */
  readonly generation: number | undefined;
}

/** How long a noted change may be unconfirmed. After that, it counts as made. */
export const UNCONFIRMED_MS = 60_000;

/** Returns the override that set the policy with this text. */
export function overrideOf({ overrides }: BucketFacts, text: string): Override | undefined {
  return overrides.findLast((each) => each.text === text);
}

/** Returns the active override according to the replicas. The bucket itself may already have another one. */
export function overrideInForce({ overrides }: BucketFacts): Override | undefined {
  return overrides
    .filter(({ generation }) => generation !== undefined)
    .toSorted((a, b) => b.generation! - a.generation!)[0];
}

/** Started, rejected and waiting calls in one step of the history. A rejected call caused a cooldown or a lower rate. */
export interface Point {
  readonly atMs: number;
  readonly started: number;
  readonly refused: number;
  /** The average number of waiting callers, by rank; empty without any. */
  readonly waiting: readonly number[];
}
