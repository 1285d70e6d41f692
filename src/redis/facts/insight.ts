/** What is known of a fleet, in Redis: see `core/stores/insight/store.ts`. */
import type { Cluster, Redis } from "ioredis";
import { reasonOf } from "../../core/describe.ts";
import { SluiceError, StoreUnavailableError } from "../../core/errors.ts";
import {
  CHANGES_KEPT_MS,
  HISTORY_STEP_MS,
  REPLICA_ALIVE_MS,
  type AboutReplica,
  type BucketTold,
  type Change,
  type ChangeFate,
  type InsightStore,
  type Point,
} from "../../core/stores/insight/store.ts";
import type { Requests } from "../requests/requests.ts";
import {
  changeConfirm,
  changeNote,
  fleetBase,
  FLEET,
  overrideEnd,
  queuesReport,
  readChangeText,
  readOverride,
  replicaReport,
  timeOf,
} from "../scripts/insight/insight.ts";
import { readRuled } from "../scripts/insight/rules.ts";
import { clockRead } from "../scripts/queue/jobs.ts";
import { runScript } from "../scripts/script.ts";
import { createQueueIndex } from "./queue-index.ts";
import { createRedisRules } from "./rules.ts";

const HOUR_MS = 3_600_000;
/** How many changes are read at a time while those of one bucket are looked for. */
const READ_AT_ONCE = 500;

