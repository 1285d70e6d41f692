/**
 * Scripts for the reports of replicas, the change log and the rules. All keys of a fleet share one
 * hash tag.
 */
import { createHash } from "node:crypto";
import { OUTAGE_KEPT_MS, SOURCES } from "../../../../core/store.ts";
import {
  INDEX_KEPT_MS,
  CHANGES_KEPT,
  CHANGES_KEPT_MS,
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  REPLICA_ALIVE_MS,
  UNCONFIRMED_MS,
  type AboutReplica,
  type BucketActivity,
  type BucketFacts,
  type Glance,
  type Override,
  type OutboxReport,
  type ReplicaReport,
} from "../../../../core/stores/insight/store.ts";
import {
  logOf,
  LOGS,
  newestFirst,
  type ChangeFate,
  type KeptBucketChange,
  type KeptChange,
  type MadeChange,
  type NewBucketChange,
  type NewChange,
  type NewQueueChange,
} from "../../../../core/stores/insight/changes.ts";
import {
  RULES_CLAIM_MS,
  RULES_DONE_MS,
  RULES_KEPT_MS,
  type RuledPolicy,
  type RulesAnswer,
  type RulesInForce,
  type RulesNote,
} from "../../../../core/stores/insight/rules.ts";
import { awayKey, stateKeys } from "../keys.ts";
import { shapeScript } from "../script.ts";
import {
  constant,
  flag,
  flat,
  from,
  fromEach,
  int,
  json,
  list,
  mapped,
  optional,
  readerOf,
  rest,
  text,
  word,
  written,
  type Operand,
  type Parts,
  type Read,
  type Reader,
  type Shape,
} from "../shape.ts";

interface OfPrefix {
  readonly prefix: string;
}

/** Replaces a bucket's name in the Redis keys of the fleet. No bucket can have this name. */
export const FLEET = ":fleet";

/** Returns the prefix of the fleet's Redis keys. */
export function fleetBase({ prefix }: OfPrefix): string {
  return `${prefix}:{${FLEET}}`;
}

const fleetKey = (of: OfPrefix): readonly string[] => [fleetBase(of)];

/** Marks an unchanged list of workers. */
const UNCHANGED = "=";

/** The number of changes of one tenant's endpoints that are kept per author. */
const KEPT_OF_AUTHOR = 1_000;

const INFINITY = "forever";

/**
 * Encodes a change as JSON. JSON has no Infinity, which is the duration of a pause without an end.
 */
function changeText<Value>(): Shape<Value> {
  return {
    read: (stored) =>
      JSON.parse(String(stored), (name, value: unknown) =>
        name.endsWith("Ms") && value === INFINITY ? Infinity : value,
      ) as Value,
    write: (value) =>
      JSON.stringify(value, (_name, part: unknown) => (part === Infinity ? INFINITY : part)),
  };
}

const NEW_CHANGE = changeText<NewChange>();
const FATE = changeText<ChangeFate>();

/** An argument that is computed from the change. */
function ofChange<Change = NewChange>(make: (change: Change) => Operand) {
  return from(({ change }: { readonly change: Change }) => make(change));
}

/** Reads a text whose parts are separated by bars. The last part may contain bars. */
function barred<Given extends Parts>(given: Given): Reader<Read<Given>> {
  const reader = readerOf(given);
  const heads = Object.keys(given).length - 1;
  return {
    read(stored) {
      const all = String(stored).split("|");
      return reader.read([...all.slice(0, heads), all.slice(heads).join("|")]);
    },
  };
}

const OVERRIDE: Reader<Override> = mapped(
  barred({
    id: text,
    generation: optional(int),
    untilMs: optional(int),
    facts: json<Pick<Override, "bucket" | "text" | "by" | "reason">>(),
  }),
  ({ facts, ...record }) => ({
    ...facts,
    reason: facts.reason,
    ...record,
    atMs: timeOf(record.id),
  }),
);

export const RULES: Reader<RulesInForce> = mapped(
  barred({
    version: int,
    changedAtMs: int,
    digest: text,
    about: json<Pick<RulesInForce, "file" | "by">>(),
  }),
  ({ about, ...rules }) => ({ ...about, ...rules }),
);

export const RULED: Reader<RuledPolicy> = barred({ version: int, text });

/** What a relay has reported about its outbox, and when. */
export const OUTBOX_STATE = barred({ atMs: int, state: json<OutboxReport["state"]>() });

const ACTIVITY = barred({ atMs: int, activity: json<BucketActivity>() });

type StreamEntry = readonly [id: string, fields: readonly string[]];
/** The stored state of a bucket. Empty if the bucket has no state. */
type StoredBucketState =
  | readonly []
  | readonly [
      nowUs: number,
      generation: number,
      text: string,
      source: number,
      alive: number,
      coolUntilUs: number,
      pausedUntilUs: number,
      factor: number,
    ];

