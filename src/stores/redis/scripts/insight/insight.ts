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
  type ChangeFate,
  type MadeChange,
  type NewChange,
  type Override,
  type Reported,
  type ReplicaReport,
} from "../../../../core/stores/insight/store.ts";
import type { NewSteering, SteeringFate } from "../../../../core/stores/insight/steering.ts";
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

export const changeNote: Script<{ readonly change: NewChange } & OfPrefix, string> = defineScript({
  name: "insight/change-note",
  keys: (input) => [fleetBase(input)],
  args: ({ change }) => {
    const { bucket, by, reason, forMs, after } = change;
    const begun = JSON.stringify({ bucket, text: after.text, by, reason });
    return [
      bucket,
      JSON.stringify(change, sayInfinity),
      CHANGES_KEPT,
      isOverride(change) ? begun : "",
      forMs ?? "",
      CHANGES_KEPT_MS,
      ...(change.action === "rules" ? [":rules", 1_000_000] : ["", ""]),
    ];
  },
  decode: String,
});

/**
 * The logs of changes: of queues; of endpoints, with a `by`; by rules, of both; of endpoints, without a `by`. Applications
 * change endpoints for their tenants without a `by`, and these changes must not push out those of a person.
 */
export const STEERING_LOGS = [":queues", ":endpoints", ":settings", ":endpoints:code"] as const;

function logOf({ action, endpoint, isByCode = false }: NewSteering): number {
  if (action === "rules") return 2;
  if (endpoint === undefined) return 0;
  return isByCode ? 3 : 1;
}

/** How many changes of one tenant's endpoints are kept of one author. */
const KEPT_OF_AUTHOR = 1_000;

type SteeringNote = { readonly change: NewSteering } & OfPrefix;

export const steeringNote: Script<SteeringNote, string> = defineScript({
  name: "insight/change-note",
  keys: (input) => [fleetBase(input)],
  args: ({ change }) => {
    const text = JSON.stringify(change, sayInfinity);
    const log = logOf(change);
    const ids = [STEERING_LOGS[log]!, (log + 2) * 1_000_000];
    const { queue, endpoint, by, isByCode } = change;
    const author =
      endpoint === undefined
        ? []
        : [digestOf([queue, endpoint.tenant, isByCode === true ? "" : by]), KEPT_OF_AUTHOR];
    return [queue, text, CHANGES_KEPT, "", "", CHANGES_KEPT_MS, ...ids, ...author];
  },
  decode: String,
});

function digestOf(names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("base64url");
}

type ChangeAmend = {
  readonly id: string;
  readonly fate: ChangeFate | SteeringFate;
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
    const isBegun = subject === "policy" ? isOverride(change) : after.pausedForMs > 0;
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

function isOverride({ subject, after }: NewChange): boolean {
  return subject === "policy" && after.source === "override";
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