export function createRedisInsight(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send" | "sendOnce">,
): InsightStore {
  const base = fleetBase({ prefix });
  const send = <T>(run: () => Promise<T>): Promise<T> => requests.send(FLEET, run);
  const sendOnce = <T>(run: () => Promise<T>): Promise<T> => requests.sendOnce(FLEET, run);

  async function nowMs(): Promise<number> {
    return Math.floor((await runScript(redis, clockRead, { prefix, queue: FLEET })) / 1_000);
  }

  async function withFates(found: readonly (readonly [string, string])[]): Promise<Change[]> {
    if (found.length === 0) return [];
    const fates = await redis.mget(found.map(([id]) => `${base}:fate:${id}`));
    return found.map(([id, text], at) => {
      const fate = JSON.parse(fates[at] ?? "{}") as Partial<Change>;
      const { undoneBy, failed } = fate;
      return { ...readChangeText(text), id, atMs: timeOf(id), undoneBy, failed };
    });
  }

  return {
    ...createRedisRules(redis, prefix, requests),
    ...createQueueIndex(redis, base, { send, nowMs }),
    report: (report) =>
      sendOnce(async () => {
        const { queues, workers } = report;
        const isOfQueues = queues.length > 0 || workers !== undefined;
        const [reported] = await Promise.all([
          runScript(redis, replicaReport, { ...report, prefix }),
          isOfQueues ? runScript(redis, queuesReport, { ...report, prefix }) : undefined,
        ]);
        return reported;
      }),
    bucketNames: ({ after, limit }) =>
      send(async () => {
        const from = after === "" ? "-" : `(${after}`;
        const names = await redis.zrangebylex(`${base}:names`, from, "+", "LIMIT", 0, limit);
        return { names, errors: [] };
      }),
    bucket: (name) =>
      send(async () => {
        const [now, told, rules, overrides, paused] = await Promise.all([
          nowMs(),
          redis.hgetall(`${base}:told:${name}`),
          redis.hget(`${base}:rules:texts`, name),
          redis.hgetall(`${base}:overrides:${name}`),
          redis.hget(`${base}:pauses`, name),
        ]);
        const pause = paused?.slice(paused.indexOf("|") + 1) ?? "";
        const changes = pause === "" ? [] : await redis.xrange(`${base}:changes`, pause, pause);
        const [change] = await withFates(changes.map(readEntry));
        return {
          nowMs: now,
          told: Object.entries(told).map(([replica, text]) => ({ replica, ...readTold(text) })),
          rules: rules === null ? undefined : readRuled(rules),
          overrides: Object.entries(overrides)
            .map(([id, record]) => readOverride(`${id}|${record}`))
            .toSorted(byId),
          pause: change,
        };
      }),
    declared: (bucket) =>
      send(async () => (await redis.hget(`${base}:declared`, bucket)) ?? undefined),
    replicas: () =>
      send(async () => {
        const sinceMs = (await nowMs()) - REPLICA_ALIVE_MS;
        const found = await redis.zrangebyscore(`${base}:replicas`, sinceMs, "+inf", "WITHSCORES");
        const names = found.filter((_, at) => at % 2 === 0);
        if (names.length === 0) return [];
        const texts = await redis.mget(names.map((name) => `${base}:replica:${name}`));
        return names.flatMap((replica, at) => {
          const text = texts[at];
          if (text === null || text === undefined) return [];
          const seenAtMs = Number(found[at * 2 + 1]);
          return [{ ...(JSON.parse(text) as AboutReplica), replica, seenAtMs }];
        });
      }),
    history: (bucket, { fromMs, untilMs }) =>
      send(async () => {
        const first = Math.floor(fromMs / HOUR_MS);
        const count = Math.max(0, Math.floor(untilMs / HOUR_MS) - first + 1);
        const hours = Array.from({ length: count }, (_, at) => first + at);
        const found = await Promise.all(
          hours.map((hour) => redis.hgetall(`${base}:history:${bucket}:${hour}`)),
        );
        const points = found.flatMap((counts, at) =>
          Object.entries(counts).map(([step, started]): Point => {
            const atMs = hours[at]! * HOUR_MS + Number(step) * HISTORY_STEP_MS;
            return { atMs, started: Number(started) };
          }),
        );
        return points
          .filter(({ atMs }) => atMs + HISTORY_STEP_MS > fromMs && atMs <= untilMs)
          .toSorted((a, b) => a.atMs - b.atMs);
      }),
    noteChange: (change) =>
      // Sent again after a lost reply, it would be noted twice.
      sendOnce(() => runScript(redis, changeNote, { change, prefix })).catch(notNoted),
    amendChange: ({ id }, fate: ChangeFate) =>
      send(async () => {
        const text = JSON.stringify(fate);
        await redis.set(`${base}:fate:${id}`, text, "PX", CHANGES_KEPT_MS);
      }),
    changes: ({ bucket, before, limit }) =>
      send(async () => {
        const found: (readonly [string, string])[] = [];
        let end = before === undefined ? "+" : `(${before}`;
        while (found.length < limit) {
          const page = await redis.xrevrange(`${base}:changes`, end, "-", "COUNT", READ_AT_ONCE);
          for (const entry of page) {
            const isOfBucket = bucket === undefined || valueOf(entry, "bucket") === bucket;
            if (isOfBucket && found.length < limit) found.push(readEntry(entry));
          }
          if (page.length < READ_AT_ONCE) break;
          end = `(${page.at(-1)![0]}`;
        }
        return withFates(found);
      }),
    confirmChange: (made) => send(() => runScript(redis, changeConfirm, { ...made, prefix })),
    endOverride: (override) => send(() => runScript(redis, overrideEnd, { ...override, prefix })),
  };
}

/** Ids are `<ms>-<number>`. */
function byId({ id: a }: { readonly id: string }, { id: b }: { readonly id: string }): number {
  const order = timeOf(a) - timeOf(b);
  return order === 0 ? Number(a.split("-")[1]) - Number(b.split("-")[1]) : order;
}

/** @throws {@link StoreUnavailableError} for whatever Redis or its connection says. */
function notNoted(error: unknown): never {
  if (error instanceof SluiceError) throw error;
  const text =
    `The change could not be noted (${reasonOf(error)}), and nothing was changed. ` +
    `See that Redis runs and can be reached, and repeat it.`;
  throw new StoreUnavailableError(text, error);
}

type Entry = [id: string, fields: string[]];

function valueOf([, fields]: Entry, name: string): string {
  return fields[fields.indexOf(name) + 1] ?? "";
}

function readEntry(entry: Entry): readonly [string, string] {
  return [entry[0], valueOf(entry, "change")];
}

/** `<ms>|<JSON>` */
function readTold(text: string): BucketTold & { readonly atMs: number } {
  const [atMs = ""] = text.split("|", 1);
  return { ...(JSON.parse(text.slice(atMs.length + 1)) as BucketTold), atMs: Number(atMs) };
}
