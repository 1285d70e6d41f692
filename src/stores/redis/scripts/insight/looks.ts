import { OUTAGE_KEPT_MS, SOURCES } from "../../../../core/store.ts";
import type { BucketFacts, BucketActivity, Glance } from "../../../../core/stores/insight/store.ts";
import {
  newestFirst,
  type ChangeFate,
  type KeptBucketChange,
  type KeptChange,
  type NewChange,
} from "../../../../core/stores/insight/changes.ts";
import { awayKey, stateKeys } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { fleetBase, readChangeText, readOverride, timeOf } from "./insight.ts";
import { readRuled } from "./rules.ts";

interface LookRequest {
  readonly prefix: string;
  readonly buckets: readonly string[];
  /** Whether the buckets themselves lie on this server, too, so that one script can reach them. */
  readonly areHere: boolean;
}

interface Looked {
  readonly facts: BucketFacts;
  readonly declared: string | undefined;
  /** Undefined if they were not to be looked at. */
  readonly glance: Glance | undefined;
}

type StreamEntry = readonly [id: string, fields: readonly string[]];

type Reply = readonly [
  reports: readonly string[],
  overrides: readonly string[],
  declared: string | null,
  rules: string | null,
  pause: readonly StreamEntry[],
  fate: string | null,
  awayMs: number,
  state: StoredBucketState | readonly [],
  hasCalls: number,
  refusals: string | null,
];

type StoredBucketState = readonly [
  nowUs: number,
  generation: number,
  text: string,
  source: number,
  alive: number,
  coolUntilUs: number,
  pausedUntilUs: number,
  factor: number,
];

export const bucketsLook: Script<LookRequest, readonly Looked[]> = defineScript({
  name: "insight/buckets-look",
  keys: ({ prefix, buckets, areHere }) => [
    fleetBase({ prefix }),
    ...buckets.flatMap((bucket) =>
      areHere ? [...stateKeys(prefix, bucket, []), awayKey(prefix, bucket, undefined)] : [],
    ),
  ],
  args: ({ buckets }) => buckets,
  decode(reply, { areHere }) {
    const [nowUs, ...found] = reply as [number, ...Reply[]];
    return found.map((each) => ({
      facts: factsOf(Math.floor(nowUs / 1_000), each),
      declared: each[2] ?? undefined,
      glance: areHere ? glanceOf(nowUs, each) : undefined,
    }));
  },
});

function factsOf(nowMs: number, reply: Reply): BucketFacts {
  const [reports, overrides, , rules, pause, fate, , , hasCalls, refusals] = reply;
  return {
    nowMs,
    refusals: Number(refusals ?? 0),
    reports: pairsOf(reports).map(([replica, text]) => ({ replica, ...readActivity(text) })),
    rules: rules === null ? undefined : readRuled(rules),
    overrides: pairsOf(overrides)
      .map(([id, record]) => readOverride(`${id}|${record}`))
      .toSorted((a, b) => newestFirst(b.id, a.id)),
    pause: pause[0] && (readChange(pause[0], fate) as KeptBucketChange),
    hasCalls: hasCalls === 1,
  };
}

/** A bucket without a state is as one that was never used, under the policy of whoever asks. */
function glanceOf(serverUs: number, [, , , , , , awayMs, state]: Reply): Glance {
  const awayForMs = awayMs < 0 ? 0 : Math.max(1, awayMs - OUTAGE_KEPT_MS);
  const [nowUs = serverUs, generation = serverUs, text, source = 0, alive = 0, ...times] = state;
  const [coolUntilUs = 0, pausedUntilUs = 0, factor = 1_000] = times;
  const ofPolicy = { generation, text, source: SOURCES[source]! };
  return { nowUs, ...ofPolicy, alive, coolUntilUs, pausedUntilUs, factor, awayForMs };
}

/** A change as its entry in the log has it, with what became of it. */
export function readChange([id, fields]: StreamEntry, fate: string | null | undefined): KeptChange {
  const noted = readChangeText<NewChange>(valueOf(fields, "change"));
  const { jobs, undoneBy, failed, after } = readChangeText<ChangeFate>(fate ?? "{}");
  const { reason, forMs, undoes } = noted;
  const kept = { ...noted, reason, forMs, undoes, id, atMs: timeOf(id), undoneBy, failed };
  if (kept.bucket !== undefined) return kept;
  const { endpoint, key, filter, before } = kept;
  return { ...kept, endpoint, key, filter, before, after: after ?? kept.after, jobs };
}

export function valueOf(fields: readonly string[], name: string): string {
  return fields[fields.indexOf(name) + 1] ?? "";
}

/** Redis answers a hash as a list. */
function pairsOf(list: readonly string[]): (readonly [string, string])[] {
  return Array.from({ length: list.length / 2 }, (_, at) => [list[at * 2]!, list[at * 2 + 1]!]);
}

/** `<ms>|<JSON>` */
function readActivity(text: string): BucketActivity & { readonly atMs: number } {
  const end = text.indexOf("|");
  return {
    ...(JSON.parse(text.slice(end + 1)) as BucketActivity),
    atMs: Number(text.slice(0, end)),
  };
}
