/** `insight/…`: what replicas tell, and changes by hand. All keys of the fleet lie under one hash tag, so on one node of a cluster. */
import { createHash } from "node:crypto";
import {
  INDEX_KEPT_MS,
  CHANGES_KEPT,
  CHANGES_KEPT_MS,
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  REPLICA_ALIVE_MS,
  UNCONFIRMED_MS,
  type Override,
  type Reported,
  type ReplicaReport,
} from "../../../../core/stores/insight/store.ts";
import {
  logOf,
  LOGS,
  type ChangeFate,
  type MadeChange,
  type NewBucketChange,
  type NewQueueChange,
  type NewChange,
} from "../../../../core/stores/insight/changes.ts";
import { defineScript, type Script } from "../script.ts";

interface OfPrefix {
  readonly prefix: string;
}

/** The bucket under whose hash tag the fleet's keys lie: no user's bucket can have this name. */
export const FLEET = ":fleet";

/** How the keys of the fleet begin. */
export function fleetBase({ prefix }: OfPrefix): string {
  return `${prefix}:{${FLEET}}`;
}

export const replicaReport: Script<ReplicaReport & OfPrefix, Reported> = defineScript({
  name: "insight/replica-report",
  keys: (input) => [fleetBase(input)],
  args: ({ replica, about, isLast, buckets }) => [
    replica,
    JSON.stringify(about),
    REPLICA_ALIVE_MS,
    HISTORY_STEP_MS,
    HISTORY_KEPT_MS,
    INDEX_KEPT_MS,
    isLast ? 1 : 0,
    ...buckets.flatMap(({ bucket, state, started, refused, declared = "", waited }) => [
      bucket,
      JSON.stringify(state),
      started,
      refused,
      declared,
      waited?.callers.map((count) => (count === 0 ? "" : count)).join(",") ?? "",
      waited?.forMs ?? 0,
    ]),
  ],
  decode(reply) {
    const [isNew, over] = reply as [number, string[]];
    return { isNew: isNew === 1, over: over.map(readOverride) };
  },
});

type QueuesReport = Pick<ReplicaReport, "replica" | "queues" | "workers"> & OfPrefix;

export const queuesReport: Script<QueuesReport, void> = defineScript({
  name: "insight/queues-report",
  keys: (input) => [fleetBase(input)],
  args: ({ replica, queues, workers }) => [
    replica,
    INDEX_KEPT_MS,
    workers === undefined ? AS_BEFORE : workers.length === 0 ? "" : JSON.stringify(workers),
    ...queues.flatMap(({ name, ...facts }) => [name, JSON.stringify(facts)]),
  ],
  decode: () => undefined,
});

/** In place of workers of which nothing is new. */
const AS_BEFORE = "=";

/** How many changes of one tenant's endpoints are kept of one author. */
const KEPT_OF_AUTHOR = 1_000;

export const changeNote: Script<{ readonly change: NewChange } & OfPrefix, string> = defineScript({
  name: "insight/change-note",
  keys: (input) => [fleetBase(input)],
  args: ({ change }) => {
    const { by, reason, forMs } = change;
    const log = logOf(change);
    const at = LOGS.indexOf(log);
    const { bucket, queue, endpoint, isByCode } = change as Partial<NewQueueChange> & NewChange;
    const begun = isOverride(change)
      ? JSON.stringify({ bucket, text: change.after.text, by, reason })
      : "";
    const author =
      endpoint === undefined
        ? []
        : [digestOf([queue!, endpoint.tenant, isByCode === true ? "" : by]), KEPT_OF_AUTHOR];
    return [
      bucket ?? queue!,
      JSON.stringify(change, sayInfinity),
      CHANGES_KEPT,
      begun,
      forMs ?? "",
      CHANGES_KEPT_MS,
      log,
      at === 0 ? "" : at * 1_000_000,
      ...author,
    ];
  },
  decode: String,
});

function digestOf(names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("base64url");
}

type ChangeAmend = {
  readonly id: string;
  readonly fate: ChangeFate;
} & OfPrefix;

/** A script, since those run also where the memory of Redis is full. */
export const changeAmend: Script<ChangeAmend, void> = defineScript({
  name: "insight/change-amend",
  keys: (input) => [fleetBase(input)],
  args: ({ id, fate }) => [id, JSON.stringify(fate, sayInfinity), CHANGES_KEPT_MS],
  decode: () => undefined,
});

export const changeConfirm: Script<MadeChange & OfPrefix, void> = defineScript({
  name: "insight/change-confirm",
  keys: (input) => [fleetBase(input)],
  args: ({ id, change, generation }) => {
    const { bucket, subject, after } = change;
    const isBegun = subject === "policy" ? after.source === "override" : after.pausedForMs > 0;
    return [bucket, id, subject, isBegun ? 1 : 0, generation, UNCONFIRMED_MS, CHANGES_KEPT_MS];
  },
  decode: () => undefined,
});

export const overrideEnd: Script<Pick<Override, "bucket" | "id"> & OfPrefix, void> = defineScript({
  name: "insight/override-end",
  keys: (input) => [fleetBase(input)],
  args: ({ bucket, id }) => [bucket, id],
  decode: () => undefined,
});

function isOverride(change: NewChange): change is NewBucketChange {
  if (change.bucket === undefined) return false;
  return change.subject === "policy" && change.after.source === "override";
}

/** `<id of the change>|<generation, or nothing>|<end in ms, or nothing>|<JSON>` */
export function readOverride(record: string): Override {
  const [id = "", generation = "", untilMs = ""] = record.split("|", 3);
  const head = `${id}|${generation}|${untilMs}|`;
  const facts = JSON.parse(record.slice(head.length)) as Pick<
    Override,
    "bucket" | "text" | "by" | "reason"
  >;
  return {
    ...facts,
    reason: facts.reason,
    id,
    atMs: timeOf(id),
    untilMs: untilMs === "" ? undefined : Number(untilMs),
    generation: generation === "" ? undefined : Number(generation),
  };
}

/** When a change was made, by its id. */
export function timeOf(id: string): number {
  return Number(id.split("-", 1)[0]);
}

const INFINITY = "forever";

/** JSON has no Infinity, of which a pause without an end is made. */
function sayInfinity(_name: string, value: unknown): unknown {
  return value === Infinity ? INFINITY : value;
}

export function readChangeText<Text>(text: string): Text {
  return JSON.parse(text, (name, value: unknown) =>
    name.endsWith("Ms") && value === INFINITY ? Infinity : value,
  ) as Text;
}