const LOOKED = readerOf({
  reports: flat({ replica: text, last: ACTIVITY }),
  overrides: flat({ id: text, record: text }),
  declared: optional(text),
  rules: optional(RULED),
  pause: { read: ([entry]: readonly StreamEntry[]) => entry } as Reader<StreamEntry | undefined>,
  fate: optional(text),
  awayMs: int,
  state: { read: (stored) => stored } as Reader<StoredBucketState>,
  hasCalls: flag,
  refusals: mapped(optional(int), (count = 0) => count),
});
type Looked = Read<typeof LOOKED>;

export const insightScripts = {
  /** Stores the report of a replica. Returns the overrides that this replica must end. */
  reportReplica: shapeScript({
    name: "insight/replica-report",
    keys: fleetKey,
    args: {
      replica: text,
      about: json<AboutReplica>(),
      aliveMs: constant(REPLICA_ALIVE_MS),
      stepMs: constant(HISTORY_STEP_MS),
      historyKeptMs: constant(HISTORY_KEPT_MS),
      keptMs: constant(INDEX_KEPT_MS),
      isLast: flag,
      buckets: fromEach(({ buckets }: Pick<ReplicaReport, "buckets">) =>
        buckets.flatMap(({ bucket, state, started, refused, declared = "", waited }) => [
          bucket,
          JSON.stringify(state),
          started,
          refused,
          declared,
          waited?.callers.map((count) => (count === 0 ? "" : count)).join(",") ?? "",
          waited?.forMs ?? 0,
        ]),
      ),
    },
    reply: { isNew: flag, over: list(OVERRIDE) },
  }),

  /** Stores the queues and workers of a replica. */
  reportQueues: shapeScript({
    name: "insight/queues-report",
    keys: fleetKey,
    args: {
      replica: text,
      keptMs: constant(INDEX_KEPT_MS),
      workers: written((workers: ReplicaReport["workers"]) => {
        if (workers === undefined) return UNCHANGED;
        return workers.length === 0 ? "" : JSON.stringify(workers);
      }),
      queues: fromEach(({ queues }: Pick<ReplicaReport, "queues">) =>
        queues.flatMap(({ name, ...facts }) => [name, JSON.stringify(facts)]),
      ),
    },
  }),

  /** Stores the report of a relay about its outbox. */
  reportOutbox: shapeScript({
    name: "insight/outbox-report",
    keys: fleetKey,
    args: {
      outbox: text,
      state: json<OutboxReport["state"]>(),
      moved: int,
      keptMs: constant(INDEX_KEPT_MS),
    },
  }),

  /** Records a change before it is made. Returns the change's id. */
  noteChange: shapeScript({
    name: "insight/change-note",
    keys: fleetKey,
    args: {
      of: ofChange((change) => change.bucket ?? change.queue),
      change: NEW_CHANGE,
      most: constant(CHANGES_KEPT),
      begun: ofChange((change) => {
        if (!isOverride(change)) return "";
        const { bucket, by, reason, after } = change;
        return JSON.stringify({ bucket, text: after.text, by, reason });
      }),
      forMs: ofChange(({ forMs = "" }) => forMs),
      keptMs: constant(CHANGES_KEPT_MS),
      log: ofChange(logOf),
      firstNumber: ofChange((change) => LOGS.indexOf(logOf(change)) * 1_000_000 || ""),
      author: fromEach(({ change }: { readonly change: NewChange }) => {
        const { queue, endpoint, isByCode, by } = change as NewQueueChange;
        if (endpoint === undefined) return [];
        return [digestOf([queue, endpoint.tenant, isByCode === true ? "" : by]), KEPT_OF_AUTHOR];
      }),
    },
    reply: text,
  }),

  /**
   * Stores the result of a change. This is a script because a script also runs when Redis's memory
   * is full.
   */
  amendChange: shapeScript({
    name: "insight/change-amend",
    keys: fleetKey,
    args: { id: text, fate: FATE, keptMs: constant(CHANGES_KEPT_MS) },
  }),

  /** Records that a change was made, and removes the overrides that the change replaced. */
  confirmChange: shapeScript({
    name: "insight/change-confirm",
    keys: fleetKey,
    args: {
      bucket: ofChange<MadeChange["change"]>(({ bucket }) => bucket),
      id: text,
      subject: ofChange<MadeChange["change"]>(({ subject }) => subject),
      isBegun: ofChange<MadeChange["change"]>(({ subject, after }) =>
        Number(subject === "policy" ? after.source === "override" : after.pausedForMs > 0),
      ),
      generation: int,
      unconfirmedMs: constant(UNCONFIRMED_MS),
      keptMs: constant(CHANGES_KEPT_MS),
    },
  }),

  endOverride: shapeScript({
    name: "insight/override-end",
    keys: fleetKey,
    args: { bucket: text, id: text },
  }),

  /**
   * Reads the reports, rules and overrides of some buckets. Also reads the buckets' state if this
   * server stores it.
   */
  look: shapeScript({
    name: "insight/buckets-look",
    keys: ({
      prefix,
      buckets,
      areHere,
    }: OfPrefix & { readonly buckets: readonly string[]; readonly areHere: boolean }) => [
      fleetBase({ prefix }),
      ...buckets.flatMap((bucket) =>
        areHere ? [...stateKeys(prefix, bucket, []), awayKey(prefix, bucket, undefined)] : [],
      ),
    ],
    args: { buckets: rest(text) },
    decode(reply, { areHere }) {
      const [nowUs, ...found] = reply as [number, ...unknown[]];
      return found.map((each) => {
        const looked = LOOKED.read(each);
        return {
          facts: factsOf(Math.floor(nowUs / 1_000), looked),
          declared: looked.declared,
          glance: areHere ? glanceOf(nowUs, looked) : undefined,
        };
      });
    },
  }),

  /** Offers the rules of a file. */
  offerRules: shapeScript({
    name: "insight/rules-offer",
    keys: fleetKey,
    args: {
      version: int,
      changedAtMs: int,
      digest: text,
      about: from(({ file, by }: Pick<RulesInForce, "file" | "by">) =>
        JSON.stringify({ file, by }),
      ),
      replica: text,
      claimMs: constant(RULES_CLAIM_MS),
      keptMs: constant(RULES_KEPT_MS),
    },
    reply: { verdict: word<RulesAnswer["verdict"]>(), before: optional(RULES) },
  }),

  /**
   * Stores the policies of the rules. Returns the earlier texts. Returns undefined if other rules
   * are active.
   */
  noteRules: shapeScript({
    name: "insight/rules-note",
    keys: fleetKey,
    args: {
      digest: text,
      version: int,
      keptMs: constant(RULES_KEPT_MS),
      listedMs: constant(INDEX_KEPT_MS),
      policies: fromEach(({ policies }: Pick<RulesNote, "policies">) =>
        policies.flatMap(([bucket, ruled = ""]) => [bucket, ruled]),
      ),
    },
    decode: (reply) =>
      (reply as readonly string[] | null)?.map((ruled) => optional(RULED).read(ruled)?.text),
  }),

  /** Records that the rules were applied to all buckets. */
  rulesApplied: shapeScript({
    name: "insight/rules-done",
    keys: fleetKey,
    args: { digest: text, doneMs: constant(RULES_DONE_MS) },
  }),
};

