/** `insight/…`: what replicas tell, and changes by hand. All keys of the fleet lie under one hash tag, so on one node of a cluster. */
import {
  BUCKET_KEPT_MS,
  CHANGES_KEPT,
  CHANGES_KEPT_MS,
  HISTORY_KEPT_MS,
  HISTORY_STEP_MS,
  REPLICA_ALIVE_MS,
  type NewChange,
  type Override,
  type ReplicaReport,
} from "../../../core/stores/insight/store.ts";
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

export const replicaReport: Script<ReplicaReport & OfPrefix, readonly Override[]> = defineScript({
  name: "insight/replica-report",
  keys: (input) => [fleetBase(input)],
  args: ({ replica, about, isLast, buckets }) => [
    replica,
    JSON.stringify(about),
    REPLICA_ALIVE_MS,
    HISTORY_STEP_MS,
    HISTORY_KEPT_MS,
    BUCKET_KEPT_MS,
    isLast ? 1 : 0,
    ...buckets.flatMap(({ bucket, state, started, declared = "" }) => [
      bucket,
      JSON.stringify(state),
      started,
      declared,
    ]),
  ],
  decode: (reply) =>
    (reply as (string | null)[]).flatMap((record) => (record === null ? [] : readOverride(record))),
});

export const changeNote: Script<{ readonly change: NewChange } & OfPrefix, string> = defineScript({
  name: "insight/change-note",
  keys: (input) => [fleetBase(input)],
  args: ({ change }) => {
    const { bucket, by, reason, forMs, after } = change;
    const part = beganOrEnded(change);
    const isBegun = part === "override" ? after.isOverride : after.pausedForMs > 0;
    const begun = JSON.stringify({ bucket, text: after.text, by, reason });
    return [
      bucket,
      JSON.stringify(change, sayInfinity),
      CHANGES_KEPT,
      part,
      isBegun ? begun : "",
      forMs ?? "",
      CHANGES_KEPT_MS,
    ];
  },
  decode: String,
});

export const overrideEnd: Script<Override & OfPrefix, void> = defineScript({
  name: "insight/override-end",
  keys: (input) => [fleetBase(input)],
  args: ({ bucket, id }) => [bucket, id],
  decode: () => undefined,
});

/** What a change begins or ends of the whole bucket. */
function beganOrEnded({ key, before, after }: NewChange): "override" | "pause" | "" {
  if (key !== undefined) return "";
  return before.pausedForMs === after.pausedForMs ? "override" : "pause";
}

/** `<id of the change>|<end in ms, or nothing>|<JSON>` */
export function readOverride(record: string): Override {
  const [id = "", untilMs = ""] = record.split("|", 2);
  const facts = JSON.parse(record.slice(id.length + untilMs.length + 2)) as Pick<
    Override,
    "bucket" | "text" | "by" | "reason"
  >;
  return {
    ...facts,
    reason: facts.reason,
    id,
    atMs: timeOf(id),
    untilMs: untilMs === "" ? undefined : Number(untilMs),
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

export function readChangeText(text: string): NewChange {
  return JSON.parse(text, (name, value: unknown) =>
    name.endsWith("Ms") && value === INFINITY ? Infinity : value,
  ) as NewChange;
}
