import type { QueueSettings } from "../../input/queue-settings.ts";
import type { PolicySource } from "../../store.ts";
import type { RuledPolicy, RulesStore } from "./rules.ts";
import type { RequestNotes } from "./requests.ts";
import type { SlotSecrets } from "./slots.ts";
import type { ChangeStore, KeptBucketChange } from "./changes.ts";

/**
 * What is known of a fleet beside its limits: which replicas there are, what they told of their buckets, and what was
 * changed by hand, by whom.
 */
export interface InsightStore extends RulesStore, RequestNotes, SlotSecrets, ChangeStore {
  /** Takes in what one replica tells. */
  report(report: ReplicaReport): Promise<Reported>;
  /** Names of buckets that replicas have told of or that rules name, in order, after a name. */
  bucketNames(page: NamesPage): Promise<BucketNames>;
  /** What the living replicas told of a bucket. */
  bucket(name: string): Promise<BucketFacts>;
  /** Several buckets at once; left out where that is no quicker than one after another. */
  readonly looks?: (names: readonly string[]) => Promise<ReadonlyMap<string, BucketLook>>;
  /** The text of the policy that the code of a bucket declares; undefined if no replica has told of the bucket. */
  declared(bucket: string): Promise<string | undefined>;
  replicas(): Promise<readonly ReplicaFacts[]>;
  /** Queues that replicas have told of, by name, after a name. */
  queues(page: NamesPage): Promise<QueuesFound>;
  queue(name: string): Promise<QueueFacts | undefined>;
  /** The workers of the living replicas. */
  workers(): Promise<readonly WorkerFacts[]>;
  /** The ids of the workers of these queues that count as alive, as `queue.status()` counts them. */
  liveWorkers(queues: readonly string[]): Promise<readonly string[]>;
  history(bucket: string, span: { fromMs: number; untilMs: number }): Promise<readonly Point[]>;
  /** Forgets this override. */
  endOverride(override: Pick<Override, "bucket" | "id">): Promise<void>;
}

/** How long a replica that tells nothing more counts as alive. */
export const REPLICA_ALIVE_MS = 90_000;
/** For how long a bucket or queue that nothing is heard of is kept in the index: as an override is. */
export const INDEX_KEPT_MS = 2_592_000_000;
/** Calls are counted in steps of this length … */
export const HISTORY_STEP_MS = 10_000;
/** … for this long. */
export const HISTORY_KEPT_MS = 86_400_000;
/** How many changes are kept: of buckets by hand, by rules, of queues, of endpoints, and of both by rules … */
export const CHANGES_KEPT = 10_000;
/** … and for how long after the last one. */
export const CHANGES_KEPT_MS = 31_622_400_000;

interface NamesPage {
  readonly after: string;
  readonly limit: number;
}

interface BucketNames {
  readonly names: readonly string[];
  /** Of several servers, the errors of those that did not answer. */
  readonly errors: readonly unknown[];
}

interface QueuesFound {
  readonly queues: readonly QueueFacts[];
  /** Of several servers, the errors of those that did not answer. */
  readonly errors: readonly unknown[];
}

export interface Reported {
  /** Overrides whose time is over, which this replica is to end. */
  readonly over: readonly Override[];
  /** Whether nothing was known of the replica: what it told before is lost, if it did. */
  readonly isNew: boolean;
}

/** What one process tells of itself, of its buckets, its queues and its workers. */
export interface ReplicaReport {
  readonly replica: string;
  readonly about: AboutReplica;
  /** It is the last one of this replica: all that it told is forgotten, but for the calls that it started. */
  readonly isLast: boolean;
  readonly buckets: readonly BucketReport[];
  /** Queues that it has open and has not told of for a while. */
  readonly queues: readonly QueueFacts[];
  /** All workers that run in it; undefined if it has told that before. */
  readonly workers: readonly WorkerActivity[] | undefined;
}

/** What is known of a queue. */
export interface QueueFacts {
  readonly name: string;
  /** The bucket through which its jobs leave. */
  readonly bucket: string;
  readonly declared: QueueDeclared;
}

/** Of what the code says of a queue, all that can leave its process: no functions, and no schema. */
export interface QueueDeclared extends QueueSettings {
  /** Whether a dead letter holds its ordered key, and whether all keys are ordered or those that a function says. */
  readonly ordered?: { readonly stuck: "skip" | "hold"; readonly keys: "all" | "some" } | undefined;
  /** Whether the bucket says what jobs cost. */
  readonly hasCosts: boolean;
  /** Whether it is the queue of a sender of webhooks. */
  readonly isSender?: boolean | undefined;
  readonly maxJobBytes?: number | undefined;
}