function digestOf(names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("base64url");
}

function isOverride(change: NewChange): change is NewBucketChange {
  if (change.bucket === undefined) return false;
  return change.subject === "policy" && change.after.source === "override";
}

function factsOf(nowMs: number, looked: Looked): BucketFacts {
  const { reports, overrides, rules, pause, fate, hasCalls, refusals } = looked;
  return {
    nowMs,
    refusals,
    reports: reports.map(({ replica, last }) => ({ replica, ...last.activity, atMs: last.atMs })),
    rules,
    overrides: overrides
      .map(({ id, record }) => OVERRIDE.read(`${id}|${record}`))
      .toSorted((a, b) => newestFirst(b.id, a.id)),
    pause: pause && (readChange(pause, fate) as KeptBucketChange),
    hasCalls,
  };
}

/**
 * Creates the brief status of a bucket. A bucket without a state appears unused, with the caller's
 * policy.
 */
function glanceOf(serverUs: number, { awayMs, state }: Looked): Glance {
  const unreachableForMs = awayMs < 0 ? 0 : Math.max(1, awayMs - OUTAGE_KEPT_MS);
  const [nowUs = serverUs, generation = serverUs, policy, source = 0, alive = 0, ...times] = state;
  const [coolUntilUs = 0, pausedUntilUs = 0, factor = 1_000] = times;
  const ofPolicy = { generation, text: policy, source: SOURCES[source]! };
  return { nowUs, ...ofPolicy, alive, coolUntilUs, pausedUntilUs, factor, unreachableForMs };
}

/** Reads a change from its log entry and its stored result. */
export function readChange([id, fields]: StreamEntry, fate: string | null | undefined): KeptChange {
  const noted = NEW_CHANGE.read(valueOf(fields, "change"));
  const { jobs, undoneBy, failed, after } = FATE.read(fate ?? "{}");
  const { reason, forMs, undoes } = noted;
  const kept = { ...noted, reason, forMs, undoes, id, atMs: timeOf(id), undoneBy, failed };
  if (kept.bucket !== undefined) return kept;
  const { endpoint, key, filter, before } = kept;
  return { ...kept, endpoint, key, filter, before, after: after ?? kept.after, jobs };
}

export function valueOf(fields: readonly string[], name: string): string {
  return fields[fields.indexOf(name) + 1] ?? "";
}

/** Returns the time of a change. The change's id begins with it. */
function timeOf(id: string): number {
  return Number(id.split("-", 1)[0]);
}