/** How a worker is, as its process told it. */
export interface WorkerActivity {
  /** A name that no other worker has. */
  readonly worker: string;
  readonly queue: string;
  /** `"closing"` while it ends its handlers. */
  readonly state: "running" | "closing";
  /** Since when, in ms since 1970, by the clock of its process. */
  readonly sinceMs: number;
  /** How many jobs have their handlers running. */
  readonly running: number;
  /** How many more it holds, which wait for their slots. */
  readonly waiting: number;
  /** How many it may hold in all. */
  readonly concurrency: number;
  /** Whether the queue is paused, as it heard last. */
  readonly paused: boolean;
}

export interface WorkerFacts extends WorkerActivity {
  /** The process that it runs in. */
  readonly replica: string;
}

/** What a process is. */
export interface AboutReplica {
  readonly host: string;
  readonly pid: number;
  /** The version of this package. */
  readonly version: string;
  /** Ms since 1970, by the process's clock. */
  readonly startedAtMs: number;
}

export interface ReplicaFacts extends AboutReplica {
  readonly replica: string;
  /** When it last told something, by the store's clock. */
  readonly seenAtMs: number;
}

/** What a process tells of one bucket. */
export interface BucketReport {
  readonly bucket: string;
  readonly state: BucketActivity;
  /** Calls that started since its last report. */
  readonly started: number;
  /** Refusals of the downstream since then. */
  readonly refused: number;
  /** The text of the policy that its code declares; undefined if it has told that before. */
  readonly declared: string | undefined;
  /** Who waited here since that was told; undefined if nobody did, or that is told later: once in a step. */
  readonly waited?: Waited | undefined;
}

/** Callers that waited, by rank, on average over a time until now. */
interface Waited {
  readonly callers: readonly number[];
  readonly forMs: number;
}

/** How a bucket is in one process. */
export interface BucketActivity {
  /** Callers that wait, by rank: critical, high, normal, low. */
  readonly waiting: readonly number[];
  /** How long the oldest of them has waited. */
  readonly oldestMs: number;
  /** Calls that started in the last ten seconds. */
  readonly startedIn10s: number;
  /** What holds most of them back: `"100/s"`. */
  readonly limitedBy: string | undefined;
}

export interface BucketFacts {
  /** The store's clock. */
  readonly nowMs: number;
  /** How many answers have cooled it down or cut its rate, of all processes, since it is known: `12`. */
  readonly refusals: number;
  readonly reports: readonly (BucketActivity & {
    readonly replica: string;
    readonly atMs: number;
  })[];
  /** What the rules say of it, if they do. */
  readonly rules: RuledPolicy | undefined;
  /** Those that may be in force, the oldest first. */
  readonly overrides: readonly Override[];
  /** The change that the pause in force, if there is one, came with. */
  readonly pause: KeptBucketChange | undefined;
  /** Whether a replica has used it in the time for which buckets are kept; else only rules name it. */
  readonly hasCalls: boolean;
}

/** What is known of a bucket, and how it is in all but its limits; or why neither can be known. */
export type BucketLook =
  | {
      readonly facts: BucketFacts;
      /** The text of the policy that its code declares; undefined if the bucket is not known. */
      readonly declared: string | undefined;
      /** Undefined where a look at several buckets does not reach them. */
      readonly glance: Glance | undefined;
    }
  | { readonly error: unknown };

/** A bucket without its limits: see `Peeked`. */
export interface Glance {
  readonly nowUs: number;
  readonly generation: number;
  /** The text of the policy in force; undefined if the bucket has no state. */
  readonly text: string | undefined;
  readonly source: PolicySource;
  readonly alive: number;
  readonly coolUntilUs: number;
  readonly pausedUntilUs: number;
  readonly factor: number;
  readonly awayForMs: number;
}

/** A policy that was put in force by hand. */
export interface Override {
  readonly bucket: string;
  /** The change that began it. */
  readonly id: string;
  readonly text: string;
  readonly by: string;
  readonly reason: string | undefined;
  readonly atMs: number;
  /** When it ends by itself, by the store's clock; undefined: never. */
  readonly untilMs: number | undefined;
  /** That of the bucket when it was put in force; undefined: it is not known yet whether it was. */
  readonly generation: number | undefined;
}

/** For how long it can be unknown whether a change that was noted is made; then it counts as made. */
export const UNCONFIRMED_MS = 60_000;

/** The override with which the policy of this text came, if one did. */
export function overrideOf({ overrides }: BucketFacts, text: string): Override | undefined {
  return overrides.findLast((each) => each.text === text);
}

/** The override that is in force as far as replicas know: whoever looks at the bucket itself knows better. */
export function overrideInForce({ overrides }: BucketFacts): Override | undefined {
  return overrides
    .filter(({ generation }) => generation !== undefined)
    .toSorted((a, b) => b.generation! - a.generation!)[0];
}

/** Calls that started in one step of time, those that the downstream refused, after which a cooldown or a cut of the rate followed, and who waited. */
export interface Point {
  readonly atMs: number;
  readonly started: number;
  readonly refused: number;
  /** Callers that waited on average over the step, by rank; empty if none did. */
  readonly waiting: readonly number[];
}
